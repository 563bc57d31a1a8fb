"""Blocks, the layers between neighbouring legal cuts, `contract`; and where stages fit memory, `earliest_starts`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.cost import CostTable


@dataclass(frozen=True, slots=True)
class Blocks:
    """A `CostTable` reduced to its legal cuts; in lists, which are faster than NumPy for single integers.

        layers   0   1   2   3   4   5         layers 1 and 3 share a variable, so no cut lies between them
        cuts    |   |           |   |   |
        blocks    0       1       2   3

    Layers between two neighbouring legal cuts are one block, since they must share a stage. Every range of the B blocks
    is a legal stage. In the whole planner, starts, stops and cuts are indices of blocks; `cuts` maps them to layers.

    Attributes:
        cuts: (B + 1,) the layer after every legal cut.
        compute_prefix_cycles: (B + 1,) running sum of cycles.
        start_offset_cycles: (B + 1,) by start: `compute_prefix_cycles[stop]` minus this is the compute of a stage.
        exclusive_prefix_bytes: (B + 1,) running sum of the bytes that add up, over all categories.
        shared_keys: (B,) the shared keys of every block, one for each layer that uses it.
        shared_bytes: bytes of every shared key.
        peak_bytes: (B,) the largest `CostTable.peak_bytes` of a block's layers, each with the activations stashed from
            layer 0 to it; minus `activation_offset_bytes` of a start it is the peak in a stage from that start.
        activation_prefix_bytes: (B + 1,) running sum of activations.
        activation_offset_bytes: (B + 1,) by start: `activation_prefix_bytes[stop]` minus this is what a stage
            stashes for a micro-batch.
        recompute_bytes: (B,) the largest inputs of a block's layers, with recomputation; else empty.
        stash_entries: (P,) micro-batches in the stash of every device, as `CostTable.stash_entries`; zeros without.
        receive_cycles: (P, B + 1) by device and start; the last column is unused.
        send_cycles: (P, B + 1) by device and stop; the first column is unused.
        receive_rows, send_rows: the rows of `receive_cycles` and `send_cycles` as arrays.
        min_receive_cycles: (P,) the minimum over all starts.
        min_send_cycles: (P,) the minimum over all stops.
    """

    cuts: list[int]
    compute_prefix_cycles: list[int]
    start_offset_cycles: list[int]
    exclusive_prefix_bytes: list[int]
    shared_keys: list[tuple[int, ...]]
    shared_bytes: tuple[int, ...]
    peak_bytes: list[int]
    activation_prefix_bytes: list[int]
    activation_offset_bytes: list[int]
    recompute_bytes: list[int]
    stash_entries: list[int]
    receive_cycles: list[list[int]]
    send_cycles: list[list[int]]
    receive_rows: list[IntArray] = field(compare=False)
    send_rows: list[IntArray] = field(compare=False)
    min_receive_cycles: list[int]
    min_send_cycles: list[int]

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
            min_receive_cycles=[self.min_receive_cycles[i] for i in receivers],
            min_send_cycles=[self.min_send_cycles[i] for i in senders],
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
        start_offset_cycles=table.start_offset_cycles[cuts].tolist(),
        exclusive_prefix_bytes=exclusive[cuts].tolist(),
        shared_keys=[tuple(chain(*table.shared_keys[start:stop])) for start, stop in pairwise(boundaries)],
        shared_bytes=table.shared_bytes,
        peak_bytes=np.maximum.reduceat(peaks, cuts[:-1]).tolist(),
        activation_prefix_bytes=table.activation_prefix_bytes[cuts].tolist(),
        activation_offset_bytes=_activation_offsets(table, cuts),
        recompute_bytes=_widest(table.recompute_bytes, cuts),
        stash_entries=list(table.stash_entries or (0,) * table.n_devices),
        receive_cycles=_lists(receive_rows),
        send_cycles=_lists(send_rows),
        receive_rows=receive_rows,
        send_rows=send_rows,
        min_receive_cycles=table.receive_cycles.min(axis=1).tolist(),
        min_send_cycles=table.send_cycles[:, 1:].min(axis=1).tolist(),
    )


def _activation_offsets(table: CostTable, cuts: IntArray) -> list[int]:
    """By start: the activations stashed before it, minus those inputs of the stage that the stage stashes again."""
    offsets = table.activation_prefix_bytes[cuts]
    if len(table.stashed_input_bytes):
        offsets[:-1] -= table.stashed_input_bytes[cuts[:-1]]
    as_list: list[int] = offsets.tolist()
    return as_list


def _widest(n_bytes: IntArray, cuts: IntArray) -> list[int]:
    """The largest value of each block; empty if there are no values."""
    widest: list[int] = np.maximum.reduceat(n_bytes, cuts[:-1]).tolist() if len(n_bytes) else []
    return widest


def _rows(cycles: IntArray, columns: IntArray) -> list[IntArray]:
    """The chosen columns of every row; equal rows, as devices with equal links have, become one array object."""
    arrays: dict[bytes, IntArray] = {}
    rows = []
    for row in cycles:
        content = row.tobytes()
        if content not in arrays:
            arrays[content] = row[columns]
        rows.append(arrays[content])
    return rows


def _lists(rows: list[IntArray]) -> list[list[int]]:
    """The rows as lists; rows that are one array object become one list object."""
    lists: dict[int, list[int]] = {}
    for row in rows:
        if id(row) not in lists:
            lists[id(row)] = row.tolist()
    return [lists[id(row)] for row in rows]


class EarliestStarts(NamedTuple):
    """The earliest starts of stages within a memory limit.

    Attributes:
        starts: (B + 1,) for every stop the smallest start whose stage fits; the stop itself if none fits.
        next_bytes: the smallest limit that would let any stage start earlier; None when all may start at 0.
    """

    starts: list[int]
    next_bytes: int | None


def earliest_starts(blocks: Blocks, limit_bytes: int, stash_entries: int = 0) -> EarliestStarts:
    """Find the earliest start for every stop within one limit, with `stash_entries` micro-batches in the stash.

    A stage with an earlier start never needs less memory. So the earliest start does not decrease as the stop grows,
    and one window slides over the blocks, with at most B steps at either end:

        [start . . . . stop)              fits: the next stop
        [start . . . . . . stop)          does not fit: the next start, until it fits
              [start . . . stop)
    """
    window = _Window(blocks, stash_entries)
    starts, next_bytes = [0], None
    for _ in range(len(blocks)):
        window.grow()
        while window.start < window.stop and (n_bytes := window.n_bytes()) > limit_bytes:
            next_bytes = n_bytes if next_bytes is None else min(n_bytes, next_bytes)
            window.shrink()
        starts.append(window.start)
    return EarliestStarts(starts, next_bytes)


def earliest_starts_by_device(blocks: Blocks, limits_bytes: Sequence[int]) -> list[list[int]]:
    """The earliest starts within the limit of every device; devices of equal limit and stash share one list."""
    keys = list(zip(limits_bytes, blocks.stash_entries, strict=True))
    by_key = {key: earliest_starts(blocks, *key).starts for key in set(keys)}
    return [by_key[key] for key in keys]


class _Window:
    """The memory of the blocks `[start, stop)` while both ends move right."""

    __slots__ = ("_blocks", "_count", "_entries", "_peaks", "_shared", "_widest", "start", "stop")

    def __init__(self, blocks: Blocks, stash_entries: int) -> None:
        self.start = self.stop = 0
        self._blocks = blocks
        self._count = [0] * len(blocks.shared_bytes)  # layers of the window with each shared key
        self._shared = 0
        # Queues for the maximum of a sliding window: blocks with a larger value than any later block of the window.
        self._peaks: deque[int] = deque()  # by `peak_bytes`
        self._entries = stash_entries
        self._widest: deque[int] = deque()  # by `recompute_bytes`

    def n_bytes(self) -> int:
        """Bytes of a window that is not empty."""
        blocks = self._blocks
        exclusive = blocks.exclusive_prefix_bytes[self.stop] - blocks.exclusive_prefix_bytes[self.start]
        n_bytes = (
            exclusive + self._shared + blocks.peak_bytes[self._peaks[0]] - blocks.activation_offset_bytes[self.start]
        )
        return n_bytes + self._entries * self._stash_entry_bytes() if self._entries else n_bytes

    def _stash_entry_bytes(self) -> int:
        """Bytes in the stash of one micro-batch, as `CostTable.stash_entry_bytes`."""
        if self._widest:
            return self._blocks.recompute_bytes[self._widest[0]]
        return self._blocks.activation_prefix_bytes[self.stop] - self._blocks.activation_offset_bytes[self.start]

    def grow(self) -> None:
        """Add the block at `stop`."""
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
        """Remove the block at `start`."""
        for key in self._blocks.shared_keys[self.start]:
            self._count[key] -= 1
            if self._count[key] == 0:
                self._shared -= self._blocks.shared_bytes[key]
        if self._peaks[0] == self.start:
            self._peaks.popleft()
        if self._widest and self._widest[0] == self.start:
            self._widest.popleft()
        self.start += 1
