"""The costs of every range of layers, `CostTable`: its compute and transfers, with its memory (`RangeMemory`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.memory import RangeMemory
from autoauto.records.hardware import Link, Period
from autoauto.records.units import BoolArray, IntArray, reference_cycles


class TensorUse(NamedTuple):
    """A tensor between layers, and the layers that read it, ascending, one or more.

    In a backward pass they come before the producer.
    """

    producer: int
    consumers: tuple[int, ...]
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """Bytes that stages receive and send if every tensor goes directly from its producer to its readers.

    A stage receives a tensor once, however many of its layers read it, and sends it once, however many stages do. A
    tensor that skips a stage does not pass through it, as it does from neighbour to neighbour.
    """

    tensors: tuple[TensorUse, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]
    clock_hz: float

    def part(self, first: int, stop: int) -> Exchange:
        """These transfers on the devices `[first, stop)` only."""
        return replace(self, receive_links=self.receive_links[first:stop], send_links=self.send_links[first:stop])

    def receive_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles of the reference clock in which a device receives what the stage `[start, stop)` reads."""
        inside = range(start, stop)
        n_bytes = 0
        for use in self.tensors:
            if use.producer not in inside and any(layer in inside for layer in use.consumers):
                n_bytes += use.n_bytes
        return self.receive_links[device].load_cycles(n_bytes, self.clock_hz)

    def send_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles of the reference clock in which a device sends what the stage `[start, stop)` makes for others."""
        inside = range(start, stop)
        n_bytes = 0
        for use in self.tensors:
            if use.producer in inside and any(layer not in inside for layer in use.consumers):
                n_bytes += use.n_bytes
        return self.send_links[device].load_cycles(n_bytes, self.clock_hz)

    def range_bytes(self, cuts: Sequence[int]) -> tuple[IntArray, IntArray]:
        """Bytes that every range between two of B + 1 cuts receives and sends: two arrays (B + 1, B + 1), start x stop.

        The ranges for which a tensor counts are a few rectangles of starts and stops. For one that layer 1 makes and
        layers 3 and 4 read:

            start  0 1 2 3 4                received by the ranges that hold a reader          r
            stop 2 . .                      less those that hold a reader and the producer     -
                 3 . . .                    sent by those that hold the producer, less those
                 4 - - r r                  that hold all of it
                 5 - - r r r

        Each adds its bytes at a corner and subtracts them beyond its ends, and running sums over both ends add up all.
        """
        n_blocks = len(cuts) - 1
        received, sent = np.zeros((2, n_blocks + 2, n_blocks + 2), dtype=np.int64)
        for producer, consumers, n_bytes in self._by_block(cuts):
            # The nearest readers on both sides of the producer; ranges between them hold the producer only.
            before = max((consumer for consumer in consumers if consumer <= producer), default=-1)
            after = min((consumer for consumer in consumers if consumer >= producer), default=n_blocks)
            # A range counts for its first reader, so that a tensor counts once.
            for previous, consumer in zip((-1, *consumers), consumers, strict=False):
                _add(received, (previous + 1, consumer), (consumer + 1, n_blocks), n_bytes)
            _add(received, (0, producer), (producer + 1, n_blocks), -n_bytes)  # holds the producer,
            if producer not in consumers:
                _add(received, (before + 1, producer), (producer + 1, after), n_bytes)  # but no reader
            _add(sent, (0, producer), (producer + 1, n_blocks), n_bytes)
            _add(sent, (0, min(producer, consumers[0])), (max(producer, consumers[-1]) + 1, n_blocks), -n_bytes)
        whole = slice(n_blocks + 1)
        return received.cumsum(0).cumsum(1)[whole, whole], sent.cumsum(0).cumsum(1)[whole, whole]

    def _by_block(self, cuts: Sequence[int]) -> Iterator[TensorUse]:
        """The tensors with the indices of blocks instead of layers; not those that never leave a block."""
        block_of = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts)).tolist()
        for producer, consumers, n_bytes in self.tensors:
            blocks = tuple(sorted({block_of[layer] for layer in consumers}))
            if n_bytes and blocks != (block_of[producer],):
                yield TensorUse(block_of[producer], blocks, n_bytes)


def _add(sums: IntArray, starts: tuple[int, int], stops: tuple[int, int], n_bytes: int) -> None:
    """Add bytes to all ranges with a start and a stop in these closed intervals; one of them may be empty."""
    (first, last), (lowest, highest) = starts, stops
    if first <= last and lowest <= highest:
        sums[first, lowest] += n_bytes
        sums[last + 1, lowest] -= n_bytes
        sums[first, highest + 1] -= n_bytes
        sums[last + 1, highest + 1] += n_bytes


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The cost of any range `[start, stop)` of n layers on each of P devices; no array here is n x n.

    A range takes equally many compute cycles on every device, counted by the device's own clock: these are in the
    arrays `compute_...`, `backward_...`, `weight_...` and `entry_cycles`. Where the sessions of devices differ, cycles
    and memory do too: these attributes are then those of the first device, and `on` gives those of any. Transfers, the
    host's cycles and the results of all methods are cycles of the reference clock, which is the first device's.

    Attributes:
        compute_prefix_cycles: (n + 1,) running sum of cycles; a range costs the difference of its ends plus
            `entry_cycles`.
        backward_prefix_cycles: (n + 1,) running sum of the backward part of these cycles; zeros for inference.
        weight_prefix_cycles: (n + 1,) running sum of the part of the backward cycles that makes the gradients of
            weights; zeros for inference.
        entry_cycles: (n,) entry overhead of a range that starts at layer i: what it costs beyond the sum of its layers
            because it reads its inputs. `entry_cycles[i + 1] - entry_cycles[i]` is at most the cycles of layer i, so
            that a range costs no less than a shorter one inside it. 0 for layer 0.
        stash_entries: (P,) micro-batches whose activations a device stashes besides those of the current one.
        memory_limit_bytes: (P,) the memory that a planned stage may fill on device d.
        receive_cycles: (P, n) cycles in which device d receives, when its stage starts at layer i. Every entry contains
            the constant for the host's inputs, see `autoauto/estimate/table.py`; so does `send_cycles` for outputs.
        send_cycles: (P, n + 1) cycles in which device d sends, when its stage stops before layer i; column 0 is unused.
        cut_allowed: (n + 1,) whether a stage may end and the next begin before layer i; both ends are always true.
        speeds: (P,) every device's clock relative to the first's.
        host_cycles: the host's transfers that overlap with compute (`Cluster.host_cycles`), a lower bound of the
            period.
        exchange: where any device reaches any other, the transfers between them; `receive_cycles` and `send_cycles` are
            then those of the host's links only. None where tensors pass on from neighbour to neighbour.
        of_devices: (P,) by device a table whose cycles and memory of ranges count, and nothing else; equal ones are one
            object. Empty where all devices have those of this table.
    """

    compute_prefix_cycles: IntArray
    backward_prefix_cycles: IntArray
    weight_prefix_cycles: IntArray
    entry_cycles: IntArray
    memory: RangeMemory
    stash_entries: tuple[int, ...]
    memory_limit_bytes: IntArray
    receive_cycles: IntArray
    send_cycles: IntArray
    cut_allowed: BoolArray
    speeds: tuple[Fraction, ...]
    period: Period = Period.BARRIER  # what the devices do at the same time, hence what a plan costs
    host_cycles: int = 0
    exchange: Exchange | None = None
    of_devices: tuple[CostTable, ...] = ()

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.entry_cycles)

    @property
    def n_devices(self) -> int:
        """Number of devices, hence of stages."""
        return len(self.memory_limit_bytes)

    @property
    def start_offset_cycles(self) -> IntArray:
        """(n + 1,) offsets: `[i, stop)` costs `compute_prefix_cycles[stop] - start_offset_cycles[i]`; non-decreasing.

        This cost contains the entry overhead.
        """
        offsets: IntArray = self.compute_prefix_cycles - np.append(self.entry_cycles, 0)
        return offsets

    @property
    def plain(self) -> CostTable:
        """This table without subgraphs that equal layers share."""
        if self.memory.outlined is None:
            return self
        return self.with_memory(lambda memory: replace(memory, outlined=None))

    def on(self, device: int) -> CostTable:
        """A table with the cycles and the memory that ranges have on a device."""
        return self.of_devices[device] if self.of_devices else self

    def changed(self, change: Callable[[CostTable], CostTable]) -> CostTable:
        """The table with other cycles or memory of ranges, on every device."""
        # Equal tables are one object, and stay one: planners prepare each object once.
        tables = {id(table): change(table) for table in self.of_devices}
        return replace(change(self), of_devices=tuple(tables[id(table)] for table in self.of_devices))

    def with_memory(self, change: Callable[[RangeMemory], RangeMemory]) -> CostTable:
        """The table with another memory of ranges, on every device."""
        return self.changed(lambda table: replace(table, memory=change(table.memory)))

    def part(self, first: int, stop: int) -> CostTable:
        """This table with the devices `[first, stop)` only.

        The first of them receives, and the last sends, like the first and last device of the table: the host is at both
        ends of every pipeline (`Cluster.first`).
        """
        assert 0 <= first < stop <= self.n_devices
        ranges = self.on(first)
        return replace(
            self,
            compute_prefix_cycles=ranges.compute_prefix_cycles,
            backward_prefix_cycles=ranges.backward_prefix_cycles,
            weight_prefix_cycles=ranges.weight_prefix_cycles,
            entry_cycles=ranges.entry_cycles,
            memory=ranges.memory,
            of_devices=self.of_devices[first:stop],
            receive_cycles=self.receive_cycles[[0, *range(first + 1, stop)]],
            send_cycles=self.send_cycles[[*range(first, stop - 1), -1]],
            memory_limit_bytes=self.memory_limit_bytes[first:stop],
            speeds=self.speeds[first:stop],
            stash_entries=self.stash_entries[first:stop],
            exchange=self.exchange and self.exchange.part(first, stop),
        )

    def compute_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """Cycles of the reference clock in which `device` computes one micro-batch of the range, rounded up."""
        own, entry = self.on(device).compute_prefix_cycles, self.on(device).entry_cycles
        own_cycles = int(own[stop] - own[start] + entry[start])
        return reference_cycles(own_cycles, self.speeds[device])

    def backward_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The backward part of `compute_cycles`."""
        own = self.on(device).backward_prefix_cycles
        own_cycles = int(own[stop] - own[start])
        return reference_cycles(own_cycles, self.speeds[device])

    def weight_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The part of `backward_cycles` that makes the gradients of weights."""
        own = self.on(device).weight_prefix_cycles
        own_cycles = int(own[stop] - own[start])
        return reference_cycles(own_cycles, self.speeds[device])

    def transfer_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles in which `device` receives and sends when it runs the range."""
        return self.stage_receive_cycles(device, start, stop) + self.stage_send_cycles(device, start, stop)

    def stage_receive_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles in which `device` receives when it runs the range."""
        more = 0 if self.exchange is None else self.exchange.receive_cycles(device, start, stop)
        return int(self.receive_cycles[device, start]) + more

    def stage_send_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles in which `device` sends when it runs the range."""
        more = 0 if self.exchange is None else self.exchange.send_cycles(device, start, stop)
        return int(self.send_cycles[device, stop]) + more

    def memory_bytes(self, start: int, stop: int, device: int = 0) -> dict[str, int]:
        """Bytes of the range by category, with the stash of the other micro-batches in flight on `device`."""
        limit_bytes = int(self.memory_limit_bytes[device])
        return self.on(device).memory.by_category(start, stop, self.stash_entries[device], limit_bytes)
