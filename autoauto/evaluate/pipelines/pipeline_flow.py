"""Pipelines through all rooms, in inference and in training: `PipelineFlow`."""

from __future__ import annotations

from autoauto.evaluate.costs.costs import BeginsWhole
from autoauto.evaluate.modes.mode import HasBounds, HasSteps, StepBounds
from autoauto.evaluate.pipelines.measure import Measurements
from autoauto.evaluate.pipelines.plans import Plans
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result, RunResult
from autoauto.space.trial import (
    Trial,
    ended_early,
    latency_s,
    measured_trial,
    run_latency_s,
    unfit_trial,
    with_devices,
)


class PipelineFlow(HasBounds):
    """The `ModeFlow` of pipelines: plan, forecast or measure."""

    def __init__(self, plans: Plans, measurements: Measurements) -> None:
        self.plans, self._measurements = plans, measurements

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """Implements `ModeFlow`."""
        mode, timeline, step_cycles = self.plans.mode(knobs), None, None
        try:
            plan = self.plans.best(knobs)
            if isinstance(mode, HasSteps):
                timeline = mode.step(knobs, plan) if with_timeline else None
                step_cycles = mode.step_cycles(knobs, plan) if timeline is None else timeline.makespan_cycles
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.plans.costs.setting.device_bytes(knobs))
        return self._estimated(knobs, plan, step_cycles, timeline)

    def fits(self, knobs: Knobs) -> bool:
        """Implements `ModeFlow`."""
        try:
            known = None if self.plans.costs.setting.constraints else self.plans.can_be_placed(knobs)
        except DoesNotFit:
            return False
        return self.forecast(knobs).fits if known is None else known

    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """Implements `PlansStages`."""
        return self.plans.best(knobs, progress)

    def gap(self, knobs: Knobs) -> float:
        """Implements `PlansStages`."""
        return self.plans.of_pipeline(knobs).gap

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """Implements `PlansStages`; in training the whole step, of the slowest replica."""
        return self.plans.mode(knobs).timeline(knobs, plan)

    def upper_bound(self, knobs: Knobs) -> Trial | None:
        """Implements `HasBounds`; there is one where costs begin with the whole model."""
        costs = self.plans.costs
        if not isinstance(costs, BeginsWhole):
            return None
        try:
            self.plans.check_weights(knobs)
            parts = costs.bound_plan(knobs)
            if parts is None:
                return None
            plan = self.plans.on_all_replicas(knobs, parts)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, self.plans.costs.setting.device_bytes(knobs))
        return self._estimated(knobs, plan)

    def step_bounds(self, knobs: Knobs) -> StepBounds | None:
        """Implements `HasBounds`."""
        mode = self.plans.mode(knobs)
        return mode.step_bounds(knobs) if isinstance(mode, HasSteps) else None

    def is_bounded_by(self, knobs: Knobs, worth: float) -> bool:
        """Implements `HasBounds`."""
        mode = self.plans.mode(knobs)
        return isinstance(mode, HasSteps) and mode.is_bounded_by(knobs, worth, self.plans)

    def evaluate(self, knobs: Knobs) -> Trial:
        """Implements `ModeFlow`; on real devices a configuration that was measured before has the same cuts again."""
        setting, mode = self.plans.costs.setting, self.plans.mode(knobs)
        estimate: Plan | None = None
        try:
            estimate = self._measurements.known(knobs) or self._measurements.plan(knobs)
            estimate, run = self._measurements.of(knobs, estimate)
        except DoesNotFit as failure:
            return unfit_trial(knobs, failure, setting.device_bytes(knobs), estimate)
        estimated_per_s = mode.samples_per_s(knobs, estimate)
        measured_per_s = self._measurements.samples_per_s(knobs, run)
        if isinstance(self.plans.costs, BeginsWhole):
            self.plans.costs.learn_speed(knobs, estimated_per_s, measured_per_s)
        ends = run.ends(knobs.batch_size, setting.cluster.clock_hz)
        result = Result(
            samples_per_s=measured_per_s,
            estimated_samples_per_s=estimated_per_s,
            latency_s=run_latency_s(knobs, run, setting.cluster.clock_hz),
            output_error=run.output_error,
            run=ends and RunResult.of(ends),
        )
        trial = measured_trial(
            knobs,
            estimate,
            run.plan,
            with_devices(result, knobs, run.plan, setting.cluster),
            device=setting.device_of(knobs),
            timeline=run.timelines[0],
            origin=setting.traits.origin,
            constraints=setting.constraints,
        )
        if run.ended_early:
            return ended_early(trial)
        if trial.fits and ends is not None:
            self._measurements.note(ends)
        return trial

    def _estimated(
        self, knobs: Knobs, plan: Plan, step_cycles: float | None = None, timeline: Timeline | None = None
    ) -> Trial:
        """The trial of a plan by its estimated costs."""
        setting = self.plans.costs.setting
        speed = self.plans.mode(knobs).samples_per_s(knobs, plan, step_cycles)
        result = Result(
            samples_per_s=speed,
            estimated_samples_per_s=speed,
            latency_s=latency_s(knobs, plan, setting.cluster.clock_hz, step_cycles),
        )
        return measured_trial(
            knobs,
            plan,
            plan,
            with_devices(result, knobs, plan, setting.cluster),
            device=setting.device_of(knobs),
            timeline=timeline,
            origin=Origin.ESTIMATED,
            constraints=setting.constraints,
        )
