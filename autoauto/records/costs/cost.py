"""The costs of every range of layers: its memory, `RangeMemory`, and with its compute and transfers, `CostTable`.

The formula of the memory of one range is in this file only (devices with several ranges add them up in `plan/`):

    bytes of a range = exclusive bytes          of its layers, which add up
                     + shared bytes             of its keys, each once
                     + temporary bytes          the peak of the current micro-batch
                     + entries x stash entry    what other micro-batches in flight stash for their backward pass

All but the shared bytes are `RangeBytes`, so planners need not know what they consist of. Where a range does not fit,
the same formula of its outlined form counts, if that is less: a program with one subgraph for equal layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple, TypeVar

import numpy as np

from autoauto.records.costs.exchange import Exchange
from autoauto.records.costs.profile import OUTLINED, STASH, TEMPORARY
from autoauto.records.hardware import Period
from autoauto.records.units import Amount, BoolArray, IntArray, reference_cycles

Stashed = TypeVar("Stashed")


@dataclass(frozen=True, slots=True, eq=False)
class RangeBytes:
    """Bytes of any range `[start, stop)` of n layers: `stop_bytes[stop] - start_bytes[start]`, and maxima over it.

    Attributes:
        stop_bytes, start_bytes: (n + 1,) by the ends of a range.
        maxima_bytes: columns by layer, each (n,); of each the largest entry in the range is added.
    """

    stop_bytes: IntArray
    start_bytes: IntArray
    maxima_bytes: tuple[IntArray, ...] = ()

    def __add__(self, other: RangeBytes) -> RangeBytes:
        return RangeBytes(
            self.stop_bytes + other.stop_bytes,
            self.start_bytes + other.start_bytes,
            self.maxima_bytes + other.maxima_bytes,
        )

    def between(self, start: Amount, stop: int) -> Amount:
        """Bytes of `[start, stop)`, or of the ranges from each of several starts, ascending, to one stop.

        >>> sums, peaks = np.array([0, 3, 4, 8]), np.array([9, 2, 5])
        >>> both = RangeBytes(sums, sums, (peaks,))
        >>> both.between(1, 3), both.between(np.array([0, 1, 2]), 3).tolist()
        (10, [17, 10, 9])
        """
        if not isinstance(start, np.ndarray):
            n_bytes = int(self.stop_bytes[stop] - self.start_bytes[start])
            return n_bytes + sum(int(column[start:stop].max()) for column in self.maxima_bytes)
        by_start: IntArray = self.stop_bytes[stop] - self.start_bytes[start]
        first = start[0] if len(start) else stop
        for column in self.maxima_bytes:
            largest: IntArray = np.maximum.accumulate(column[first:stop][::-1])[::-1]  # from every start to the stop
            by_start = by_start + largest[start - first]
        return by_start


class SharedMemory(NamedTuple):
    """Data that a range stores once, however many of its layers need it, for example code or a tied weight.

    Attributes:
        keys: for every layer, indices into the other two.
        n_bytes: bytes of every key.
        categories: category of every key.
    """

    keys: tuple[tuple[int, ...], ...]
    n_bytes: tuple[int, ...]
    categories: tuple[str, ...]

    def of(self, *ranges: tuple[int, int]) -> set[int]:
        """The keys that ranges need together."""
        return {key for start, stop in ranges for keys in self.keys[start:stop] for key in keys}


@dataclass(frozen=True, slots=True, eq=False)
class RangeMemory:
    """The memory of every range of n layers on a device, for one range and for arrays of ranges.

    Attributes:
        exclusive_prefix_bytes: {category: (n + 1,)} running sums of bytes that add up.
        shared: what a range stores once.
        peak_bytes: (n,) memory that is in use only while layer i runs: its temporary memory and the tensors that are
            carried past it (`LayerProfile.carried_bytes`).
        activation_prefix_bytes: (n + 1,) running sum of activations stashed for the backward pass; zeros for inference.
        stashed_input_bytes: (n,) activations that are stashed both for a layer before i and for layer i or a later one.
            `activation_prefix_bytes` counts them before i, so a stage that starts at i adds them.
            `stashed_input_bytes[i + 1] - stashed_input_bytes[i]` is at most the activations of layer i.
        input_bytes: (n,) inputs of a stage that starts at layer i.
        checkpoint_prefix_bytes: (n + 1,) running sum of what checkpoints stash where a stage recomputes.
        recompute: whether a stage stashes its inputs and checkpoints only and computes the rest again.
        outlined: the memory of every range where equal layers are one subgraph; None where the target has none.
        activations: what a range stashes for one micro-batch where it does not recompute.
        temporary: the peak of the current micro-batch [auto-pipeline]: a layer needs its `peak_bytes` and the
            activations that the range has stashed before it. With recomputation they are those since the checkpoint
            before the layer, and what earlier checkpoints have stashed; a stage that starts between two checkpoints is
            counted as if it started at the first of them.
        stash_entry: what a range stashes for one micro-batch until its backward pass (`stash_entry_bytes`). With
            recomputation that may be more for a range with a later start, since its inputs may be larger.
    """

    exclusive_prefix_bytes: Mapping[str, IntArray]
    shared: SharedMemory
    peak_bytes: IntArray
    activation_prefix_bytes: IntArray
    stashed_input_bytes: IntArray
    input_bytes: IntArray
    checkpoint_prefix_bytes: IntArray
    recompute: bool
    outlined: RangeMemory | None = None
    activations: RangeBytes = field(init=False)
    temporary: RangeBytes = field(init=False)
    stash_entry: RangeBytes = field(init=False)

    def __post_init__(self) -> None:
        stops, starts = self.activation_prefix_bytes, self.activation_prefix_bytes.copy()
        starts[:-1] -= self.stashed_input_bytes
        nothing, activations = np.zeros_like(stops), RangeBytes(stops, starts)
        held = self.checkpoint_prefix_bytes
        # What a checkpoint at the start of a range would stash is among its inputs.
        inputs = RangeBytes(held, np.append(held[1:] - self.input_bytes, held[-1]))
        temporary = RangeBytes(nothing, starts, (self.peak_bytes + stops[:-1],))
        if self.recompute and held[-1]:
            layers = np.arange(len(self.peak_bytes))
            segments = np.maximum.accumulate(np.where(np.diff(held) > 0, layers, 0))  # the checkpoint before each layer
            peaks = self.peak_bytes + stops[:-1] - starts[segments] + held[segments]
            temporary = RangeBytes(nothing, np.append(held[segments], held[-1]), (peaks,))
        object.__setattr__(self, "activations", activations)
        object.__setattr__(self, "temporary", temporary)
        object.__setattr__(self, "stash_entry", stash_entry_bytes(activations, inputs, recompute=self.recompute))

    @property
    def one_in_flight(self) -> RangeBytes:
        """All bytes of a range but the shared ones, on a device with one micro-batch in flight."""
        return self.exclusive(*self.exclusive_prefix_bytes) + self.temporary

    @property
    def forms(self) -> tuple[RangeMemory, ...]:
        """The programs that a range may be; a stage fits when one of them does."""
        return (self,) if self.outlined is None else (self, self.outlined)

    def by_category(
        self, start: int, stop: int, n_stash_entries: int, limit_bytes: int | None = None
    ) -> dict[str, int]:
        """Bytes of a range by category, with the stash of so many other micro-batches.

        What its outlined form saves where it exceeds `limit_bytes` is a category of its own, below 0.
        """
        memory = {name: int(prefix[stop] - prefix[start]) for name, prefix in self.exclusive_prefix_bytes.items()}
        for key in self.shared.of((start, stop)):
            category = self.shared.categories[key]
            memory[category] = memory.get(category, 0) + self.shared.n_bytes[key]
        memory[TEMPORARY] = memory.get(TEMPORARY, 0) + self.temporary.between(start, stop)
        if n_stash_entries:
            memory[STASH] = memory.get(STASH, 0) + n_stash_entries * self.stash_entry.between(start, stop)
        if self.outlined is not None and limit_bytes is not None and sum(memory.values()) > limit_bytes:
            outlined_bytes = sum(self.outlined.by_category(start, stop, n_stash_entries).values())
            if outlined_bytes < sum(memory.values()):
                memory[OUTLINED] = outlined_bytes - sum(memory.values())
        return memory

    def exclusive(self, *categories: str) -> RangeBytes:
        """The exclusive bytes of a range over these categories."""
        columns = (self.exclusive_prefix_bytes[name] for name in categories if name in self.exclusive_prefix_bytes)
        prefix = sum(columns, np.zeros_like(self.activation_prefix_bytes))
        return RangeBytes(prefix, prefix)

    def together(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Bytes that several ranges need on one device, each with one micro-batch in flight.

        Shared keys are stored once for all of them and exclusive bytes add up. One range runs at a time, so of the rest
        of their temporary memory the largest counts; the activations of all are stashed for the backward pass.
        """
        shared = sum(self.shared.n_bytes[key] for key in self.shared.of(*ranges))
        exclusive = sum(
            int(sums[stop] - sums[start]) for sums in self.exclusive_prefix_bytes.values() for start, stop in ranges
        )
        stashed = [self.stash_entry.between(*ends) for ends in ranges]
        working = [self.temporary.between(*ends) - n_bytes for ends, n_bytes in zip(ranges, stashed, strict=True)]
        return shared + exclusive + sum(stashed) + max(working)


def stash_entry_bytes(activations: Stashed, inputs: Stashed, *, recompute: bool) -> Stashed:
    """What a stage stashes for one micro-batch: activations, or if it recomputes, its inputs and checkpoints."""
    return inputs if recompute else activations


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """The cost of any range `[start, stop)` of n layers on each of P devices; no array here is n x n.

    A range takes equally many compute cycles on every device, counted by the device's own clock: these are in the
    arrays `compute_...`, `backward_...`, `weight_...` and `entry_cycles`. Transfers, the host's cycles and the results
    of all methods are cycles of the reference clock, which is the first device's.

    Attributes:
        compute_prefix_cycles: (n + 1,) running sum of cycles; a range costs the difference of its ends plus
            `entry_cycles`.
        backward_prefix_cycles: (n + 1,) running sum of the backward part of these cycles; zeros for inference.
        weight_prefix_cycles: (n + 1,) running sum of the part of the backward cycles that makes the gradients of
            weights; zeros for inference.
        entry_cycles: (n,) entry overhead of a range that starts at layer i: what it costs beyond the sum of its layers
            because it reads its inputs. `entry_cycles[i + 1] - entry_cycles[i]` is at most the cycles of layer i, so
            that a range costs no less than a shorter one inside it. 0 for layer 0.
        memory: the memory of every range.
        stash_entries: (P,) micro-batches whose activations a device stashes besides those of the current one.
        memory_limit_bytes: (P,) the memory that a planned stage may fill on device d.
        receive_cycles: (P, n) cycles in which device d receives, when its stage starts at layer i. Every entry contains
            the constant for the host's inputs, see `autoauto/estimate/table.py`; so does `send_cycles` for outputs.
        send_cycles: (P, n + 1) cycles in which device d sends, when its stage stops before layer i; column 0 is unused.
        cut_allowed: (n + 1,) whether a stage may end and the next begin before layer i; both ends are always true.
        speeds: (P,) every device's clock relative to the first's.
        period: what the devices do at the same time, hence what a plan costs.
        host_cycles: the host's transfers that overlap with compute (`Cluster.host_cycles`), a lower bound of the
            period.
        exchange: where any device reaches any other, the transfers between them; `receive_cycles` and `send_cycles` are
            then those of the host's links only. None where tensors pass on from neighbour to neighbour.
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

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.entry_cycles)

    @property
    def n_devices(self) -> int:
        """How many devices, hence stages, there are."""
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
        """The same without subgraphs for equal layers."""
        return self if self.memory.outlined is None else replace(self, memory=replace(self.memory, outlined=None))

    def part(self, first: int, stop: int) -> CostTable:
        """The same layers on the devices `[first, stop)` alone.

        The first of them receives, and the last sends, like the first and last device of the table: the host is at both
        ends of every pipeline (`Cluster.first`).
        """
        assert 0 <= first < stop <= self.n_devices
        return replace(
            self,
            receive_cycles=self.receive_cycles[[0, *range(first + 1, stop)]],
            send_cycles=self.send_cycles[[*range(first, stop - 1), -1]],
            memory_limit_bytes=self.memory_limit_bytes[first:stop],
            speeds=self.speeds[first:stop],
            stash_entries=self.stash_entries[first:stop],
            exchange=self.exchange and self.exchange.part(first, stop),
        )

    def compute_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """Cycles of the reference clock in which `device` computes one micro-batch of the range, rounded up."""
        own_cycles = int(
            self.compute_prefix_cycles[stop] - self.compute_prefix_cycles[start] + self.entry_cycles[start]
        )
        return reference_cycles(own_cycles, self.speeds[device])

    def backward_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The backward part of `compute_cycles`."""
        own_cycles = int(self.backward_prefix_cycles[stop] - self.backward_prefix_cycles[start])
        return reference_cycles(own_cycles, self.speeds[device])

    def weight_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The part of `backward_cycles` that makes the gradients of weights."""
        own_cycles = int(self.weight_prefix_cycles[stop] - self.weight_prefix_cycles[start])
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
        return self.memory.by_category(start, stop, self.stash_entries[device], limit_bytes)
