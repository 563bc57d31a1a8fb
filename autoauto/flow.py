"""The rooms in order, for one model on one cluster: `Flow`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoauto.estimate import cost_table, memory_limit_bytes
from autoauto.graph import quantise
from autoauto.plan import optimal, phased
from autoauto.profile import ProfileCache, profile_model
from autoauto.profile.profiler import Progress, check_batch_size
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput, DoesNotFit, OutOfMemory
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerGraph
from autoauto.records.phased import IoMode, Phase, PhasedOptions, PhasedPlan
from autoauto.records.places import cache_dir
from autoauto.records.plan import Plan, Stage
from autoauto.records.profile import STASH, CompileOptions, ModelProfile, Target
from autoauto.records.schedule import SPLIT_ORDERS, Transfers
from autoauto.records.timeline import Timeline
from autoauto.records.trial import DEFAULT_PLANNING_PROPORTION, Knobs, Outcome, SearchSpace, Strategy
from autoauto.records.units import Precision, format_bytes, reference_cycles, samples_per_s
from autoauto.schedule import in_flight, make_schedule, plan_times, simulate


@dataclass(frozen=True, slots=True)
class Flow:
    """A model on a cluster: profile -> estimate -> plan -> measure -> schedule, one configuration at a time.

    Attributes:
        graph: the model.
        cluster: the devices there are; a configuration uses the first `n_ipu` of them.
        target: compiles ranges of layers.
        precision: format of weights and activations.
        planning_proportion: share of a device's memory that a planned stage may fill.
        overlap: whether devices transfer while they compute, or all at once when the slowest has computed.
        cache: compiled layers kept from earlier.
    """

    graph: LayerGraph
    cluster: Cluster
    target: Target
    precision: Precision = Precision.FP16
    planning_proportion: float = DEFAULT_PLANNING_PROPORTION
    overlap: bool = False
    cache: ProfileCache = field(default_factory=lambda: ProfileCache(cache_dir() / "profiles.db"))

    def __post_init__(self) -> None:
        memory_limit_bytes(self.cluster, self.planning_proportion)  # refuse an impossible proportion before any work
        if self.precision is Precision.FP8:
            _check_fp8(self.cluster)
            object.__setattr__(self, "graph", quantise(self.graph))
        tiles = {(device.n_tiles, device.tile_memory_bytes) for device in self.cluster.devices}
        if len(tiles) > 1:
            raise BadInput(
                f"the devices of a cluster may differ in clock and memory, not in tiles, since a model is profiled for "
                f"one of them; {self.cluster.name} has {sorted(tiles)}; plan each kind by itself"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every layer."""
        return tuple(layer.name for layer in self.graph.layers)

    def check(self, space: SearchSpace) -> None:
        """Refuse a space with configurations that can never be asked for.

        Raises:
            BadInput: more devices than the cluster has, or a batch size that the model cannot run at.
        """
        if max(space.n_ipu) > len(self.cluster):
            raise BadInput(
                f"n_ipu must be at most {len(self.cluster)} on {self.cluster.name}, got {max(space.n_ipu)}; "
                "try a larger --cluster"
            )
        if space.training and self.precision is Precision.FP8:
            raise BadInput("fp8 is for inference, got --mode training; try --precision fp16")
        check_batch_size(self.graph, max(space.batch_size))

    def profile(self, options: CompileOptions, progress: Progress | None = None) -> ModelProfile:
        """Every kind of layer compiled once, for the cluster's first device."""
        return profile_model(self.graph, self.target, self.cluster.devices[0], options, self.cache, progress)

    def table(self, knobs: Knobs, progress: Progress | None = None) -> CostTable:
        """The estimated cost of every range of layers."""
        profile = self.profile(self.options(knobs), progress)
        cluster = self.cluster.first(knobs.n_ipu)
        training = (
            (in_flight(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches), knobs.recompute) if knobs.training else ()
        )
        table = cost_table(profile, cluster, self.planning_proportion, self.overlap, *training)
        host_cycles = self.cluster.host_cycles(profile.layers[0].input_bytes, profile.layers[-1].output_bytes)
        return replace(table, host_cycles=host_cycles)

    def predict(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan by estimated costs.

        Raises:
            Infeasible: no plan respects the limits.
        """
        return optimal(self.table(knobs, progress))

    def phased(self, knobs: Knobs, options: PhasedOptions) -> PhasedPlan:
        """The fastest phases of one device by estimated costs; of the knobs the pipeline's own are not used.

        Raises:
            BadInput: the cluster cannot run phases, or not so many replicas.
            Infeasible: some layers fit no phase.
        """
        return phased(self._phase_table(knobs, options), self.profile(self.options(knobs)), self.cluster, options)

    def measure_phased(self, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
        """The phases of `plan` compiled whole; what they move is the plan's own.

        Raises:
            OutOfMemory: a phase needs more than the device has; the tightest is told.
        """
        table = self._phase_table(knobs, options)
        measured = plan.with_phases(tuple(self._measure_phase(knobs, phase, table) for phase in plan.phases))
        _check_memory(measured.phases)
        return measured

    def measure(self, knobs: Knobs, plan: Plan) -> Plan:
        """The stages of `plan` compiled whole; transfers are the plan's own, and so is what training stashes.

        Raises:
            OutOfMemory: a stage needs more than its device has; the tightest is told.
        """
        measured = replace(plan, stages=tuple(self._measure(knobs, stage) for stage in plan.stages))
        _check_memory(measured.stages)
        return measured

    def evaluate(self, knobs: Knobs) -> Outcome:
        """Plan one configuration and measure it; not fitting is an outcome."""
        if knobs.strategy is Strategy.PHASED:
            return self._evaluate_phased(knobs)
        estimate: Plan | None = None
        memory_bytes = int(self.cluster.devices[0].memory_bytes)
        try:
            estimate = self.predict(knobs)
            measured = self.measure(knobs, estimate)
        except DoesNotFit as failure:
            return Outcome(knobs, estimate, None, 0.0, 0.0, failure.excess_bytes, memory_bytes, str(failure))
        timeline = self.timeline(knobs, measured)
        speeds = (self.samples_per_s(knobs, measured, timeline), self.samples_per_s(knobs, estimate))
        return Outcome(knobs, estimate, measured, *speeds, 0, memory_bytes, "", timeline)

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of `plan` in the order of the schedule: a step of training, or enough inference to be steady."""
        n_micro_batches = knobs.n_micro_batches if knobs.training else 2 * knobs.n_ipu + 2
        times = plan_times(plan, knobs.training, split_backward=knobs.schedule in SPLIT_ORDERS)
        schedule = make_schedule(knobs.schedule, knobs.n_ipu, n_micro_batches, times=times)
        return simulate(schedule, times, Transfers.OVERLAP if plan.overlap else Transfers.BARRIER)

    def samples_per_s(self, knobs: Knobs, plan: Plan, timeline: Timeline | None = None) -> float:
        """Throughput of `plan`: of whole steps of training, without the update of the weights; steady for inference.

        `timeline` is that of the plan where it is known: an order of a long step may have taken a search.
        """
        clock_hz = self.cluster.devices[0].clock_hz
        if knobs.training:
            timeline = timeline or self.timeline(knobs, plan)
            cycles = max(timeline.makespan_cycles, knobs.n_micro_batches * plan.host_cycles)
            return samples_per_s(knobs.n_samples, cycles, clock_hz)
        return plan.samples_per_s(knobs.batch_size, clock_hz)

    def fingerprint(self) -> Mapping[str, str]:
        """What a study's trials depend on besides the knobs."""
        return {
            "model": self.graph.name,
            "model_content": self.graph.content,
            "cluster": self.cluster.name,
            "cluster_content": hashlib.sha256(repr(self.cluster).encode()).hexdigest()[:16],
            "target": self.target.version,
            "precision": str(self.precision),
            "planning_proportion": str(self.planning_proportion),
            "overlap": str(self.overlap),
        }

    def options(self, knobs: Knobs) -> CompileOptions:
        """What of the knobs the target's compiler sees."""
        return CompileOptions(knobs.batch_size, knobs.memory_proportion, self.precision, knobs.training)

    def _evaluate_phased(self, knobs: Knobs) -> Outcome:
        """Phases in the io mode that is fastest by the estimate."""
        estimate: PhasedPlan | None = None
        memory_bytes = int(self.cluster.devices[0].memory_bytes)
        try:
            options, estimate = self._fastest_phases(knobs)
            measured = self.measure_phased(knobs, options, estimate)
        except DoesNotFit as failure:
            return Outcome(knobs, estimate, None, 0.0, 0.0, failure.excess_bytes, memory_bytes, str(failure))
        clock_hz = self.cluster.devices[0].clock_hz
        speed, estimated_speed = (plan.samples_per_s(knobs.batch_size, clock_hz) for plan in (measured, estimate))
        return Outcome(knobs, estimate, measured, speed, estimated_speed, 0, memory_bytes, "")

    def _fastest_phases(self, knobs: Knobs) -> tuple[PhasedOptions, PhasedPlan]:
        found, failures = [], []
        for io_mode in IoMode:
            options = PhasedOptions(knobs.n_micro_batches, io_mode, n_replicas=knobs.n_ipu, recompute=knobs.recompute)
            try:
                found.append((options, self.phased(knobs, options)))
            except DoesNotFit as failure:
                failures.append(failure)
        if not found:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        return min(found, key=lambda pair: pair[1].cost_cycles)

    def _phase_table(self, knobs: Knobs, options: PhasedOptions) -> CostTable:
        """The costs of one device that has one micro-batch in work."""
        training = ((1,), options.recompute) if knobs.training else ()
        profile = self.profile(self.options(knobs))
        return cost_table(profile, self.cluster.first(1), self.planning_proportion, False, *training)

    def _measure_phase(self, knobs: Knobs, phase: Phase, table: CostTable) -> Phase:
        """Compute relates to its estimate as the whole range compiled does to the sum of its layers."""
        device = self.cluster.devices[0]
        compiled = self.target.compile(self.graph, phase.layers, device, self.options(knobs))
        again_cycles = compiled.forward_cycles if knobs.recompute else 0
        whole = compiled.forward_cycles + compiled.backward_cycles + again_cycles
        estimated = table.compute_cycles(*phase.layers)
        held = table.memory_bytes(*phase.layers)
        moved = {name: n_bytes for name, n_bytes in phase.memory_bytes.items() if name not in held}
        return replace(
            phase,
            compute_cycles=-(-phase.compute_cycles * whole // max(estimated, 1)),
            memory_bytes={**compiled.memory_bytes, **moved},
            limit_bytes=int(device.memory_bytes),
        )

    def _measure(self, knobs: Knobs, stage: Stage) -> Stage:
        device = self.cluster.devices[stage.device]
        speed = self.cluster.speeds[stage.device]
        compiled = self.target.compile(self.graph, stage.layers, device, self.options(knobs))
        again_cycles = compiled.forward_cycles if knobs.recompute else 0
        return replace(
            stage,
            forward_cycles=reference_cycles(compiled.forward_cycles, speed),
            backward_cycles=reference_cycles(compiled.backward_cycles + again_cycles, speed),
            weight_cycles=reference_cycles(compiled.weight_cycles, speed),
            memory_bytes={**compiled.memory_bytes, **self._stash(knobs, stage, compiled.activation_bytes)},
            limit_bytes=int(device.memory_bytes),
        )

    def _stash(self, knobs: Knobs, stage: Stage, activation_bytes: int) -> dict[str, int]:
        """What a stage holds of micro-batches in flight besides the one in work: their activations, or its inputs."""
        if not knobs.training:
            return {}
        n_entries = in_flight(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches)[stage.device] - 1
        if knobs.recompute:
            return {STASH: n_entries * self.profile(self.options(knobs)).layers[stage.layers.start].input_bytes}
        return {STASH: n_entries * activation_bytes}


def _check_fp8(cluster: Cluster) -> None:
    without = sorted({device.name for device in cluster.devices if not device.fp8})
    if without:
        raise BadInput(
            f"fp8 needs devices that multiply in it, {cluster.name} has {', '.join(without)}; "
            "try --cluster c600 or --precision fp16"
        )


def _check_memory(parts: Sequence[Stage | Phase]) -> None:
    """Refuse stages or phases of which one exceeds its device.

    Raises:
        OutOfMemory: one does; the tightest is told.
    """
    tightest = max(parts, key=lambda part: part.total_bytes - part.limit_bytes)
    excess = tightest.total_bytes - tightest.limit_bytes
    if excess > 0:
        device = f" {tightest.device}" if isinstance(tightest, Stage) else ""
        raise OutOfMemory(
            f"layers {tightest.layers} need {format_bytes(tightest.total_bytes)} on device{device}, which has "
            f"{format_bytes(tightest.limit_bytes)}: {format_bytes(excess)} too much; try a smaller batch size or more "
            "devices",
            excess,
            tightest.layers,
            tightest.memory_bytes,
        )
