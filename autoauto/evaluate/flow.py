"""One model on one cluster, from profile to measurement: `Flow`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from math import inf

import numpy as np

from autoauto.estimate.table import calibrated
from autoauto.evaluate.best_case import BestCase, best_case
from autoauto.evaluate.kinds import best_on_kinds, on_kinds
from autoauto.evaluate.steps import best_by_simulated_step, no_simulated_step_below, pipeline_step_cycles
from autoauto.evaluate.whole_model import WholeModelEstimates
from autoauto.plan.phased.optimal import fits_at_once, phased
from autoauto.plan.pipeline.device_memory import StageBytes, device_memory
from autoauto.plan.pipeline.evaluate import check_memory, evaluate
from autoauto.plan.pipeline.optimal import anytime
from autoauto.plan.pipeline.ranges.plans import best_with_stage_replicas, evaluate_stage_replicas
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.replicas import all_reduce_cycles, placements
from autoauto.profile.profiler import Progress, check_batch_size
from autoauto.records.correction import Correction, WholeRange
from autoauto.records.cost import CostTable, stash_entry_bytes
from autoauto.records.errors import BadInput, DoesNotFit, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.knobs.constraint import Constraint
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.space import SearchSpace
from autoauto.records.knobs.table import Recompute, Strategy
from autoauto.records.phased import IoMode, Phase, PhasedOptions, PhasedPlan
from autoauto.records.plan import BoundedPlan, CutAt, Plan, Stage, replicated, side_by_side
from autoauto.records.profile import CompiledRange, gradient_bytes
from autoauto.records.target import Origin
from autoauto.records.timeline import Run, Runner, Timeline
from autoauto.records.trials.trial import (
    Trial,
    latency_s,
    measured_trial,
    run_latency_s,
    unfit_trial,
)
from autoauto.records.units import Precision, format_bytes, reference_cycles, samples_per_s
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import timeline_of
from autoauto.schedule.training_step import with_step_end

MAX_MOVES = 3  # plans with moved cuts that are measured after the first, on real devices
WORTH_MOVING = 0.015  # predicted gain, as a share of the period, from which on such a plan is measured
_MAX_PLANS = 512  # in memory: those of one pipeline, for all numbers of replicas
_MAX_PHASE_TABLES = 64  # in memory: those of all batch sizes and memory proportions that a search forecasts
Devices = int | tuple[int, ...]
"""Those of a pipeline: the first of neighbours in a line, or how many of every kind it may have."""


@dataclass(frozen=True, slots=True)
class Flow(WholeModelEstimates):
    """profile -> estimate -> plan -> schedule -> measure, one configuration at a time.

    `expect` ends with the schedule of the estimated plan; `evaluate` also measures. The other methods are their steps.

    Attributes:
        constraints: conditions on the results of a configuration, expected or measured.
    """

    constraints: tuple[Constraint, ...] = ()
    # By the configuration of one pipeline and its devices: the corrections that it was planned with, and the plan, or
    # why there is none.
    _plans: dict[tuple[Knobs, Devices], tuple[tuple[Correction, ...], BoundedPlan | Infeasible]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # What no plan of a configuration of training exceeds, in samples/s, where that was asked for.
    _limits: dict[Knobs, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _phase_tables: dict[Knobs, CostTable] = field(default_factory=dict, init=False, repr=False, compare=False)
    # On real devices the plan that `evaluate` measured, by configuration: its cuts depend on what was measured before.
    _measured_plans: dict[Knobs, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, space: SearchSpace) -> None:
        """Refuse a space with configurations that cannot be evaluated.

        Raises:
            BadInput: more devices than the cluster has, or a batch size that the model cannot run at.
        """
        if max(space.cores_per_device) > 1 and not self.traits.groups_cores:
            raise BadInput(
                f"--target {self.cluster.target} has no --cores-per-device; leave it out, or try --target host"
            )
        if {*space.runtime, *space.precision} != {None} and not self.traits.runtimes:
            raise BadInput(f"--target {self.cluster.target} has no --runtime; leave it out, or try --target host")
        if any(space.stage_replicas) and not self.traits.stage_replicas:
            instead = "one machine" if self.traits.groups_cores else "--target host"
            raise BadInput(f"--target {self.cluster.target} has no --stage-replicas; leave it out, or try {instead}")
        if any(space.stage_replicas) and self.period_of_devices is Period.BARRIER:
            raise BadInput(
                "--stage-replicas needs devices that do not wait for all others, got --period barrier; try serial"
            )
        n_ipu, n_replicas, n_cores = max(space.n_ipu), min(space.replicas), min(space.cores_per_device)
        n_devices = n_ipu * n_replicas * n_cores
        if max(space.cores_per_device) > self.cluster.machine_size < len(self.cluster):
            raise BadInput(
                f"the cores of a device are those of one machine, {self.cluster.machine_size} at most on "
                f"{self.cluster.name}, got --cores-per-device {max(space.cores_per_device)}; try fewer"
            )
        if n_devices > len(self.cluster):
            factors = ((n_replicas, "replicas"), (n_cores, "cores_per_device"))
            times = "".join(f" times {number} {name}" for number, name in factors if number > 1)
            raise BadInput(
                f"n_ipu{times} must be at most {len(self.cluster)} on {self.cluster.name}, got {n_devices}; try fewer, "
                "or another --cluster"
            )
        if space.training and not self.traits.trains:
            raise BadInput(f"the {self.cluster.target} target runs inference, got --mode training; try --target ipu")
        if space.training and self.precision is Precision.FP8:
            raise BadInput("fp8 is for inference, got --mode training; try --precision fp16")
        for wanted, what in (
            (space.training, "training"),
            (Strategy.PHASED in space.strategy, "a plan of phases"),
            (any(space.stage_replicas), "--stage-replicas"),
        ):
            if wanted:
                self.check_one_kind(what)
        if Strategy.PHASED in space.strategy:
            self.check_phases_may_begin_anywhere()
        check_batch_size(self.graph, max(space.batch_size))

    def predict(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """The best plan by estimated costs, and those of replicas whose devices or links differ.

        Raises:
            Infeasible: no plan respects the limits, or the cluster has too few devices.
        """
        self._check_weights(knobs)
        if self.holds_whole(knobs):
            return self._everywhere(knobs, self.whole_plan(knobs))
        return self._on_devices(knobs, lambda devices: self.best_plan(knobs, devices, progress).plan)

    def best_plan(self, knobs: Knobs, devices: Devices | None = None, progress: Progress | None = None) -> BoundedPlan:
        """The cheapest plan of one pipeline by estimated costs, nearly always an exact one; made once.

        Args:
            knobs: the configuration, with any number of replicas.
            devices: of the pipeline; by default the first of a line, or any of every kind.
            progress: of profiling.

        Raises:
            BadInput: the devices are of several kinds, and the plan is for training.
            Infeasible: no plan respects the limits.
        """
        if devices is None:
            devices = tuple(kind.n_devices for kind in self.cluster.kinds) or 0
        same = self.with_equal_costs(knobs if knobs.shard_optimizer else replace(knobs, replicas=1), progress)
        key, corrections = (same, devices), self.corrections(knobs, progress)
        known = self._plans.get(key)
        if known is None or known[0] != corrections:
            known = self._plans[key] = corrections, self._plan_or_failure(knobs, devices, progress)
            if len(self._plans) > _MAX_PLANS:
                del self._plans[next(iter(self._plans))]
        if isinstance(known[1], Infeasible):
            raise known[1].with_traceback(None)
        return known[1]

    def plan_at(self, knobs: Knobs, partition: Sequence[int]) -> Plan:
        """The plan that cuts at `partition`, the boundaries from 0 to the number of layers, for all replicas.

        Raises:
            BadInput: stages cannot begin there, the devices have no given order, or one stage may have several devices.
            Infeasible: there are too few devices.
        """
        if knobs.stage_replicas:
            raise BadInput("a partition is for stages of one device each, got stage replicas; leave one of them out")
        table = self.table(knobs)
        plan = self._plan_cut_at(knobs, partition)
        if wrong := [cut for cut in partition if not table.cut_allowed[cut]]:
            raise BadInput(
                f"no stage may begin at layer {', '.join(map(str, wrong))}, where layers of one weight would be parted "
                "or no block begins; try `plan` for the best cuts"
            )
        return self._everywhere(knobs, plan)

    def _plan_cut_at(self, knobs: Knobs, partition: Sequence[int], start: int = 0) -> Plan:
        """The plan of these cuts on a pipeline that begins with the device `start`; no limit is checked."""
        if not knobs.training:
            return evaluate(self.table(knobs, None, start), partition)
        stages = self.stage_table(knobs, None, start)
        plan = stages.evaluate(partition, [stages.recompute] * stages.n_stages)  # refuses a wrong partition
        costs = StageCosts.of(stages)
        cuts = np.searchsorted(costs.problem.blocks.cuts, partition)
        choice = costs.resolve(cuts) if stages.recomputing is not None else None
        return plan if choice is None else stages.evaluate(partition, choice.recomputes)

    def measure_again(self, knobs: Knobs, plan: Plan) -> None:
        """Let `evaluate` measure the cuts of `plan`, as a trial of this configuration has them, on real devices."""
        if self.traits.runs_plans:
            self._measured_plans[knobs] = plan

    def plan_to_try(self, knobs: Knobs) -> Plan:
        """The plan to measure: that of `predict`, or on real devices one that may fit although it is predicted not to.

        If no predicted plan fits, the memory limits are raised until the lower end of the prediction interval fills the
        memory, since the estimate may be too high; not where the user has set `planning_proportion`.

        Raises:
            Infeasible: no plan respects the limits.
        """
        self._check_weights(knobs)
        try:
            return self.predict(knobs)
        except Infeasible as failure:
            interval = self.correction(knobs).memory_interval
            if not (self.traits.runs_plans and failure.excess_bytes) or self.planning_proportion is not None:
                raise
            table = self.table(knobs)  # of inference: real devices do not train
            limits = (table.memory_limit_bytes * (interval.high / interval.low)).astype(table.memory_limit_bytes.dtype)
            return self._everywhere(knobs, self._best_by(replace(table, memory_limit_bytes=limits), knobs).plan)

    def phased(self, knobs: Knobs, options: PhasedOptions) -> PhasedPlan:
        """The fastest phases of one device by estimated costs; knobs of pipelines are not used.

        Raises:
            BadInput: the cluster cannot run phases, or not so many replicas.
            Infeasible: some layers fit no phase.
        """
        return self._phases(knobs, options, self.phase_table(knobs, options))

    def _phases(self, knobs: Knobs, options: PhasedOptions, table: CostTable) -> PhasedPlan:
        plan = phased(table, self.profile(self.options(knobs)), self.cluster, options)
        shared_cycles = self.shared_cycles(replace(knobs, n_ipu=1), range(options.n_replicas))
        return replace(plan, shared_cycles=shared_cycles)

    def measure_phased(self, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
        """The phases of `plan` compiled whole; their transfers remain those of the plan.

        Raises:
            OutOfMemory: a phase needs more than the device has; the error describes the one that lacks most.
        """
        table = self.phase_table(knobs, options)
        measured = plan.with_phases(tuple(self._measure_phase(knobs, phase, table) for phase in plan.phases))
        check_memory(measured.phases)
        return measured

    def measure(self, knobs: Knobs, plan: Plan) -> Run:
        """`plan` run on the target's devices; with a cost model its stages are compiled whole, then simulated.

        With a cost model, transfers remain those of the plan, and so do the micro-batches that each device stashes.

        Raises:
            OutOfMemory: a stage needs more than its device has; the error describes the one that lacks most.
        """
        if isinstance(self.target, Runner):
            placement = tuple(devices for each in plan.plans for devices in each.placement)
            plan = replace(plan, placement=placement, other_plans=())  # all replicas run one plan, the slowest
            run = self.target.run(self.graph, plan, self.devices(knobs), self.options(knobs), knobs.replicas)
            if run.undisturbed and not self.holds_whole(knobs):
                self.add_examples(self.options(knobs), map(_whole_stage, run.plan.stages))
            return run
        measured = side_by_side(self._compiled(knobs, each) for each in plan.plans)
        check_memory(*(each.stages for each in measured.plans))
        counts = [len(each.placement) for each in measured.plans] if measured.other_plans else [knobs.replicas]
        if knobs.training:  # all replicas end a step together
            return Run(measured, (self.timeline(knobs, measured),) * knobs.replicas)
        timelines = (repeat(self.timeline(knobs, each), n) for each, n in zip(measured.plans, counts, strict=True))
        return Run(measured, tuple(chain.from_iterable(timelines)))

    def evaluate(self, knobs: Knobs) -> Trial:
        """Plan one configuration and measure it; one that does not fit or violates a constraint is a trial too.

        On real devices a configuration that was measured before has the same cuts again.
        """
        estimate: Plan | PhasedPlan | None = None
        clock_hz, device_bytes = self.cluster.clock_hz, self._device_bytes(knobs)
        try:
            if knobs.strategy is Strategy.PHASED:
                options, estimate = self._fastest_phases(knobs)
                phases = self.measure_phased(knobs, options, estimate)
                return measured_trial(
                    knobs,
                    estimate,
                    phases,
                    samples_per_s=phases.samples_per_s(knobs.batch_size, clock_hz),
                    estimated_samples_per_s=estimate.samples_per_s(knobs.batch_size, clock_hz),
                    latency_s=latency_s(knobs, phases, clock_hz),
                    device_bytes=device_bytes,
                    origin=self.traits.origin,
                    constraints=self.constraints,
                )
            known = self._measured_plans.get(knobs)
            estimate = known or self.plan_to_try(knobs)
            if known is not None:
                run = self.measure(knobs, known)
            else:
                estimate, run = self._measure_moving_cuts(knobs, estimate)
                self.measure_again(knobs, estimate)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, device_bytes, estimate)
        estimated_per_s, measured_per_s = self.samples_per_s(knobs, estimate), self.measured_samples_per_s(knobs, run)
        self.record_run(knobs, estimated_per_s, measured_per_s)
        return measured_trial(
            knobs,
            estimate,
            run.plan,
            samples_per_s=measured_per_s,
            estimated_samples_per_s=estimated_per_s,
            latency_s=run_latency_s(knobs, run, clock_hz),
            device_bytes=device_bytes,
            timeline=run.timelines[0],
            output_error=run.output_error,
            origin=self.traits.origin,
            constraints=self.constraints,
        )

    def expect(self, knobs: Knobs) -> Trial:
        """The trial of `evaluate` if every stage cost what is estimated; no stage is measured."""
        return self._expected(knobs, with_timeline=True)

    def forecast(self, knobs: Knobs) -> Trial:
        """As `expect`, but without a timeline of training, which takes long to simulate for long steps."""
        return self._expected(knobs, with_timeline=False)

    def gives_no_more(self, knobs: Knobs, worth: float) -> bool:
        """Whether `forecast` gives no more than `worth` samples/s; for training told sooner than its plan.

        It is certain, or follows from the plan of a configuration that may do all that this one may.
        """
        best = self.best_case(knobs)
        if best is None or best.samples_per_s <= worth:
            return best is not None
        cycles = knobs.n_samples * self.cluster.clock_hz / worth
        same = self.with_equal_costs(knobs)
        # Stages that choose whether to recompute may do all that those of other configurations do.
        for known in {same, replace(same, recompute=Recompute.AUTO)}:
            if self._limits.get(known, inf) <= worth or self._is_planned_as_no_better(known, cycles):
                return True
        firsts = {starts[0] for starts in placements(self.devices(knobs), knobs.n_ipu, knobs.replicas)}
        try:
            tables = [self.stage_table(knobs, None, start) for start in {self.first_alike(knobs, n) for n in firsts}]
            if all(no_simulated_step_below(table, knobs, cycles) for table in tables):
                self._limits[same] = worth
                return True
        except Infeasible:  # for the reason that a plan would give
            pass
        return False

    def best_case(self, knobs: Knobs) -> BestCase | None:
        """Bounds of what `forecast` says of a configuration, in a moment; None where there are none."""
        if not knobs.training or knobs.strategy is Strategy.PHASED or self.cluster.kinds:
            return None
        return best_case(self, knobs)

    def expect_at_best(self, knobs: Knobs) -> Trial | None:
        """A trial that is no worse than that of `expect`, and needs no layer; None where `expect` needs none either."""
        try:
            self._check_weights(knobs)
            parts = self.best_case_plan(knobs)
            if parts is None:
                return None
            plan = self._everywhere(knobs, parts)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self._device_bytes(knobs))
        return self._expected_trial(knobs, plan, self.samples_per_s(knobs, plan))

    def _is_planned_as_no_better(self, knobs: Knobs, cycles: float) -> bool:
        """Whether the plan of a configuration is known, and has no step below `cycles`, on whatever devices."""
        single = knobs if knobs.shard_optimizer else replace(knobs, replicas=1)
        known = [plan for (same, _), (_, plan) in self._plans.items() if same == single]
        return bool(known) and all(
            isinstance(plan, Infeasible) or (plan.step_cycles is not None and plan.step_cycles >= cycles)
            for plan in known
        )

    def _expected(self, knobs: Knobs, *, with_timeline: bool) -> Trial:
        timeline: Timeline | None = None
        step_cycles: float | None = None
        try:
            if knobs.strategy is Strategy.PHASED:
                _, phases = self._fastest_phases(knobs)
                return self._expected_trial(
                    knobs, phases, phases.samples_per_s(knobs.batch_size, self.cluster.clock_hz)
                )
            plan = self.predict(knobs)
            if knobs.training and with_timeline:
                timeline = self.timeline(knobs, plan)
                step_cycles = timeline.makespan_cycles
            elif knobs.training:
                step_cycles = self.step_cycles(knobs, plan)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self._device_bytes(knobs))
        return self._expected_trial(knobs, plan, self.samples_per_s(knobs, plan, step_cycles), step_cycles, timeline)

    def _expected_trial(
        self,
        knobs: Knobs,
        plan: Plan | PhasedPlan,
        speed: float,
        step_cycles: float | None = None,
        timeline: Timeline | None = None,
    ) -> Trial:
        """The trial of a plan by its estimated costs."""
        return measured_trial(
            knobs,
            plan,
            plan,
            samples_per_s=speed,
            estimated_samples_per_s=speed,
            latency_s=latency_s(knobs, plan, self.cluster.clock_hz, step_cycles),
            device_bytes=self._device_bytes(knobs),
            timeline=timeline,
            origin=Origin.ESTIMATED,
            constraints=self.constraints,
        )

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """The stages of `plan` in the order of the schedule; in training the whole step, of the slowest replica."""
        if not knobs.training:
            return timeline_of(knobs, plan)
        pipelines = (timeline_of(knobs, each) for each in plan.plans)
        slowest = max(pipelines, key=lambda timeline: timeline.makespan_cycles)
        ends = self._all_reduce_cycles(knobs, plan), self.weight_update_cycles(knobs, plan)
        return with_step_end(slowest, *ends, barrier=plan.period is Period.BARRIER)

    def step_cycles(self, knobs: Knobs, plan: Plan) -> float:
        """Cycles of a whole step of training, that of the slowest replica: the makespan of its `timeline`."""
        if plan.period is not Period.BARRIER:
            return self.timeline(knobs, plan).makespan_cycles
        flushed = max(pipeline_step_cycles(knobs, each) for each in plan.plans)
        return flushed + max(self._all_reduce_cycles(knobs, plan)) + max(self.weight_update_cycles(knobs, plan))

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """Throughput by the costs of `plan`: in training of whole steps of all replicas.

        For inference it is the throughput of the steady state. Give the `step_cycles` of the plan if they are known:
        for some orders another search is needed.
        """
        clock_hz = self.cluster.clock_hz
        if knobs.training:
            step_cycles = self.step_cycles(knobs, plan) if step_cycles is None else step_cycles
            cycles = max(step_cycles, knobs.n_micro_batches * plan.host_bound_cycles)
            return samples_per_s(knobs.n_samples, cycles, clock_hz)
        return plan.samples_per_s(knobs.batch_size * knobs.replicas, clock_hz)

    def simulated_samples_per_s(self, knobs: Knobs, timeline: Timeline, plan: Plan) -> float:
        """Throughput by the `timeline` of `plan`: in training of whole steps, for inference of the steady state."""
        if knobs.training:
            return self.samples_per_s(knobs, plan, timeline.makespan_cycles)
        n_others, clock_hz = sum(len(other.placement) for other in plan.other_plans), self.cluster.clock_hz
        cycles = max(timeline.period_cycles, plan.host_bound_cycles)
        others = (other.samples_per_s(knobs.batch_size * len(other.placement), clock_hz) for other in plan.other_plans)
        return samples_per_s(knobs.batch_size * (knobs.replicas - n_others), cycles, clock_hz) + sum(others)

    def measured_samples_per_s(self, knobs: Knobs, run: Run) -> float:
        """Throughput of a run: by its timelines where they were measured, else by the costs of its plan."""
        if run.origin is Origin.SIMULATED:
            return self.samples_per_s(knobs, run.plan, run.timelines[0].makespan_cycles if knobs.training else None)
        return samples_per_s(knobs.batch_size, run.period_cycles, self.cluster.clock_hz)

    def fingerprint(self) -> Mapping[str, str]:
        """Everything besides the knobs on which trials depend; a study refuses to continue with another fingerprint."""
        return {
            "model": self.graph.name,
            "model_content": self.graph.content,
            "cluster": self.cluster.name,
            "cluster_content": hashlib.sha256(f"{self.cluster}{self.cluster.kinds or ''}".encode()).hexdigest()[:16],
            "target": self.target.version,
            "precision": str(self.precision),
            "planning_proportion": str(self.planning_proportion),
            "estimator": str(self.estimator),
            "period": str(self.period_of_devices),
            "constraints": "; ".join(sorted({constraint.text for constraint in self.constraints})),
            **({"cut_at": str(self.cut_at)} if self.cut_at is not CutAt.LAYERS else {}),
            # Earlier versions priced every replica by the links of the first, which several machines do not share.
            **({"replicas": "placed"} if len(self.cluster) > self.cluster.machine_size else {}),
        }

    def _on_devices(self, knobs: Knobs, plan_on: Callable[[Devices], Plan]) -> Plan:
        """The plans of all replicas, on the devices on which they have the highest throughput.

        Args:
            knobs: the configuration.
            plan_on: plans the pipeline on some `Devices`; equal pipelines are planned once.

        Raises:
            Infeasible: there are too few devices, or a plan does not fit.
        """
        self._check_devices(knobs)
        attempts = (
            on_kinds(self.cluster, knobs, plan_on)
            if self.cluster.kinds
            else (
                partial(self._in_line, knobs, starts, plan_on)
                for starts in placements(self.devices(knobs), knobs.n_ipu, knobs.replicas)
            )
        )
        ways, failures = [], []
        for attempt in attempts:
            try:
                ways.append(attempt())
            except Infeasible as failure:
                failures.append(failure)
        if not ways:
            raise min(failures, key=lambda failure: (not failure.excess_bytes, failure.excess_bytes))
        return max(ways, key=lambda plan: self.samples_per_s(knobs, plan)) if len(ways) > 1 else ways[0]

    def _everywhere(self, knobs: Knobs, plan: Plan) -> Plan:
        """The same plan for all replicas."""
        return self._on_devices(knobs, lambda _: plan)

    def _in_line(self, knobs: Knobs, starts: Sequence[int], plan_from: Callable[[int], Plan]) -> Plan:
        """The plans of pipelines that begin with these devices."""
        machine_device, pipelines = self.devices(knobs).machine_device, []
        plans = {first: plan_from(first) for first in dict.fromkeys(self.first_alike(knobs, start) for start in starts)}
        if knobs.training and len(plans) > 1:
            plans = self._with_equal_cuts(knobs, plans)
        for start in starts:
            plan = plans[self.first_alike(knobs, start)]
            devices = tuple(map(machine_device, range(start, start + plan.n_devices)))
            pipelines.append((plan, devices))
        return replicated(pipelines, self.shared_cycles(knobs, starts))

    def _with_equal_cuts(self, knobs: Knobs, plans: Mapping[int, Plan]) -> dict[int, Plan]:
        """The plans of pipelines by their first device, all with the cuts of that one whose step is then the shortest.

        Replicas sum the gradients of like stages, so they have the same cuts though their devices or links differ.
        """
        ways = []
        for partition in dict.fromkeys(plan.partition for plan in plans.values()):
            way = {first: self._plan_cut_at(knobs, partition, first) for first in plans}
            step_cycles = max(pipeline_step_cycles(knobs, plan) for plan in way.values())
            if all(plan.excess_bytes <= 0 for plan in way.values()):
                ways.append((step_cycles, way))
        if not ways:
            raise Infeasible("no cuts fit the devices of all replicas, which differ; try fewer replicas", 0)
        return min(ways, key=lambda pair: pair[0])[1]

    def _all_reduce_cycles(self, knobs: Knobs, plan: Plan) -> tuple[int, ...]:
        """Cycles in which every stage sums its gradients over the replicas."""
        cluster, pipelines = self.devices(knobs), [devices for each in plan.plans for devices in each.placement]
        firsts = sorted(cluster.index(devices[0]) for devices in pipelines)
        if len(firsts) < knobs.replicas:  # the plan of one pipeline
            firsts = list(placements(cluster, knobs.n_ipu, knobs.replicas)[0])
        rings = [[first + device for first in firsts] for device in range(plan.n_devices)]
        n_bytes = [0] * plan.n_devices
        for stage in plan.stages:
            n_bytes[stage.device] += gradient_bytes(stage.memory_bytes)
        return all_reduce_cycles(cluster, rings, n_bytes)

    def _plan_or_failure(self, knobs: Knobs, devices: Devices, progress: Progress | None) -> BoundedPlan | Infeasible:
        try:
            if isinstance(devices, tuple):
                return best_on_kinds(self, knobs, devices, progress)
            if knobs.training:
                return best_by_simulated_step(self.stage_table(knobs, progress, devices), knobs)
            return self._best_by(self.table(knobs, progress, devices), knobs)
        except Infeasible as failure:
            return failure

    def _best_by(self, table: CostTable, knobs: Knobs) -> BoundedPlan:
        """The plan of inference with the least period: one stage a device, or with stage replicas on at most all.

        Raises:
            BadInput: devices that may run one stage in turn differ.
            Infeasible: no plan respects the limits.
        """
        return best_with_stage_replicas(table) if knobs.stage_replicas else anytime(table)

    def _measure_moving_cuts(self, knobs: Knobs, plan: Plan) -> tuple[Plan, Run]:
        """Measure `plan`, and on real devices also a few plans with moved cuts; the fastest of them, with its run.

        A correction has the same factors for the whole model, so single stages deviate from it. The measured stages
        calibrate the table (`calibrated`). If the plan that is then optimal promises a gain of `WORTH_MOVING`, it is
        measured, and if it is faster, the next plan is calibrated with its stages.
        """
        run = self.measure(knobs, plan)
        for _ in range(MAX_MOVES if self.traits.runs_plans and plan.n_devices > 1 else 0):
            if not run.undisturbed:
                break
            table = calibrated(self.table(knobs), run.plan.stages)
            same = evaluate_stage_replicas(table, plan) if knobs.stage_replicas else evaluate(table, plan.partition)
            limit_cycles = (1 - WORTH_MOVING) * same.cost_cycles
            try:
                moved = self._everywhere(knobs, self._best_by(table, knobs).plan)
                again = self.measure(knobs, moved) if moved.cost_cycles <= limit_cycles else run
            except DoesNotFit:
                break
            if again.period_cycles >= run.period_cycles:
                break
            plan, run = moved, again
        return plan, run

    def _check_weights(self, knobs: Knobs) -> None:
        """Refuse, on real devices, whose profile takes long, a pipeline that cannot even hold the weights.

        Raises:
            Infeasible: it cannot.
        """
        if not self.traits.runs_plans:
            return
        device_bytes = int(self._device_bytes(knobs) * knobs.memory_proportion)
        weight_bytes = self.graph.n_weight_bytes(Precision.FP16)  # the shortest format that a file of floats may have
        if (excess := weight_bytes - knobs.n_ipu * device_bytes) > 0:
            raise Infeasible(
                f"the weights of {self.graph.name} alone need {format_bytes(weight_bytes)} or more, and "
                f"{knobs.n_ipu} x {format_bytes(device_bytes)} must hold them; try more devices or more memory",
                excess,
            )

    def _check_devices(self, knobs: Knobs) -> None:
        """Refuse more devices than there are."""
        if knobs.n_ipu * knobs.replicas > len(self.devices(knobs)):
            cores = f" of {knobs.cores_per_device} cores" if knobs.cores_per_device > 1 else ""
            raise Infeasible(
                f"{knobs.replicas} replicas of {knobs.n_ipu} devices{cores} need {knobs.n_devices}, "
                f"{self.cluster.name} has {len(self.cluster)}",
                0,
            )

    def _device_bytes(self, knobs: Knobs) -> int:
        """The memory of one device."""
        return int(self.cluster.devices[0].memory_bytes) * knobs.cores_per_device

    def _fastest_phases(self, knobs: Knobs) -> tuple[PhasedOptions, PhasedPlan]:
        """The fastest phases by estimated costs over the io modes that the period allows, with their options.

        Stages and phases are compared on equal terms: loads and stores overlap with compute in phases only if devices
        overlap the transfers of stages, too. Without overlap io tiles gain nothing: they do not compute.

        Raises:
            DoesNotFit: some layers fit no phase, or one phase holds the model, which is a replica of one device.
        """
        self._check_devices(knobs)
        n_steps, recompute = knobs.n_micro_batches, knobs.recompute is True
        compute = PhasedOptions(n_steps, IoMode.COMPUTE, n_replicas=knobs.n_ipu, recompute=recompute)
        one_step = replace(knobs, n_ipu=1, n_micro_batches=1)  # the table depends on neither number
        if one_step not in self._phase_tables:
            if len(self._phase_tables) >= _MAX_PHASE_TABLES:
                del self._phase_tables[next(iter(self._phase_tables))]
            self._phase_tables[one_step] = self.phase_table(knobs, compute)
        table = self._phase_tables[one_step]
        if fits_at_once(table, self.profile(self.options(knobs)), self.cluster, compute):
            raise Infeasible(
                f"phases are for models that no device holds, but one phase holds all of {self.graph.name}; "
                "try --strategy pipeline with --replicas",
                0,
            )
        modes = (*IoMode,) if self.period_of_devices is Period.OVERLAP else (IoMode.COMPUTE,)
        plans, failures = [], []
        for options in (replace(compute, io_mode=io_mode) for io_mode in modes):
            try:
                plans.append((options, self._phases(knobs, options, table)))
            except DoesNotFit as failure:
                failures.append(failure)
        if not plans:
            raise min(failures, key=lambda failure: failure.excess_bytes)
        return min(plans, key=lambda pair: pair[1].cost_cycles)

    def _measure_phase(self, knobs: Knobs, phase: Phase, table: CostTable) -> Phase:
        """`phase` with the memory of its range compiled whole; its compute is scaled by measured over estimated."""
        device = self.cluster.devices[0]
        compiled = self.target.compile(self.graph, phase.layers, device, self.options(knobs))
        recompute_cycles = compiled.forward_cycles if knobs.recompute is True else 0
        whole = compiled.forward_cycles + compiled.backward_cycles + recompute_cycles
        estimated = table.compute_cycles(*phase.layers)
        layer_bytes = table.memory_bytes(*phase.layers)
        buffers = {name: n_bytes for name, n_bytes in phase.memory_bytes.items() if name not in layer_bytes}
        return replace(
            phase,
            compute_cycles=-(-phase.compute_cycles * whole // max(estimated, 1)),
            memory_bytes={**compiled.memory_bytes, **buffers},
            limit_bytes=int(device.memory_bytes),
        )

    def _compiled(self, knobs: Knobs, plan: Plan) -> Plan:
        """`plan` with the compute and memory of its stages compiled whole, for the devices of its first replica."""
        cluster, options = self.devices(knobs), self.options(knobs)
        devices = list(map(cluster.index, plan.placement[0])) if plan.placement else range(len(cluster))
        indices = [devices[stage.device] for stage in plan.stages]
        compiled = [
            self.target.compile(self.graph, stage.layers, cluster.devices[index], options)
            for stage, index in zip(plan.stages, indices, strict=True)
        ]
        compiled = [
            whole.recomputed if stage.recomputes else whole for stage, whole in zip(plan.stages, compiled, strict=True)
        ]
        memory = self._measured_bytes(knobs, plan, compiled)
        stages = (self._measured(*of_stage) for of_stage in zip(plan.stages, indices, compiled, memory, strict=True))
        return replace(plan, stages=tuple(stages))

    def _measured(self, stage: Stage, device: int, compiled: CompiledRange, memory_bytes: dict[str, int]) -> Stage:
        """`stage` with the compute and memory of its range compiled whole for a device of the cluster."""
        speed = self.cluster.speeds[device]
        return replace(
            stage,
            forward_cycles=reference_cycles(compiled.forward_cycles, speed),
            backward_cycles=reference_cycles(compiled.backward_cycles, speed),
            weight_cycles=reference_cycles(compiled.weight_cycles, speed),
            memory_bytes=memory_bytes,
            limit_bytes=int(self.cluster.devices[device].memory_bytes),
        )

    def _measured_bytes(self, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]) -> list[dict[str, int]]:
        """The memory of every stage compiled whole; in training with the optimizer's state and the stash."""
        if not knobs.training:
            return [each.memory_bytes for each in compiled]
        moments = in_flight_by_stage(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches, knobs.stages_per_device)
        memory: list[dict[str, int]] = [{} for _ in compiled]
        for device, in_flight in enumerate(moments):
            own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
            parts = [self._trained_bytes(knobs, plan.stages[index], compiled[index]) for index in own]
            for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
                memory[index] = n_bytes
        return memory

    def _trained_bytes(self, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes:
        """What a stage compiled whole holds, with the optimizer's state; its stash entry."""
        states = knobs.weight_update.state_bytes(gradient_bytes(compiled.memory_bytes), self.precision)
        input_bytes = self.profile(self.options(knobs)).layers[stage.layers.start].input_bytes
        stored_bytes = input_bytes + compiled.checkpoint_bytes
        entry_bytes = stash_entry_bytes(compiled.activation_bytes, stored_bytes, recompute=stage.recomputes)
        return StageBytes({**compiled.exclusive, **states}, compiled.shared, compiled.temporary_bytes, entry_bytes)


def _whole_stage(stage: Stage) -> WholeRange:
    return WholeRange(stage.layers, stage.forward_cycles, stage.backward_cycles, stage.memory_bytes)
