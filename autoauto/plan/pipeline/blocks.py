"""The layers between neighbouring legal cuts: the atoms that a planner moves."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.records.cost import CostTable, IntArray


@dataclass(frozen=True, slots=True)
class Blocks:
    """A `CostTable` seen through its legal cuts; lists, because Python's integers are quicker there than NumPy's.

    A stage holds all layers of a tie, or none, exactly when it begins and ends at legal cuts (PLANNER.md). So layers
    between two neighbouring legal cuts act as one, a block, and every range of the B blocks is a legal stage.

    Attributes:
        cuts: (B + 1,) the layer after every legal cut.
        compute_prefix_cycles: (B + 1,) running sum of cycles.
        start_cycles: (B + 1,) by start: what the running sum is counted from by a stage, as `CostTable.start_cycles`.
        exclusive_prefix_bytes: (B + 1,) running sum over all categories of what adds up.
        shared_keys: (B,) the shared keys of every block, as often as its layers name them.
        shared_bytes: bytes of every shared key.
        peak_bytes: (B,) the largest temporary + carried of a block, plus all activations kept since layer 0.
        kept_bytes: (B + 1,) activations kept since layer 0.
        not_kept_bytes: (B + 1,) by start: the activations since layer 0 that a stage does not keep.
        recompute_bytes: (B,) the widest inputs of a block's layers, if that is all that a stage keeps; else empty.
        stash_entries: (P,) micro-batches that every device keeps besides the one in work.
        receive_cycles: (P, B + 1) by device and start; the last column is unused.
        send_cycles: (P, B + 1) by device and stop; the first column is unused.
        receive_rows, send_rows: both once more, as arrays.
        least_receive_cycles: (P,) no start receives in less.
        least_send_cycles: (P,) no stop sends in less.
    """

    cuts: list[int]
    compute_prefix_cycles: list[int]
    start_cycles: list[int]
    exclusive_prefix_bytes: list[int]
    shared_keys: list[tuple[int, ...]]
    shared_bytes: tuple[int, ...]
    peak_bytes: list[int]
    kept_bytes: list[int]
    not_kept_bytes: list[int]
    recompute_bytes: list[int]
    stash_entries: list[int]
    receive_cycles: list[list[int]]
    send_cycles: list[list[int]]
    receive_rows: list[IntArray] = field(compare=False)
    send_rows: list[IntArray] = field(compare=False)
    least_receive_cycles: list[int]
    least_send_cycles: list[int]

    def __len__(self) -> int:
        return len(self.shared_keys)

    def part(self, first: int, stop: int) -> Blocks:
        """The same blocks on the devices `[first, stop)` alone, as `CostTable.part`."""
        receivers, senders = [0, *range(first + 1, stop)], [*range(first, stop - 1), -1]
        return replace(
            self,
            stash_entries=self.stash_entries[first:stop],
            receive_cycles=[self.receive_cycles[i] for i in receivers],
            send_cycles=[self.send_cycles[i] for i in senders],
            receive_rows=[self.receive_rows[i] for i in receivers],
            send_rows=[self.send_rows[i] for i in senders],
            least_receive_cycles=[self.least_receive_cycles[i] for i in receivers],
            least_send_cycles=[self.least_send_cycles[i] for i in senders],
        )


def contract(table: CostTable) -> Blocks:
    """Merge the layers between legal cuts, in O(n) for each different row of transfer cycles."""
    cuts = np.flatnonzero(table.cut_allowed)
    exclusive = sum(table.exclusive_prefix_bytes.values(), np.zeros(table.n_layers + 1, dtype=np.int64))
    peaks = table.peak_bytes + table.activation_prefix_bytes[:-1]
    boundaries: list[int] = cuts.tolist()
    receive_rows = _rows(table.receive_cycles, np.minimum(cuts, table.n_layers - 1))
    send_rows = _rows(table.send_cycles, cuts)
    return Blocks(
        cuts=boundaries,
        compute_prefix_cycles=table.compute_prefix_cycles[cuts].tolist(),
        start_cycles=table.start_cycles[cuts].tolist(),
        exclusive_prefix_bytes=exclusive[cuts].tolist(),
        shared_keys=[tuple(chain(*table.shared_keys[start:stop])) for start, stop in pairwise(boundaries)],
        shared_bytes=table.shared_bytes,
        peak_bytes=np.maximum.reduceat(peaks, cuts[:-1]).tolist(),
        kept_bytes=table.activation_prefix_bytes[cuts].tolist(),
        not_kept_bytes=_not_kept(table, cuts),
        recompute_bytes=_widest(table.recompute_bytes, cuts),
        stash_entries=list(table.stash_entries or (0,) * table.n_devices),
        receive_cycles=_lists(receive_rows),
        send_cycles=_lists(send_rows),
        receive_rows=receive_rows,
        send_rows=send_rows,
        least_receive_cycles=table.receive_cycles.min(axis=1).tolist(),
        least_send_cycles=table.send_cycles[:, 1:].min(axis=1).tolist(),
    )


def _not_kept(table: CostTable, cuts: IntArray) -> list[int]:
    """By start: the activations since layer 0 less those that are kept again."""
    kept = table.activation_prefix_bytes[cuts]
    if len(table.kept_input_bytes):
        kept[:-1] -= table.kept_input_bytes[cuts[:-1]]
    rest: list[int] = kept.tolist()
    return rest


def _widest(n_bytes: IntArray, cuts: IntArray) -> list[int]:
    """The largest of each block; nothing of nothing."""
    widest: list[int] = np.maximum.reduceat(n_bytes, cuts[:-1]).tolist() if len(n_bytes) else []
    return widest


def _rows(cycles: IntArray, columns: IntArray) -> list[IntArray]:
    """The chosen columns, row by row; equal rows, as of equal links, become one array."""
    known: dict[bytes, IntArray] = {}
    rows = []
    for row in cycles:
        content = row.tobytes()
        if content not in known:
            known[content] = row[columns]
        rows.append(known[content])
    return rows


def _lists(rows: list[IntArray]) -> list[list[int]]:
    """The rows as lists; what is one array becomes one list."""
    known: dict[int, list[int]] = {}
    for row in rows:
        if id(row) not in known:
            known[id(row)] = row.tolist()
    return [known[id(row)] for row in rows]


class Reach(NamedTuple):
    """How far back stages may begin within a limit.

    Attributes:
        starts: for every stop, the smallest start with `bytes(start, stop) <= limit_bytes`; the stop if there is none.
        next_bytes: the smallest limit that would let any stage begin earlier; None when all may begin at 0.
    """

    starts: list[int]
    next_bytes: int | None


def reach(blocks: Blocks, limit_bytes: int, stash_entries: int = 0) -> Reach:
    """Find the earliest starts within one limit, when so many micro-batches are kept besides the one in work.

    A stage that begins earlier never needs less, so the answers do not decrease and one window moves over the blocks:
    at most B steps at either end (PLANNER.md, preparation b).
    """
    window = _Window(blocks, stash_entries)
    starts, next_bytes = [0], None
    for _ in range(len(blocks)):
        window.grow()
        while window.start < window.stop and (n_bytes := window.n_bytes()) > limit_bytes:
            next_bytes = n_bytes if next_bytes is None else min(n_bytes, next_bytes)
            window.shrink()
        starts.append(window.start)
    return Reach(starts, next_bytes)


def earliest_starts_by_device(blocks: Blocks, limits_bytes: Sequence[int]) -> list[list[int]]:
    """The earliest starts within the limit of every device; devices of equal limit and stash share one list."""
    keys = list(zip(limits_bytes, blocks.stash_entries, strict=True))
    by_key = {key: reach(blocks, *key).starts for key in set(keys)}
    return [by_key[key] for key in keys]


class _Window:
    """The memory of the blocks `[start, stop)` while both ends move right."""

    __slots__ = ("_blocks", "_count", "_entries", "_peaks", "_shared", "_widest", "start", "stop")

    def __init__(self, blocks: Blocks, stash_entries: int) -> None:
        self.start = self.stop = 0
        self._blocks = blocks
        self._count = [0] * len(blocks.shared_bytes)  # how often the window names each shared key
        self._shared = 0
        self._peaks: deque[int] = deque()  # blocks whose peak no later block of the window reaches
        self._entries = stash_entries
        self._widest: deque[int] = deque()  # likewise for the inputs that are kept

    def n_bytes(self) -> int:
        """Bytes of a window that is not empty."""
        blocks = self._blocks
        exclusive = blocks.exclusive_prefix_bytes[self.stop] - blocks.exclusive_prefix_bytes[self.start]
        n_bytes = exclusive + self._shared + blocks.peak_bytes[self._peaks[0]] - blocks.not_kept_bytes[self.start]
        return n_bytes + self._entries * self._entry_bytes() if self._entries else n_bytes

    def _entry_bytes(self) -> int:
        """What is kept of one micro-batch, as `CostTable.entry_bytes`."""
        if self._widest:
            return self._blocks.recompute_bytes[self._widest[0]]
        return self._blocks.kept_bytes[self.stop] - self._blocks.not_kept_bytes[self.start]

    def grow(self) -> None:
        """Take in the block at `stop`."""
        for key in self._blocks.shared_keys[self.stop]:
            if self._count[key] == 0:
                self._shared += self._blocks.shared_bytes[key]
            self._count[key] += 1
        peaks, peak_bytes = self._peaks, self._blocks.peak_bytes
        while peaks and peak_bytes[peaks[-1]] <= peak_bytes[self.stop]:
            peaks.pop()
        peaks.append(self.stop)
        if self._blocks.recompute_bytes:
            self._grow_widest()
        self.stop += 1

    def _grow_widest(self) -> None:
        widest, n_bytes = self._widest, self._blocks.recompute_bytes
        while widest and n_bytes[widest[-1]] <= n_bytes[self.stop]:
            widest.pop()
        widest.append(self.stop)

    def shrink(self) -> None:
        """Let go of the block at `start`."""
        for key in self._blocks.shared_keys[self.start]:
            self._count[key] -= 1
            if self._count[key] == 0:
                self._shared -= self._blocks.shared_bytes[key]
        if self._peaks[0] == self.start:
            self._peaks.popleft()
        if self._widest and self._widest[0] == self.start:
            self._widest.popleft()
        self.start += 1
