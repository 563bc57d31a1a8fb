"""The layers between neighbouring legal cuts: the atoms that a planner moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

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
