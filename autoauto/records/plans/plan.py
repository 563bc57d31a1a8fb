"""Pipeline plans, and answers about them: `CutAt`, `Stage`, `Plan`, `BoundedPlan`, `Replicas`, `Explanation`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, pairwise
from typing import ClassVar

from autoauto.records.display import Displayed
from autoauto.records.hardware import MachineDevice, Period
from autoauto.records.layers import LayerRange
from autoauto.records.units import samples_per_s


class CutAt(StrEnum):
    """The layers at which stages may begin."""

    LAYERS = "layers"
    """At any layer that no matrix ties to the one before it."""
    BLOCKS = "blocks"
    """Of these at the first layers of blocks only (`LayerGraph.blocks`)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A range of layers on one device, with the cost of one micro-batch.

    Attributes:
        device: index into the cluster's devices.
        forward_cycles, backward_cycles: compute, without transfers.
        receive_cycles, send_cycles: transfers over the device's two links, in cycles of the reference clock, with the
            constants for the host as in the function `transfer_cycle` of [auto-pipeline].
        memory_bytes: by category. What several stages of a device share, or use in turn, is counted in one of them:
            they add up to what the device needs.
        limit_bytes: the memory that the stage may fill, together with the others on its device.
        weight_cycles: the part of `backward_cycles` that makes the gradients of weights.
        n_replicas: devices, from `device` on, that run the stage in turn: each has all these costs, and takes every so
            many micro-batches.
        device_kind: the name of the device where the cluster has several kinds of devices, in any order; else empty.
        recomputes: whether the stage stashes its inputs and checkpoints only; `backward_cycles` then contain a second
            forward pass.
    """

    layers: LayerRange
    device: int
    forward_cycles: int
    backward_cycles: int
    receive_cycles: int
    send_cycles: int
    memory_bytes: Mapping[str, int]
    limit_bytes: int
    weight_cycles: int = 0
    n_replicas: int = 1
    device_kind: str = ""
    recomputes: bool = False

    @property
    def compute_cycles(self) -> int:
        """Forward and backward together."""
        return self.forward_cycles + self.backward_cycles

    @property
    def transfer_cycles(self) -> int:
        """Receiving and sending together."""
        return self.receive_cycles + self.send_cycles

    @property
    def devices(self) -> range:
        """The devices that run the stage."""
        return range(self.device, self.device + self.n_replicas)

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())


@dataclass(frozen=True, slots=True)
class Plan(Displayed):
    """Consecutive stages that cover all layers; a device's cycles are the sum over its stages, usually one.

    Attributes:
        part_name, cost_name: words for one of its `parts`, and for what takes `cost_cycles`.
        stages: in the order of their layers.
        host_cycles: the host's transfers that overlap with compute; no period is shorter.
        shared_cycles: those in which the connection of a machine to the host moves a micro-batch of every pipeline on
            it (`autoauto/plan/replicas.py`); no period is shorter.
        placement: for every replica of this plan, the devices of the cluster that `Stage.device` counts; empty where
            the cluster is not known.
        other_plans: the plans of the other replicas, whose devices or links differ; none is slower than this one.
    """

    part_name: ClassVar[str] = "stage"
    cost_name: ClassVar[str] = "period"
    stages: tuple[Stage, ...]
    period: Period = Period.BARRIER  # what the devices do at the same time
    host_cycles: int = 0
    shared_cycles: int = 0
    placement: tuple[tuple[MachineDevice, ...], ...] = ()
    other_plans: tuple[Plan, ...] = ()

    def __post_init__(self) -> None:
        assert self.stages
        assert all(a.layers.stop == b.layers.start for a, b in zip(self.stages, self.stages[1:], strict=False))

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The different plans of all replicas, this one first."""
        return (self, *self.other_plans)

    @property
    def replica_numbers(self) -> tuple[tuple[int, ...], ...]:
        """For each of `plans` the replicas that have it, counted in the order of their first devices."""
        firsts: list[MachineDevice] = []
        for plan in self.plans:
            firsts += [devices[0] for devices in plan.placement]
        numbers = {first: number for number, first in enumerate(sorted(firsts))}
        return tuple(tuple(numbers[devices[0]] for devices in plan.placement) for plan in self.plans)

    @property
    def n_devices(self) -> int:
        """Number of devices of all stages."""
        devices: set[int] = set()
        for stage in self.stages:
            devices.update(stage.devices)
        return len(devices)

    @property
    def parts(self) -> tuple[Stage, ...]:
        """The parts with memory of their own: the stages of all plans. The parts of a `PhasedPlan` are its phases."""
        return tuple(chain.from_iterable(plan.stages for plan in self.plans))

    @property
    def partition(self) -> tuple[int, ...]:
        """The boundaries of the stages, from 0 to the number of layers."""
        return (self.stages[0].layers.start, *(stage.layers.stop for stage in self.stages))

    @property
    def compute_cycles(self) -> int:
        """Cycles of the device that computes longest, transfers aside."""
        return max(self.device_compute_cycles.values())

    @property
    def transfer_cycles(self) -> int:
        """Cycles of the device that transfers longest."""
        return max(self.device_transfer_cycles.values())

    @property
    def device_compute_cycles(self) -> dict[int, int]:
        """Compute of every device over all its stages, a micro-batch of the pipeline."""
        return self._by_device(lambda stage: stage.compute_cycles)

    @property
    def balance(self) -> float:
        """Mean compute cycles of a device divided by the cycles of the slowest device."""
        work = self.device_compute_cycles.values()
        return sum(work) / max(len(work) * max(work), 1)

    @property
    def device_transfer_cycles(self) -> dict[int, int]:
        """Transfer of every device over all its stages."""
        receive, send = self._receive_cycles, self._send_cycles
        return {device: receive[device] + send[device] for device in send}

    @property
    def compute_bottlenecks(self) -> tuple[int, ...]:
        """The stages on devices whose compute must shrink for the cost to fall."""
        return self._bottlenecks(self.device_compute_cycles)

    @property
    def transfer_bottlenecks(self) -> tuple[int, ...]:
        """The stages on devices whose transfer must shrink for the cost to fall."""
        if self.period is not Period.DUPLEX:
            return self._bottlenecks(self.device_transfer_cycles)
        receive, send = self._receive_cycles, self._send_cycles
        return self._bottlenecks({device: max(receive[device], send[device]) for device in send})

    @property
    def peak_memory_bytes(self) -> int:
        """Bytes of the device that needs most."""
        return max(self._by_device(lambda stage: stage.total_bytes * stage.n_replicas).values())

    @property
    def excess_bytes(self) -> int:
        """Bytes by which the tightest device of all replicas exceeds its limit; negative if bytes are free."""
        used = self._by_device(lambda stage: stage.total_bytes * stage.n_replicas)
        excess = max(used[stage.device] - stage.limit_bytes for stage in self.stages)
        for other in self.other_plans:
            excess = max(excess, other.excess_bytes)
        return excess

    @property
    def cost_cycles(self) -> int:
        """The period: cycles of the reference clock between two finished micro-batches once the pipeline is full."""
        return max(self.host_bound_cycles, self._device_cycles)

    @property
    def host_bound_cycles(self) -> int:
        """The period that the host's connections allow, however fast the devices are."""
        return max(self.host_cycles, self.shared_cycles)

    @property
    def latency_cycles(self) -> int:
        """Cycles from the first transfer of a micro-batch to its last, if one enters every period.

        With a barrier a micro-batch reaches the next stage once a period, and waits in the last stage until the slowest
        device has computed. Otherwise it never waits, because micro-batches enter a period apart: its latency is the
        sum over stages and links. Devices that do one thing at a time send and receive a tensor one after the other.
        `host_cycles` is added, and so is the time by which a shared connection lengthens the period: a micro-batch
        waits for it once.
        """
        entry, exit_ = self.stages[0].receive_cycles, self.stages[-1].send_cycles
        # From the first stage's start to the last one's stop, links between them included.
        if self.period is Period.BARRIER:
            between = (len(self.stages) - 1) * self.cost_cycles + self.compute_cycles
        else:
            between = sum(stage.compute_cycles for stage in self.stages)
            for sender, receiver in pairwise(self.stages):
                if self.period is Period.SERIAL:
                    between += sender.send_cycles + receiver.receive_cycles
                else:
                    between += max(sender.send_cycles, receiver.receive_cycles)
        waiting = max(0, self.shared_cycles - max(self.host_cycles, self._device_cycles))
        return entry + between + exit_ + self.host_cycles + waiting

    @property
    def host_binds(self) -> bool:
        """True if the devices wait for the host's transfers."""
        return 0 < self.host_bound_cycles == self.cost_cycles

    @property
    def mean_cost_cycles(self) -> float:
        """Mean cycles per micro-batch of a replica: the harmonic mean of the periods of all replicas."""
        if not self.other_plans:
            return self.cost_cycles
        n_replicas = sum(len(plan.placement) for plan in self.plans)
        return n_replicas / sum(len(plan.placement) / plan.cost_cycles for plan in self.plans)

    def in_order_of(self, other: Plan) -> Plan:
        """This plan with the plans of its replicas in the order of `other`, which is on the same devices."""
        if not other.other_plans:
            return self
        by_placement = {plan.placement: replace(plan, other_plans=()) for plan in self.plans}
        first, *others = (by_placement[plan.placement] for plan in other.plans)
        return replace(first, other_plans=tuple(others))

    def samples_per_s(self, batch_size: int, clock_hz: float) -> float:
        """Throughput in the steady state, with so many samples in the micro-batches of all replicas."""
        return samples_per_s(batch_size, self.mean_cost_cycles, clock_hz)

    @property
    def _device_cycles(self) -> int:
        """The period that the devices allow."""
        return self.period.cycles(
            self.device_compute_cycles.values(), self._receive_cycles.values(), self._send_cycles.values()
        )

    @property
    def _receive_cycles(self) -> dict[int, int]:
        return self._by_device(lambda stage: stage.receive_cycles)

    @property
    def _send_cycles(self) -> dict[int, int]:
        return self._by_device(lambda stage: stage.send_cycles)

    def _bottlenecks(self, by_device: Mapping[int, int]) -> tuple[int, ...]:
        """The stages on devices where this part of their cycles, given for every device, determines the cost."""
        if self.host_binds:
            return ()
        cost = self.cost_cycles
        if self.period is Period.SERIAL:
            # The parts of a device add up: each of them binds where the device is the slowest.
            compute, transfer = self.device_compute_cycles, self.device_transfer_cycles
            binding = {d for d in by_device if by_device[d] and compute[d] + transfer[d] == cost}
        elif self.period is Period.BARRIER:
            # The largest parts add up, perhaps of different devices: each part binds where it is largest.
            longest = max(by_device.values())
            binding = {d for d, cycles in by_device.items() if cycles == longest}
        else:
            # The parts happen at once: a part binds only if it takes the whole period.
            binding = {d for d, cycles in by_device.items() if cycles >= cost}
        return tuple(i for i, stage in enumerate(self.stages) if stage.device in binding)

    def _by_device(self, cycles: Callable[[Stage], int]) -> dict[int, int]:
        """The sum over the stages of every device; replicas of a stage each take their share, rounded up."""
        sums: dict[int, int] = {}
        for stage in self.stages:
            share = -(-cycles(stage) // stage.n_replicas)
            sums[stage.device] = sums.get(stage.device, 0) + share
        return sums


def replicated(pipelines: Sequence[tuple[Plan, tuple[MachineDevice, ...]]], shared_cycles: int = 0) -> Plan:
    """The plans of pipelines side by side (`side_by_side`); equal ones are one plan.

    `pipelines` has the plan of every replica, and the devices that `Stage.device` counts.
    """
    groups: list[tuple[Plan, list[tuple[MachineDevice, ...]]]] = []
    for plan, devices in pipelines:
        for other, group in groups:
            if other is plan or other == plan:
                group.append(devices)
                break
        else:
            groups.append((plan, [devices]))
    plans = []
    for plan, placement in groups:
        plans.append(replace(plan, shared_cycles=shared_cycles, placement=tuple(placement)))
    return side_by_side(plans)


def side_by_side(plans: Iterable[Plan]) -> Plan:
    """One plan for all replicas: the slowest of the plans, with the rest in `other_plans`."""
    alone = [replace(plan, other_plans=()) for plan in plans]
    slowest, *others = sorted(alone, key=lambda plan: -plan.cost_cycles)
    return replace(slowest, other_plans=tuple(others))


@dataclass(frozen=True, slots=True)
class BoundedPlan:
    """A plan and how much better any other could be.

    Attributes:
        bound_cycles: a lower bound on the cost of every plan; equal to this plan's cost when it is proved optimal.
        step_cycles: the simulated step of training, where that is the cost; otherwise None, and the period is.
    """

    plan: Plan
    bound_cycles: float
    step_cycles: float | None = None

    @property
    def cost_cycles(self) -> float:
        """The cost that the planner minimised: the step in training, else the period."""
        return self.plan.cost_cycles if self.step_cycles is None else self.step_cycles

    @property
    def gap(self) -> float:
        """The largest share of the plan's cost that a better plan could save; 0 when it is proved optimal."""
        return (self.cost_cycles - self.bound_cycles) / max(self.cost_cycles, 1)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Pipelines of equal length side by side, each on devices of its own."""

    plans: tuple[Plan, ...]  # one a replica; they differ where devices or links do

    def __post_init__(self) -> None:
        assert self.plans

    @property
    def n_ipu(self) -> int:
        """Number of devices of one replica."""
        return len(self.plans[0].stages)

    def samples_per_s(self, batch_size: int, clock_hz: float) -> float:
        """Throughput of all replicas together in the steady state."""
        return sum(plan.samples_per_s(batch_size, clock_hz) for plan in self.plans)


@dataclass(frozen=True, slots=True)
class Move:
    """The cost of a plan with one cut moved.

    Attributes:
        layer: before which the cut would lie.
        excess_bytes: the memory that the fullest device would then lack; 0 when every stage fits.
    """

    layer: int
    cost_cycles: int
    excess_bytes: int


@dataclass(frozen=True, slots=True)
class CutMoves:
    """A cut of a plan and the nearest legal positions on either side.

    Attributes:
        layer: before which the cut lies.
        earlier, later: the cut moved there; None when it would leave the neighbouring stage empty.
    """

    layer: int
    earlier: Move | None
    later: Move | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The bottlenecks of a plan, and what it would cost with other cuts.

    Attributes:
        compute_stages, transfer_stages: those whose compute, or transfer, must shrink for the cost to fall.
        memory_stage: the stage that leaves the fewest bytes of its limit free, `spare_bytes`.
        cuts: every cut between two stages.
    """

    compute_stages: tuple[int, ...]
    transfer_stages: tuple[int, ...]
    memory_stage: int
    spare_bytes: int
    cuts: tuple[CutMoves, ...]

    @property
    def next_best(self) -> Move | None:
        """The cheapest move that fits; None when there is none."""
        best = None
        for cut in self.cuts:
            for move in (cut.earlier, cut.later):
                if move is None or move.excess_bytes:
                    continue
                if best is None or move.cost_cycles < best.cost_cycles:
                    best = move
        return best
