"""The cost of every range of layers, stored as running sums: `CostTable`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from autoauto.records.arrays import BoolArray, IntArray
from autoauto.records.profile import STASH, TEMPORARY
from autoauto.records.units import reference_cycles


def _empty() -> IntArray:
    return np.zeros(0, dtype=np.int64)


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
        exclusive_prefix_bytes: {category: (n + 1,)} running sums of bytes that add up.
        shared_keys: for every layer, indices into `shared_bytes`. A shared key is a piece of data, for example code or
            a tied weight, that a range stores once however many of its layers use it.
        shared_bytes: bytes of every shared key.
        shared_categories: category of every shared key.
        peak_bytes: (n,) memory that is in use only while layer i runs: its temporary memory and the tensors that are
            carried past it (`LayerProfile.carried_bytes`).
        activation_prefix_bytes: (n + 1,) running sum of activations stashed for the backward pass (training).
        receive_cycles: (P, n) cycles in which device d receives, when its stage starts at layer i. Every entry contains
            the constant for the host's inputs, see `autoauto/estimate/transfer.py`; so does `send_cycles` for outputs.
        send_cycles: (P, n + 1) cycles in which device d sends, when its stage stops before layer i; column 0 is unused.
        cut_allowed: (n + 1,) whether a stage may end and the next begin before layer i; both ends are always true.
        memory_limit_bytes: (P,) the memory that a planned stage may fill on device d.
        speeds: (P,) every device's clock relative to the first's; empty when all run at one clock.
        overlap: whether a device transfers one micro-batch while it computes the next, so that a plan costs the larger
            of its largest compute and its largest transfer, not their sum.
        weight_prefix_cycles: (n + 1,) running sum of the part of the backward cycles that makes the gradients of
            weights; empty for inference.
        stashed_input_bytes: (n,) activations that are stashed both for a layer before i and for layer i or a later one.
            `activation_prefix_bytes` counts them before i, so a stage that starts at i adds them. Empty when there are
            none. `stashed_input_bytes[i + 1] - stashed_input_bytes[i]` is at most the activations of layer i.
        stash_entries: (P,) micro-batches whose activations a device stashes besides those of the current one; empty
            when it stashes none.
        recompute_bytes: (n,) the inputs of a stage that starts at layer i, when it stashes only these and computes the
            rest again; empty when it stashes all activations.
        entry_cycles: (n,) entry overhead of a range that starts at layer i: what it costs beyond the sum of its layers
            because it reads its inputs. `entry_cycles[i + 1] - entry_cycles[i]` is at most the cycles of layer i, so
            that a range costs no less than a shorter one inside it. 0 for layer 0; empty when it is 0 for all.
        host_cycles: the host's transfers that overlap with compute (`Cluster.host_cycles`), a lower bound of the
            period; 0 when the host's links do not overlap.
    """

    compute_prefix_cycles: IntArray
    backward_prefix_cycles: IntArray
    exclusive_prefix_bytes: Mapping[str, IntArray]
    shared_keys: tuple[tuple[int, ...], ...]
    shared_bytes: tuple[int, ...]
    shared_categories: tuple[str, ...]
    peak_bytes: IntArray
    activation_prefix_bytes: IntArray
    receive_cycles: IntArray
    send_cycles: IntArray
    cut_allowed: BoolArray
    memory_limit_bytes: IntArray
    speeds: tuple[Fraction, ...] = ()
    overlap: bool = False
    weight_prefix_cycles: IntArray = field(default_factory=_empty)
    stashed_input_bytes: IntArray = field(default_factory=_empty)
    stash_entries: tuple[int, ...] = ()
    recompute_bytes: IntArray = field(default_factory=_empty)
    host_cycles: int = 0
    entry_cycles: IntArray = field(default_factory=_empty)

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.peak_bytes)

    @property
    def n_devices(self) -> int:
        """How many devices, hence stages, there are."""
        return len(self.memory_limit_bytes)

    @property
    def start_offset_cycles(self) -> IntArray:
        """(n + 1,) offsets: `[i, stop)` costs `compute_prefix_cycles[stop] - start_offset_cycles[i]`; non-decreasing.

        This cost contains the entry overhead.
        """
        if not len(self.entry_cycles):
            return self.compute_prefix_cycles
        offsets: IntArray = self.compute_prefix_cycles - np.append(self.entry_cycles, 0)
        return offsets

    def speed(self, device: int) -> Fraction:
        """The clock of `device` relative to the first device's."""
        return self.speeds[device] if self.speeds else Fraction(1)

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
        )

    def compute_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """Cycles of the reference clock in which `device` computes one micro-batch of the range, rounded up."""
        entry_cycles = int(self.entry_cycles[start]) if len(self.entry_cycles) else 0
        own_cycles = int(self.compute_prefix_cycles[stop] - self.compute_prefix_cycles[start]) + entry_cycles
        return reference_cycles(own_cycles, self.speed(device))

    def backward_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The backward part of `compute_cycles`."""
        own_cycles = int(self.backward_prefix_cycles[stop] - self.backward_prefix_cycles[start])
        return reference_cycles(own_cycles, self.speed(device))

    def weight_cycles(self, start: int, stop: int, device: int = 0) -> int:
        """The part of `backward_cycles` that makes the gradients of weights."""
        if not len(self.weight_prefix_cycles):
            return 0
        own_cycles = int(self.weight_prefix_cycles[stop] - self.weight_prefix_cycles[start])
        return reference_cycles(own_cycles, self.speed(device))

    def transfer_cycles(self, device: int, start: int, stop: int) -> int:
        """Cycles in which `device` receives and sends when it runs the range."""
        return int(self.receive_cycles[device, start] + self.send_cycles[device, stop])

    def memory_bytes(self, start: int, stop: int, device: int = 0) -> dict[str, int]:
        """Bytes of the range by category.

        Shared keys count once, exclusive bytes add up, temporary memory is the peak of the current micro-batch, and
        the stash has the activations of the other micro-batches in flight.
        """
        memory = {name: int(prefix[stop] - prefix[start]) for name, prefix in self.exclusive_prefix_bytes.items()}
        for key in {key for keys in self.shared_keys[start:stop] for key in keys}:
            category = self.shared_categories[key]
            memory[category] = memory.get(category, 0) + self.shared_bytes[key]
        memory[TEMPORARY] = memory.get(TEMPORARY, 0) + self.temporary_bytes(start, stop)
        entries = self.stash_entries[device] if self.stash_entries else 0
        if entries:
            memory[STASH] = memory.get(STASH, 0) + entries * self.stash_entry_bytes(start, stop)
        return memory

    def temporary_bytes(self, start: int, stop: int) -> int:
        """The peak over the layers of a range, for the current micro-batch [auto-pipeline].

        A layer needs its `peak_bytes` and the activations that the range has stashed before it.
        """
        stashed = self.activation_prefix_bytes[start:stop] - self.activation_prefix_bytes[start]
        return int((self.peak_bytes[start:stop] + stashed).max()) + self._stashed_inputs(start)

    def stash_entry_bytes(self, start: int, stop: int) -> int:
        """Bytes that a range stashes for one micro-batch until its backward pass.

        With recomputation a stage stashes its inputs only. The largest inputs of any layer of the range are counted:
        an upper bound that never falls when the range grows, as the planner requires.
        """
        if len(self.recompute_bytes):
            return int(self.recompute_bytes[start:stop].max())
        prefix = self.activation_prefix_bytes
        return int(prefix[stop] - prefix[start]) + self._stashed_inputs(start)

    def _stashed_inputs(self, start: int) -> int:
        return int(self.stashed_input_bytes[start]) if len(self.stashed_input_bytes) else 0
