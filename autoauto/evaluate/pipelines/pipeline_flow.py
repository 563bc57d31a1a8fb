"""Pipelines through all rooms, in inference and in training: `PipelineFlow`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from typing_extensions import override

from autoauto.estimate.table import calibrated
from autoauto.evaluate.modes.mode import ModeFlow, StepBounds
from autoauto.evaluate.pipelines.plans import Plans
from autoauto.evaluate.setting import trial_on
from autoauto.memo import Memo
from autoauto.plan.pipeline.problem import check_memory, evaluate
from autoauto.plan.pipeline.range_plans import evaluate_stage_replicas
from autoauto.profile.profiler import Progress
from autoauto.records.costs.correction import WholeRange
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.errors import DoesNotFit, Infeasible, OutOfMemory
from autoauto.records.interval import RunEnds
from autoauto.records.plans.plan import Plan, Stage, side_by_side
from autoauto.records.plans.timeline import Races, Run, Runner, Timeline
from autoauto.records.target import Origin
from autoauto.records.units import reference_cycles, samples_per_s
from autoauto.schedule.stash import turns_at_once
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, RunResult
from autoauto.space.trial import Trial, ended_early, latency_s, run_latency_s, unfit_trial

MAX_MOVES = 3  # plans with moved cuts that are measured after the first, on real devices
WORTH_COMPILING = 0.997  # of the estimated throughput of the best plan: sums of layers err by less in the mean
NEARLY_FITS = 0.1  # share of a device's memory by which even cuts that are compiled may exceed it by the estimate
WORTH_MOVING = 0.015  # predicted gain, as a share of the period, from which on such a plan is measured


class PipelineFlow(ModeFlow):
    """The `ModeFlow` of pipelines: plan, forecast or measure, and let the costs learn from what was measured."""

    def __init__(self, plans: Plans) -> None:
        self.plans = plans
        # On real devices the plan that was measured, by configuration: its cuts depend on what was measured before.
        self._measured: Memo[Knobs, Plan] = Memo(100_000)
        self._races = False
        self._best: RunEnds | None = None  # of the runs that race

    @override
    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        mode, timeline = self.plans.mode(knobs), None
        try:
            plan = self.plans.best(knobs)
            if with_timeline and knobs.training:
                timeline = mode.timeline(knobs, plan)
                step_cycles: float | None = timeline.makespan_cycles
            else:
                step_cycles = mode.step_cycles(knobs, plan)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.plans.costs.setting.device_bytes(knobs))
        return self._estimated(knobs, plan, step_cycles, timeline)

    @override
    def fits(self, knobs: Knobs) -> bool:
        try:
            known = None if self.plans.costs.setting.constraints else self.plans.can_be_placed(knobs)
        except DoesNotFit:
            return False
        return self.forecast(knobs).fits if known is None else known

    @override
    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        return self.plans.best(knobs, progress)

    @override
    def gap(self, knobs: Knobs) -> float:
        return self.plans.of_pipeline(knobs).gap

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return self.plans.mode(knobs).timeline(knobs, plan)

    @override
    def upper_bound(self, knobs: Knobs) -> Trial | None:
        try:
            self.plans.check_weights(knobs)
            parts = self.plans.costs.bound_plan(knobs)
            if parts is None:
                return None
            plan = self.plans.on_all_replicas(knobs, parts)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.plans.costs.setting.device_bytes(knobs))
        return self._estimated(knobs, plan)

    @override
    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        return self.plans.mode(knobs).step_bounds(knobs)

    @override
    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        return self.plans.mode(knobs).is_bounded_by(knobs, worth, self.plans)

    @override
    def evaluate(self, knobs: Knobs) -> Trial:
        setting, mode = self.plans.costs.setting, self.plans.mode(knobs)
        estimate: Plan | None = None
        try:
            estimate = self._measured.get(knobs) or self.plan_to_measure(knobs)
            estimate, run = self._measure(knobs, estimate)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, setting.device_bytes(knobs), estimate)
        estimated_per_s = mode.samples_per_s(knobs, estimate)
        measured_per_s = self.measured_samples_per_s(knobs, run)
        self.plans.costs.learn_speed(knobs, estimated_per_s, measured_per_s)
        ends = run.ends(knobs.batch_size, setting.cluster.clock_hz)
        result = Result(
            samples_per_s=measured_per_s,
            estimated_samples_per_s=estimated_per_s,
            latency_s=run_latency_s(knobs, run, setting.cluster.clock_hz),
            output_error=run.output_error,
            run=ends and RunResult.of(ends),
        )
        trial = trial_on(setting, knobs, estimate, run.plan, result, setting.traits.origin, run.timelines[0])
        if run.ended_early:
            return ended_early(trial)
        if trial.fits and ends is not None:
            self._note(ends)
        return trial

    def race(self, known: Iterable[RunEnds] | None) -> None:
        """Let first runs end early once they are slower than the best, the `known` ones included; None for no race."""
        self._races, self._best = known is not None, None
        for ends in known or ():
            self._note(ends)

    def _note(self, ends: RunEnds) -> None:
        """The throughput of a configuration that may be the answer."""
        if self._races and (self._best is None or ends.low_per_s > self._best.low_per_s):
            self._best = ends

    def measure_again(self, knobs: Knobs, plan: Plan) -> None:
        """Let `evaluate` measure the cuts of `plan`, as a trial of this configuration has them, on real devices."""
        if self.plans.costs.setting.traits.runs_plans:
            self._measured[knobs] = plan

    def plan_to_measure(self, knobs: Knobs) -> Plan:
        """The plan to measure: that of `Plans`, or in training by a cost model one with even cuts, if it is faster.

        Estimates are sums of layers, and may be wrong about what fits. So even cuts are compiled whose estimate is as
        good (`WORTH_COMPILING`) and which fit or nearly do: few are. Raises Infeasible if no plan respects the limits.
        """
        if not knobs.training or self.plans.costs.setting.traits.runs_plans:
            return self.plans.plan_to_measure(knobs)
        best: Plan | None = None
        try:
            best = self.plans.plan_to_measure(knobs)
        except Infeasible as failure:
            if not failure.excess_bytes:
                raise
            reason = failure
        worth = 0.0 if best is None else WORTH_COMPILING * self.plans.mode(knobs).samples_per_s(knobs, best)
        speeds: list[tuple[float, Plan]] = []
        most_excess = NEARLY_FITS * self.plans.costs.setting.device_bytes(knobs)
        for plan in self.plans.even(knobs):
            if plan.excess_bytes <= most_excess and self.plans.mode(knobs).samples_per_s(knobs, plan) > worth:
                speed = self._compiled_samples_per_s(knobs, plan)
                if speed:
                    speeds.append((speed, plan))
        if best is not None and speeds:
            speeds.append((self._compiled_samples_per_s(knobs, best), best))
        if speeds:
            return max(speeds, key=lambda pair: pair[0])[1]
        if best is None:
            raise reason
        return best

    def even_samples_per_s(self, knobs: Knobs) -> float:
        """Throughput of training by a cost model, about as many blocks a stage; 0 where that does not fit."""
        if knobs.n_ipu == 1 or self.plans.costs.setting.traits.runs_plans:
            return 0.0
        return max((self._compiled_samples_per_s(knobs, plan) for plan in self.plans.by_count(knobs)), default=0.0)

    def _compiled_samples_per_s(self, knobs: Knobs, plan: Plan) -> float:
        """Throughput of a plan whose stages are compiled whole; 0 where they do not fit."""
        try:
            return self.measured_samples_per_s(knobs, self.run(knobs, plan))
        except OutOfMemory:
            return 0.0

    def _measure(self, knobs: Knobs, plan: Plan) -> tuple[Plan, Run]:
        """`plan`, or on real devices a faster one with moved cuts, and its run.

        Raises OutOfMemory if a stage needs more than its device has.
        """
        if self._measured.get(knobs) is not None:
            return plan, self.run(knobs, plan)
        plan, run = self._moving_cuts(knobs, plan)
        self.measure_again(knobs, plan)
        return plan, run

    def run(self, knobs: Knobs, plan: Plan, best: RunEnds | None = None) -> Run:
        """`plan` run on the target's devices; with a cost model its stages are compiled whole, then simulated.

        With a cost model, transfers remain those of the plan, and so do the micro-batches that each device stashes.
        Devices that race end early as `Races` says. Raises OutOfMemory if a stage needs more than its device has; the
        error describes the one that lacks most.
        """
        if isinstance(self.plans.costs.setting.target, Runner):
            return self._run_on_devices(self.plans.costs.setting.target, knobs, plan, best)
        measured = side_by_side(self._compiled(knobs, each) for each in plan.plans)
        check_memory(*(each.stages for each in measured.plans))
        return self.plans.mode(knobs).simulate(knobs, measured)

    def _run_on_devices(self, target: Runner, knobs: Knobs, plan: Plan, best: RunEnds | None) -> Run:
        setting = self.plans.costs.setting
        placement = tuple(devices for each in plan.plans for devices in each.placement)
        plan = replace(plan, placement=placement, other_plans=())  # all replicas run one plan, the slowest
        options = setting.options(knobs)
        arguments = setting.graph, plan, setting.devices(knobs), options, knobs.replicas
        run = target.race(*arguments, best) if isinstance(target, Races) else target.run(*arguments)
        is_whole = setting.begins_whole and knobs.n_ipu == 1  # measurements of the whole model say it already
        if run.undisturbed and not is_whole:
            for kind in self.plans.kinds:
                names = "", kind.setting.cluster.devices[0].name
                ranges = []
                for stage in run.plan.stages:
                    if stage.device_kind in names:
                        cycles = stage.forward_cycles, stage.backward_cycles
                        ranges.append(WholeRange(stage.layers, *cycles, stage.memory_bytes))
                kind.learn_ranges(options, ranges)
        return run

    def measured_samples_per_s(self, knobs: Knobs, run: Run) -> float:
        """Throughput of a run: by its timelines where they were measured, else by the costs of its plan."""
        if run.origin is Origin.SIMULATED:
            step_cycles = run.timelines[0].makespan_cycles if knobs.training else None
            return self.plans.mode(knobs).samples_per_s(knobs, run.plan, step_cycles)
        return samples_per_s(knobs.batch_size, run.period_cycles, self.plans.costs.setting.cluster.clock_hz)

    def _moving_cuts(self, knobs: Knobs, plan: Plan) -> tuple[Plan, Run]:
        """Measure `plan`, and on real devices also a few plans with moved cuts; the fastest of them, with its run.

        A correction has the same factors for the whole model, so single stages deviate from it. The measured stages
        calibrate the table (`calibrated`). If the plan that is then optimal promises a gain of `WORTH_MOVING`, it is
        measured, and if it is faster, the next plan is calibrated with its stages.
        """
        setting, run = self.plans.costs.setting, self.run(knobs, plan, self._best)
        may_move = setting.traits.runs_plans and plan.n_devices > 1 and not setting.cluster.kinds
        for _ in range(MAX_MOVES if may_move else 0):
            if not run.undisturbed or run.ended_early:
                break
            table = calibrated(self.plans.costs.pipeline_table(knobs), run.plan.stages)
            if knobs.mode.stage_replicas:
                same = evaluate_stage_replicas(table, plan)
            else:
                same = evaluate(table, plan.partition)
            try:
                moved = self.plans.by_period(table, knobs)
                if moved.cost_cycles > (1 - WORTH_MOVING) * same.cost_cycles:
                    break
                again = self.run(knobs, moved)
            except DoesNotFit:
                break
            if again.period_cycles >= run.period_cycles:
                break
            plan, run = moved, again
        return plan, run

    def _compiled(self, knobs: Knobs, plan: Plan) -> Plan:
        """`plan` with the compute and memory of its stages compiled whole, for the devices of its first replica.

        By a cost model they follow from the configuration and the plan, so they are stored as its forecasts are.
        """
        compile_stages = partial(self._compiled_stages, knobs, plan)
        stages = self.plans.costs.forecasts.of("compiled", (knobs, plan), tuple[Stage, ...], compile_stages)
        return replace(plan, stages=stages)

    def _compiled_stages(self, knobs: Knobs, plan: Plan) -> tuple[Stage, ...]:
        setting = self.plans.costs.setting
        cluster = setting.devices(knobs)
        devices = list(map(cluster.index, plan.placement[0])) if plan.placement else range(len(cluster))
        indices = [devices[stage.device] for stage in plan.stages]
        keeps_last = knobs.training and turns_at_once(*knobs.step)
        compiled: list[CompiledRange] = []
        for stage, index in zip(plan.stages, indices, strict=True):
            options, device = setting.options(knobs, stage.device), cluster.devices[index]
            whole = setting.compiler.compile(setting.graph, stage.layers, device, options)
            if stage.recomputes:
                # The last stage turns at once in some orders: its last segment need not be computed again.
                whole = whole.recomputed(keeps_last=keeps_last and stage is plan.stages[-1])
            compiled.append(whole)
        memory = self.plans.mode(knobs).stage_bytes(knobs, plan, compiled)
        stages = []
        for stage, index, whole, memory_bytes in zip(plan.stages, indices, compiled, memory, strict=True):
            speed = cluster.speeds[index]
            limit_bytes = int(cluster.devices[index].memory_bytes)
            if setting.traits.origin is Origin.ESTIMATED:  # no compiler knows better than the plan what fits
                limit_bytes = stage.limit_bytes
            as_compiled = replace(
                stage,
                forward_cycles=reference_cycles(whole.forward_cycles, speed),
                backward_cycles=reference_cycles(whole.backward_cycles, speed),
                weight_cycles=reference_cycles(whole.weight_cycles, speed),
                memory_bytes=memory_bytes,
                limit_bytes=limit_bytes,
            )
            stages.append(as_compiled)
        return tuple(stages)

    def _estimated(
        self, knobs: Knobs, plan: Plan, step_cycles: float | None = None, timeline: Timeline | None = None
    ) -> Trial:
        setting = self.plans.costs.setting
        speed = self.plans.mode(knobs).samples_per_s(knobs, plan, step_cycles)
        result = Result(
            samples_per_s=speed,
            estimated_samples_per_s=speed,
            latency_s=latency_s(knobs, plan, setting.cluster.clock_hz, step_cycles),
        )
        return trial_on(setting, knobs, plan, plan, result, Origin.ESTIMATED, timeline)
