"""The costs of every range of layers, `CostTable`: its compute and transfers, with its memory (`RangeMemory`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from autoauto.records.costs.exchange import Exchange
from autoauto.records.costs.memory import RangeMemory
from autoauto.records.hardware import Period
from autoauto.records.units import BoolArray, IntArray, reference_cycles


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
    period: Period = Period.BARRIER
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
