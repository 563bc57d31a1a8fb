"""A decoder that engines serve, through all rooms: `ServingFlow`.

Nothing is measured: what engines would give is modelled. Forecasts are multiplied by the factors of measured rows and
have their intervals; constraints see the end at which bounds must hold, and an answer says how likely they do:

    times by the tables  ->  x factor  ->  the trial
                         ->  x held    ->  what constraints see: longer latencies, fewer tokens a second
                         ->  x end at  ->  the largest share of rows at whose end all bounds hold: how likely
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from autoauto.evaluate.serving.costs import check_tokens, requests_of
from autoauto.evaluate.serving.rates import HIGH, LOW, end_at
from autoauto.evaluate.serving.ways import ReplicaWays, Way
from autoauto.evaluate.setting import Setting
from autoauto.profile.profiler import Progress
from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.schedule.times import timeline_of
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import NAMES_OF_GENERATION, REQUEST_LATENCY, RESULT_NAMES, Result, TokenResult
from autoauto.space.table import numbers
from autoauto.space.trial import Status, Trial, measured_trial, unfit_trial
from autoauto.targets.gpu.calibration import HELD

_OF_PLANS = {*RESULT_NAMES} - {"samples_per_s", "latency_s", *NAMES_OF_GENERATION}
"""The names of results that forecasts without plans do not have."""
_N_HALVINGS = 8
"""Until a probability is known to half a percent."""


class ServingFlow:
    """The `ModeFlow` of generation."""

    def __init__(self, setting: Setting) -> None:
        """Take a setting.

        Raises:
            BadInput: its target serves no decoder.
        """
        self.setting, self._ways = setting, ReplicaWays.of(setting)
        self._needs_plans = any(_OF_PLANS.intersection(constraint.names) for constraint in setting.constraints)

    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """Implements `ModeFlow`; it has no timeline."""
        return self._trial(knobs, Origin.ESTIMATED)

    def evaluate(self, knobs: Knobs) -> Trial:
        """Implements `ModeFlow`; the numbers of the forecast."""
        return self._trial(knobs, Origin.MODELLED)

    def fits(self, knobs: Knobs) -> bool:
        """Implements `ModeFlow`; the forecast tells."""
        return self.forecast(knobs).fits

    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """Implements `PlansStages`; the cuts with the shortest mean step of the slowest stage."""
        plan = self._best(knobs, Origin.ESTIMATED).plan
        assert isinstance(plan, Plan)
        return plan

    def gap(self, knobs: Knobs) -> float:
        """Implements `PlansStages`; cuts of equal blocks are exact."""
        return 0.0

    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        """Implements `PlansStages`; mean steps of micro-batches."""
        return timeline_of(knobs.step, plan)

    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial]:
        """Implements `ForecastsCells`; a constraint on the stages of a plan needs the plan."""
        if self._needs_plans:
            return list(map(self.forecast, cell))
        try:
            ways = self._ways.ways(cell[0], tuple(knobs.batch_size for knobs in cell))
        except DoesNotFit as failure:
            return [self._unfit(knobs, failure) for knobs in cell]
        if self.setting.constraints:
            every = [[self._without_plan(knobs, way, index) for way in ways] for index, knobs in enumerate(cell)]
            return [max(trials, key=_preference) for trials in every]
        lacking = [np.where(way.excess_bytes > 0, way.excess_bytes, np.inf) for way in ways]
        worth = [np.where(way.fits, way.rates.tokens_per_s, -n) for way, n in zip(ways, lacking, strict=True)]
        best = np.argmax(worth, axis=0)
        return [self._without_plan(knobs, ways[best[index]], index) for index, knobs in enumerate(cell)]

    def _without_plan(self, knobs: Knobs, way: Way, index: int) -> Trial:
        """The forecast of one batch size of a cell."""
        try:
            if not way.fits[index]:
                raise Infeasible("no cuts fit", round(way.excess_bytes[index]))
            check_tokens(knobs)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        trial, constraints = _trial_of(knobs, way.rates.of(index)), self.setting.constraints
        if not constraints:
            return trial
        at_bound = _numbers(_trial_of(knobs, way.held_rates.of(index)))
        violation = max(constraint.violation(at_bound) for constraint in constraints)
        return replace(trial, violation=violation, status=Status.CONSTRAINED if violation > 0 else Status.OK)

    def _trial(self, knobs: Knobs, origin: Origin) -> Trial:
        try:
            return self._best(knobs, origin)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)

    def _best(self, knobs: Knobs, origin: Origin) -> Trial:
        """The trial of the best way.

        Raises:
            Infeasible: no way fits; the error is of the one that lacks least.
            Unsupported: as `check_tokens` and `ReplicaWays.ways`.
        """
        trials: list[Trial] = []
        failures: list[Infeasible] = []
        for way in self._ways.ways(knobs, (knobs.batch_size,)):
            try:
                trials.append(self._with_plan(knobs, way, origin))
            except Infeasible as failure:
                failures.append(failure)
        if not trials:
            raise min(failures, key=lambda failure: failure.excess_bytes or inf)
        check_tokens(knobs)
        return max(trials, key=_preference)

    def _with_plan(self, knobs: Knobs, way: Way, origin: Origin) -> Trial:
        """The trial of a way at the only batch size that it has; raises Infeasible where it does not fit."""
        plan = way.plan(0)
        rates, low, high, at_bound = (each.of(0) for each in (way.rates, way.at(LOW), way.at(HIGH), way.held_rates))
        rates = replace(
            rates, tpot_low_s=low.tpot_s, tpot_high_s=high.tpot_s, ttft_low_s=low.ttft_s, ttft_high_s=high.ttft_s
        )
        device = self.setting.hardware(knobs.session).devices[0]
        constraints = self.setting.constraints

        def trial(rates: TokenResult, bounds: Sequence[Constraint]) -> Trial:
            result = _result_of(knobs, rates)
            return measured_trial(knobs, plan, plan, result, device=device, origin=origin, constraints=bounds)

        if constraints and origin is Origin.MODELLED:
            probability = _probability(lambda share: trial(way.at(end_at(share)).of(0), constraints).violation <= 0)
            rates = replace(rates, bounds_probability=probability)
        return _held_trial(trial(rates, ()), trial(at_bound, constraints))

    def _unfit(self, knobs: Knobs, failure: DoesNotFit) -> Trial:
        return unfit_trial(knobs, failure, int(self.setting.hardware(knobs.session).devices[0].memory_bytes))


def _result_of(knobs: Knobs, rates: TokenResult) -> Result:
    """All numbers that follow from the rates of a configuration."""
    return Result(
        samples_per_s=rates.tokens_per_s,
        estimated_samples_per_s=rates.tokens_per_s,
        latency_s=rates.ttft_s + (requests_of(knobs).output_tokens - 1) * rates.tpot_s,
        of_mode=rates,
    )


def _probability(holds: Callable[[float], bool]) -> float:
    """How likely bounds hold: the largest share at whose end they do. Errors of all latencies are taken as one."""
    low, high = 0.0, 1.0
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def _held_trial(trial: Trial, at_bound: Trial) -> Trial:
    """A trial with the constraints that hold at the end of its interval at which bounds must."""
    has_margin = at_bound.tokens.tpot_s != trial.tokens.tpot_s or at_bound.tokens.ttft_s != trial.tokens.ttft_s
    end = f", at the end of the interval that {100 * HELD:.0f} % of measured rows keep" if has_margin else ""
    reason = f"{at_bound.reason}{end}" if at_bound.reason else ""
    return replace(trial, status=at_bound.status, reason=reason, violation=at_bound.violation)


def _preference(trial: Trial) -> tuple[bool, float, float]:
    """Larger for the better of several ways: what runs, what keeps bounds or is nearer to them, what gives more.

    Of ways that do not run it is the one that lacks least memory, if memory is the reason.
    """
    if not trial.runs:
        return False, 0.0, -(trial.excess_bytes or inf)
    return True, -max(trial.violation, 0.0), trial.samples_per_s


def _trial_of(knobs: Knobs, rates: TokenResult) -> Trial:
    """A trial without plans."""
    return Trial(knobs, Status.OK, result=_result_of(knobs, rates), origin=Origin.ESTIMATED)


def _numbers(trial: Trial) -> dict[str, float]:
    """What constraints may name of a trial without plans."""
    return {**numbers(trial.knobs), **trial.result.values, REQUEST_LATENCY: trial.latency_s}
