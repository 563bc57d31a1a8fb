"""The cost of every range of layers, held as prefix sums: `CostTable`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from autoauto.records.profile import STASH, TEMPORARY
from autoauto.records.units import reference_cycles

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def _none() -> IntArray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """What any range `[start, stop)` of n layers costs on each of P devices; nothing here is n x n.

    Cycles are those of one reference clock, the first device's; a device at another clock computes in more or fewer.

    Attributes:
        compute_prefix_cycles: (n + 1,) running sum of cycles; a range costs the difference of its ends, and what it
            takes to enter it.
        backward_prefix_cycles: (n + 1,) running sum of the backward part of these cycles; zeros for inference.
        exclusive_prefix_bytes: {category: (n + 1,)} running sums of bytes that add up.
        shared_keys: for every layer the indices into `shared_bytes` of what it stores once per range.
        shared_bytes: bytes of every shared key.
        shared_categories: category of every shared key.
        peak_bytes: (n,) what is not always alive while layer i runs: temporary + carried.
        activation_prefix_bytes: (n + 1,) running sum of activations kept by earlier layers of the range (training).
        receive_cycles: (P, n) cycles in which device d receives, when its stage starts at layer i.
        send_cycles: (P, n + 1) cycles in which device d sends, when its stage stops before layer i; column 0 is unused.
        cut_allowed: (n + 1,) whether a stage may end and the next begin before layer i; both ends are always true.
        memory_limit_bytes: (P,) what a planned stage may fill on device d.
        speeds: (P,) every device's clock relative to the first's; empty when all run at one clock.
        overlap: whether a device transfers one micro-batch while it computes the next, so that a plan costs the larger
            of its largest compute and its largest transfer, not their sum.
        weight_prefix_cycles: (n + 1,) running sum of the part of the backward cycles that makes the gradients of
            weights; empty for inference.
        kept_input_bytes: (n,) what layers before i keep for the backward pass and layers from i on keep too, so that a
            stage which starts at i keeps it for itself; empty when there is none. It rises by no more than the running
            sum of activations.
        stash_entries: (P,) micro-batches whose activations a device keeps besides those of the one in work; empty when
            it keeps none.
        recompute_bytes: (n,) what a stage that starts at layer i receives, if that is all that it keeps of a
            micro-batch, as it computes the rest again; empty when it keeps all activations.
        entry_cycles: (n,) what a range that starts at layer i takes besides; from one layer to the next it rises by no
            more than the first of them takes, so that a range costs no less than a shorter one inside it; 0 for layer
            0; empty when it is 0 for all.
        host_cycles: what the host's transfers take while the devices compute: no period is shorter.
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
    weight_prefix_cycles: IntArray = field(default_factory=_none)
    kept_input_bytes: IntArray = field(default_factory=_none)
    stash_entries: tuple[int, ...] = ()
    recompute_bytes: IntArray = field(default_factory=_none)
    host_cycles: int = 0
    entry_cycles: IntArray = field(default_factory=_none)

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.peak_bytes)

    @property
    def n_devices(self) -> int:
        """How many devices, hence stages, there are."""
        return len(self.memory_limit_bytes)

    @property
    def start_cycles(self) -> IntArray:
        """(n + 1,) what the running sum of cycles is counted from by a range that starts at layer i; non-decreasing."""
        if not len(self.entry_cycles):
            return self.compute_prefix_cycles
        begun: IntArray = self.compute_prefix_cycles - np.append(self.entry_cycles, 0)
        return begun

    def speed(self, device: int) -> Fraction:
        """The clock of `device` relative to the first device's."""
        return self.speeds[device] if self.speeds else Fraction(1)

    def part(self, first: int, stop: int) -> CostTable:
        """The same layers on the devices `[first, stop)` alone.

        The first of them receives, and the last sends, as the table's first and last do: the host is at both ends of
        every pipeline (`Cluster.first`).
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
        """Cycles of the reference clock in which `device` computes the range once, rounded up."""
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
        """Bytes by category of the range: shared keys once, exclusive ones summed, the peak of the rest, the stash.

        The stash is what the device keeps of the other micro-batches that are in flight.
        """
        memory = {name: int(prefix[stop] - prefix[start]) for name, prefix in self.exclusive_prefix_bytes.items()}
        for key in {key for keys in self.shared_keys[start:stop] for key in keys}:
            category = self.shared_categories[key]
            memory[category] = memory.get(category, 0) + self.shared_bytes[key]
        memory[TEMPORARY] = memory.get(TEMPORARY, 0) + self.temporary_bytes(start, stop)
        entries = self.stash_entries[device] if self.stash_entries else 0
        if entries:
            memory[STASH] = memory.get(STASH, 0) + entries * self.entry_bytes(start, stop)
        return memory

    def temporary_bytes(self, start: int, stop: int) -> int:
        """The seed's peak: max over the range of temporary + carried + activations kept by earlier layers."""
        kept = self.activation_prefix_bytes[start:stop] - self.activation_prefix_bytes[start]
        return int((self.peak_bytes[start:stop] + kept).max()) + self._kept_inputs(start)

    def entry_bytes(self, start: int, stop: int) -> int:
        """What the range keeps of one micro-batch that waits for its backward pass.

        With recomputation the widest inputs of any of its layers: at least what it receives, and never less for a
        longer range, as a planner needs it.
        """
        if len(self.recompute_bytes):
            return int(self.recompute_bytes[start:stop].max())
        kept = self.activation_prefix_bytes
        return int(kept[stop] - kept[start]) + self._kept_inputs(start)

    def _kept_inputs(self, start: int) -> int:
        return int(self.kept_input_bytes[start]) if len(self.kept_input_bytes) else 0
