"""One model on one cluster, from profile to measurement: `Flow`.

Plans with the costs of ranges compiled whole, as a cost model measures them: `compiled_plan`, `compiled_phases`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from autoauto.estimate.table import calibrated
from autoauto.evaluate.estimates import Estimates
from autoauto.evaluate.forecasts import ForecastCache, Forecasts
from autoauto.evaluate.plans import PlanCache, Plans
from autoauto.evaluate.steps import plan_samples_per_s, plan_timeline
from autoauto.evaluate.whole_model import WholeModelEstimates
from autoauto.plan.pipeline.problem import check_memory, evaluate
from autoauto.plan.pipeline.range_plans import evaluate_stage_replicas
from autoauto.plan.pipeline.stage_table import StageBytes, device_memory
from autoauto.profile.liveness import largest_crossing
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import WholeRange
from autoauto.records.costs.cost import CostTable, stash_entry_bytes
from autoauto.records.costs.profile import CompiledRange, gradient_bytes
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.hardware import Period
from autoauto.records.plans.phased import Phase, PhasedOptions, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage, side_by_side
from autoauto.records.plans.timeline import Run, Runner, Timeline
from autoauto.records.target import Origin
from autoauto.records.units import Precision, reference_cycles, samples_per_s
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes import Strategy
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial, latency_s, measured_trial, run_latency_s, unfit_trial


def compiled_plan(estimates: Estimates, knobs: Knobs, plan: Plan) -> Plan:
    """`plan` with the compute and memory of its stages compiled whole, for the devices of its first replica."""
    cluster, options = estimates.devices(knobs), estimates.options(knobs)
    devices = list(map(cluster.index, plan.placement[0])) if plan.placement else range(len(cluster))
    indices = [devices[stage.device] for stage in plan.stages]
    compiled = [
        estimates.target.compile(estimates.graph, stage.layers, cluster.devices[index], options)
        for stage, index in zip(plan.stages, indices, strict=True)
    ]
    compiled = [
        whole.recomputed if stage.recomputes else whole for stage, whole in zip(plan.stages, compiled, strict=True)
    ]
    memory = _stage_bytes(estimates, knobs, plan, compiled)
    columns = zip(plan.stages, indices, compiled, memory, strict=True)
    return replace(plan, stages=tuple(_compiled_stage(estimates, *of_stage) for of_stage in columns))


def _compiled_stage(
    estimates: Estimates, stage: Stage, device: int, compiled: CompiledRange, memory_bytes: dict[str, int]
) -> Stage:
    """`stage` with the compute and memory of its range compiled whole for a device of the cluster."""
    speed = estimates.cluster.speeds[device]
    return replace(
        stage,
        forward_cycles=reference_cycles(compiled.forward_cycles, speed),
        backward_cycles=reference_cycles(compiled.backward_cycles, speed),
        weight_cycles=reference_cycles(compiled.weight_cycles, speed),
        memory_bytes=memory_bytes,
        limit_bytes=int(estimates.cluster.devices[device].memory_bytes),
    )


def _stage_bytes(
    estimates: Estimates, knobs: Knobs, plan: Plan, compiled: Sequence[CompiledRange]
) -> list[dict[str, int]]:
    """The memory of every stage compiled whole; in training with the optimizer's state and the stash."""
    if not knobs.training:
        return [each.memory_bytes for each in compiled]
    moments = in_flight_by_stage(*knobs.step)
    memory: list[dict[str, int]] = [{} for _ in compiled]
    for device, in_flight in enumerate(moments):
        own = [index for index, stage in enumerate(plan.stages) if stage.device == device]
        parts = [_trained_bytes(estimates, knobs, plan.stages[index], compiled[index]) for index in own]
        for index, n_bytes in zip(own, device_memory(parts, in_flight), strict=True):
            memory[index] = n_bytes
    return memory


def _trained_bytes(estimates: Estimates, knobs: Knobs, stage: Stage, compiled: CompiledRange) -> StageBytes:
    """What a stage compiled whole holds, with the optimizer's state; its stash entry."""
    states = knobs.weight_update.state_bytes(gradient_bytes(compiled.memory_bytes), estimates.precision)
    input_bytes = estimates.profile(estimates.options(knobs)).layers[stage.layers.start].input_bytes
    stored_bytes = input_bytes + compiled.checkpoint_bytes
    entry_bytes = stash_entry_bytes(compiled.activation_bytes, stored_bytes, recompute=stage.recomputes)
    return StageBytes({**compiled.exclusive, **states}, compiled.shared, compiled.temporary_bytes, entry_bytes)


def compiled_phases(estimates: Estimates, knobs: Knobs, options: PhasedOptions, plan: PhasedPlan) -> PhasedPlan:
    """The phases of `plan` compiled whole; their transfers remain those of the plan.

    Raises:
        OutOfMemory: a phase needs more than the device has; the error describes the one that lacks most.
    """
    table = estimates.phase_table(knobs, options)
    compiled = plan.with_phases(tuple(_compiled_phase(estimates, knobs, phase, table) for phase in plan.phases))
    check_memory(compiled.phases)
    return compiled


def _compiled_phase(estimates: Estimates, knobs: Knobs, phase: Phase, table: CostTable) -> Phase:
    """`phase` with the memory of its range compiled whole; its compute is scaled by measured over estimated."""
    device = estimates.cluster.devices[0]
    compiled = estimates.target.compile(estimates.graph, phase.layers, device, estimates.options(knobs))
    recompute_cycles = compiled.forward_cycles if knobs.mode.recompute is True else 0
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


MAX_MOVES = 3  # plans with moved cuts that are measured after the first, on real devices
WORTH_MOVING = 0.015  # predicted gain, as a share of the period, from which on such a plan is measured


@dataclass(frozen=True, slots=True)
class Flow(WholeModelEstimates):
    """profile -> estimate -> plan -> schedule -> measure, one configuration at a time.

    `expect` ends with the schedule of the estimated plan; `evaluate` also measures. The other methods are their steps.

    Attributes:
        constraints: conditions on the results of a configuration, expected or measured.
    """

    constraints: tuple[Constraint, ...] = ()
    _known_plans: PlanCache = field(default_factory=PlanCache, init=False, repr=False, compare=False)
    _known_forecasts: ForecastCache = field(default_factory=ForecastCache, init=False, repr=False, compare=False)
    # On real devices the plan that `evaluate` measured, by configuration: its cuts depend on what was measured before.
    _measured_plans: dict[Knobs, Plan] = field(default_factory=dict, init=False, repr=False, compare=False)

    # `Plans` and `Forecasts` refer to the flow. They are not stored in it: with such a circle a flow would outlive its
    # last use, and so would the processes of its target.

    @property
    def plans(self) -> Plans:
        """The plans of configurations by estimated costs."""
        return Plans(self, self._known_plans)

    @property
    def forecasts(self) -> Forecasts:
        """What the estimate says of configurations before any is measured."""
        return Forecasts(self.plans, self.constraints, self._known_forecasts)

    def checked(self, space: SearchSpace) -> SearchSpace:
        """A space with the sessions of the target, which has no configurations that cannot be evaluated.

        Raises:
            BadInput: more devices than the cluster has, a knob that the target does not have, or a batch size that the
                model cannot run at.
        """
        space = space.on_target(self.cluster.target, self.traits.sessions, self.traits.space)
        cores_per_device, has_stage_replicas = max(space["cores_per_device"]), any(space["stage_replicas"])
        for wanted, what in (
            (space.training, "training"),
            (Strategy.PHASED in space["strategy"], "a plan of phases"),
            (has_stage_replicas, "--stage-replicas"),
            (cores_per_device > 1, "--cores-per-device"),
        ):
            if wanted:
                self.check_one_kind(what)
        if cores_per_device > 1 and not self.traits.groups_cores:
            raise BadInput(
                f"--target {self.cluster.target} has no --cores-per-device; leave it out, or try --target host"
            )
        if has_stage_replicas and not self.traits.stage_replicas:
            instead = "one machine" if self.traits.groups_cores else "--target host"
            raise BadInput(f"--target {self.cluster.target} has no --stage-replicas; leave it out, or try {instead}")
        if has_stage_replicas and self.period_of_devices is Period.BARRIER:
            raise BadInput(
                "--stage-replicas needs devices that do not wait for all others, got --period barrier; try serial"
            )
        n_ipu, n_replicas, n_cores = max(space["n_ipu"]), min(space["replicas"]), min(space["cores_per_device"])
        n_devices = n_ipu * n_replicas * n_cores
        if cores_per_device > self.cluster.machine_size < len(self.cluster):
            raise BadInput(
                f"the cores of a device are those of one machine, {self.cluster.machine_size} at most on "
                f"{self.cluster.name}, got --cores-per-device {cores_per_device}; try fewer"
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
        if Strategy.PHASED in space["strategy"]:
            self.check_phases_may_begin_anywhere()
        return space

    def predict(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """See `Plans.best`."""
        return self.plans.best(knobs, progress)

    def expect(self, knobs: Knobs) -> Trial:
        """The trial of `evaluate` if every stage cost what is estimated; no stage is measured."""
        return self.forecasts.forecast(knobs, with_timeline=True)

    def evaluate(self, knobs: Knobs) -> Trial:
        """Plan one configuration and measure it; one that does not fit or violates a constraint is a trial too.

        On real devices a configuration that was measured before has the same cuts again.
        """
        estimate: Plan | PhasedPlan | None = None
        clock_hz, device_bytes = self.cluster.clock_hz, self.device_bytes(knobs)
        try:
            if knobs.is_phased:
                options, estimate = self.plans.fastest_phases(knobs)
                phases = compiled_phases(self, knobs, options, estimate)
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
            estimate = known or self.plans.plan_to_measure(knobs)
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

    def measure_again(self, knobs: Knobs, plan: Plan) -> None:
        """Let `evaluate` measure the cuts of `plan`, as a trial of this configuration has them, on real devices."""
        if self.traits.runs_plans:
            self._measured_plans[knobs] = plan

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
            if run.undisturbed and not self.runs_whole(knobs):
                for kind in self.kinds:
                    names = "", kind.cluster.devices[0].name
                    stages = (stage for stage in run.plan.stages if stage.device_kind in names)
                    kind.add_examples(self.options(knobs), map(_whole_stage, stages))
            return run
        measured = side_by_side(compiled_plan(self, knobs, each) for each in plan.plans)
        check_memory(*(each.stages for each in measured.plans))
        counts = [len(each.placement) for each in measured.plans] if measured.other_plans else [knobs.replicas]
        if knobs.training:  # all replicas end a step together
            return Run(measured, (self.timeline(knobs, measured),) * knobs.replicas)
        timelines = (repeat(self.timeline(knobs, each), n) for each, n in zip(measured.plans, counts, strict=True))
        return Run(measured, tuple(chain.from_iterable(timelines)))

    def _measure_moving_cuts(self, knobs: Knobs, plan: Plan) -> tuple[Plan, Run]:
        """Measure `plan`, and on real devices also a few plans with moved cuts; the fastest of them, with its run.

        A correction has the same factors for the whole model, so single stages deviate from it. The measured stages
        calibrate the table (`calibrated`). If the plan that is then optimal promises a gain of `WORTH_MOVING`, it is
        measured, and if it is faster, the next plan is calibrated with its stages.
        """
        run = self.measure(knobs, plan)
        may_move = self.traits.runs_plans and plan.n_devices > 1 and not self.cluster.kinds
        for _ in range(MAX_MOVES if may_move else 0):
            if not run.undisturbed:
                break
            table = calibrated(self.table(knobs), run.plan.stages)
            same = (
                evaluate_stage_replicas(table, plan) if knobs.mode.stage_replicas else evaluate(table, plan.partition)
            )
            limit_cycles = (1 - WORTH_MOVING) * same.cost_cycles
            try:
                moved = self.plans.by_period(table, knobs)
                again = self.measure(knobs, moved) if moved.cost_cycles <= limit_cycles else run
            except DoesNotFit:
                break
            if again.period_cycles >= run.period_cycles:
                break
            plan, run = moved, again
        return plan, run

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """See `plan_timeline`."""
        return plan_timeline(self, knobs, plan)

    def samples_per_s(self, knobs: Knobs, plan: Plan, step_cycles: float | None = None) -> float:
        """See `plan_samples_per_s`."""
        return plan_samples_per_s(self, knobs, plan, step_cycles)

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

    @property
    def shown_clock_hz(self) -> float | None:
        """The clock with which cycles are shown as time; None where they are shown as cycles."""
        return self.cluster.clock_hz if self.traits.in_seconds else None

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
            "cut_at": str(self.cut_at),
        }


def largest_transfers(flow: Flow, plan: Plan, batch_size: int) -> list[tuple[str, int]]:
    """The names and bytes of the largest tensors that the stage with the longest transfer moves."""
    stage = max(plan.stages, key=lambda each: each.transfer_cycles)
    return largest_crossing(flow.graph, stage.layers, batch_size, flow.precision)


def _whole_stage(stage: Stage) -> WholeRange:
    return WholeRange(stage.layers, stage.forward_cycles, stage.backward_cycles, stage.memory_bytes)
