"""Blocks, the layers between neighbouring legal cuts: `contract`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import RangeBytes, RangeMemory
from autoauto.records.units import BoolArray, IntArray


class BlockBytes(NamedTuple):
    """`RangeBytes` of blocks instead of layers, in lists."""

    stop_bytes: list[int]
    start_bytes: list[int]
    maxima_bytes: tuple[list[int], ...]

    def plus(self, times: int, other: BlockBytes) -> BlockBytes:
        """The sum of these bytes and `times` times those of `other`, block by block."""
        if not times:
            return self
        maxima_bytes = list(self.maxima_bytes)  # the sum of two maxima over a range is no maximum of a sum
        for column in other.maxima_bytes:
            maxima_bytes.append([times * n_bytes for n_bytes in column])
        return BlockBytes(
            [mine + times * more for mine, more in zip(self.stop_bytes, other.stop_bytes, strict=True)],
            [mine + times * more for mine, more in zip(self.start_bytes, other.start_bytes, strict=True)],
            tuple(maxima_bytes),
        )


class BlockMemory(NamedTuple):
    """The memory of ranges of blocks in one program form: one of `RangeMemory.forms`, with blocks in place of layers.

    Attributes:
        shared_keys: (B,) the shared keys of every block, one for each layer that uses it.
        shared_bytes: bytes of every shared key.
        one_in_flight: all other bytes with one micro-batch in flight.
        stash_entry: bytes of every entry in the stash.
    """

    shared_keys: list[tuple[int, ...]]
    shared_bytes: tuple[int, ...]
    one_in_flight: BlockBytes
    stash_entry: BlockBytes


@dataclass(frozen=True, slots=True)
class BlockCosts:
    """Costs of ranges of B blocks on a device, without transfers.

    Attributes:
        compute_prefix_cycles: (B + 1,) running sum of cycles.
        start_offset_cycles: (B + 1,) by start: `compute_prefix_cycles[stop]` minus this is the compute of a stage.
        prefix, offsets: these two as arrays.
        forms: the programs that a range may be; it fits when one of them does.
    """

    compute_prefix_cycles: list[int]
    start_offset_cycles: list[int]
    prefix: IntArray = field(compare=False)
    offsets: IntArray = field(compare=False)
    forms: tuple[BlockMemory, ...]

    def __len__(self) -> int:
        return len(self.compute_prefix_cycles) - 1


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
        costs: (P,) of every device; equal ones are one object.
        stash_entries: (P,) micro-batches in the stash of every device, as `CostTable.stash_entries`.
        receive_cycles: (P, B + 1) by device and start; the last column is unused.
        send_cycles: (P, B + 1) by device and stop; the first column is unused.
        receive_rows, send_rows: the rows of `receive_cycles` and `send_cycles` as arrays.
        min_receive_cycles: (P,) the minimum over all starts.
        min_send_cycles: (P,) the minimum over all stops.
    """

    cuts: list[int]
    costs: list[BlockCosts]
    stash_entries: list[int]
    receive_cycles: list[list[int]]
    send_cycles: list[list[int]]
    receive_rows: list[IntArray] = field(compare=False)
    send_rows: list[IntArray] = field(compare=False)
    min_receive_cycles: list[int]
    min_send_cycles: list[int]

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def part(self, first: int, stop: int) -> Blocks:
        """These blocks with the rows of the devices `[first, stop)` only, as `CostTable.part`."""
        # The host is at both ends of every part: its first device receives like the first device of all, and so on.
        receivers = [0, *range(first + 1, stop)]
        senders = [*range(first, stop - 1), -1]
        return replace(
            self,
            costs=self.costs[first:stop],
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
    boundaries: list[int] = cuts.tolist()
    receive_rows = _rows(table.receive_cycles, np.minimum(cuts, table.n_layers - 1))
    send_rows = _rows(table.send_cycles, cuts)
    known: dict[int, BlockCosts] = {}
    costs = []
    for device in range(table.n_devices):
        own = table.on(device)
        if id(own) not in known:
            known[id(own)] = _costs(own, cuts, table.cut_allowed)
        costs.append(known[id(own)])
    return Blocks(
        cuts=boundaries,
        costs=costs,
        stash_entries=list(table.stash_entries),
        receive_cycles=_lists(receive_rows),
        send_cycles=_lists(send_rows),
        receive_rows=receive_rows,
        send_rows=send_rows,
        min_receive_cycles=table.receive_cycles.min(axis=1).tolist(),
        min_send_cycles=table.send_cycles[:, 1:].min(axis=1).tolist(),
    )


def _costs(table: CostTable, cuts: IntArray, cut_allowed: BoolArray) -> BlockCosts:
    prefix, offsets = table.compute_prefix_cycles[cuts], table.start_offset_cycles[cuts]
    forms = block_forms(table.memory, cut_allowed.tobytes())
    return BlockCosts(prefix.tolist(), offsets.tolist(), prefix, offsets, forms)


@lru_cache(maxsize=64)
def block_forms(memory: RangeMemory, cut_allowed: bytes) -> tuple[BlockMemory, ...]:
    """The memory of blocks in every form; cached for tables of the same ranges with other devices or orders."""
    cuts = np.flatnonzero(np.frombuffer(cut_allowed, dtype=np.bool_))
    return tuple(_block_memory(form, cuts) for form in memory.forms)


def _block_memory(memory: RangeMemory, cuts: IntArray) -> BlockMemory:
    shared_keys = []
    for start, stop in pairwise(cuts.tolist()):
        shared_keys.append(tuple(chain.from_iterable(memory.shared.keys[start:stop])))
    return BlockMemory(
        shared_keys,
        memory.shared.n_bytes,
        _block_bytes(memory.one_in_flight, cuts),
        _block_bytes(memory.stash_entry, cuts),
    )


def _block_bytes(n_bytes: RangeBytes, cuts: IntArray) -> BlockBytes:
    """`RangeBytes` of layers reduced to blocks: sums at the cuts, and of every column each block's largest entry."""
    maxima = tuple(np.maximum.reduceat(column, cuts[:-1]).tolist() for column in n_bytes.maxima_bytes)
    return BlockBytes(n_bytes.stop_bytes[cuts].tolist(), n_bytes.start_bytes[cuts].tolist(), maxima)


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
