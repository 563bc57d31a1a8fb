"""Pipelines through all rooms, in inference and in training: `PipelineFlow`."""

from __future__ import annotations

from typing_extensions import override

from autoauto.evaluate.modes.mode import ModeFlow, StepBounds
from autoauto.evaluate.pipelines.measure import Measurements
from autoauto.evaluate.pipelines.plans import Plans
from autoauto.evaluate.setting import trial_on
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, RunResult
from autoauto.space.trial import Trial, ended_early, latency_s, run_latency_s, unfit_trial


class PipelineFlow(ModeFlow):
    """The `ModeFlow` of pipelines: plan, forecast or measure."""

    def __init__(self, plans: Plans, measurements: Measurements) -> None:
        self.plans, self._measurements = plans, measurements

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
            estimate = self._measurements.known(knobs) or self._measurements.plan(knobs)
            estimate, run = self._measurements.of(knobs, estimate)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, setting.device_bytes(knobs), estimate)
        estimated_per_s = mode.samples_per_s(knobs, estimate)
        measured_per_s = self._measurements.samples_per_s(knobs, run)
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
            self._measurements.note(ends)
        return trial

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
