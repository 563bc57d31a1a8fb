"""A decoder that engines serve, through all rooms: `ServingFlow`.

Nothing is measured: what engines would give is modelled. Forecasts are multiplied by the factors of measured rows and
have their intervals; constraints see the end at which bounds must hold, and an answer says how likely they do:

    times by the tables  ->  x factor  ->  the trial
                         ->  x held    ->  what constraints see: longer latencies, fewer tokens a second
                         ->  x end at  ->  the largest share of rows at whose end all bounds hold: how likely
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf

import numpy as np
from typing_extensions import override

from autoauto.evaluate.modes.mode import ModeFlow
from autoauto.evaluate.serving.costs import Sizes, check_tokens, requests_of, session_of
from autoauto.evaluate.serving.pools.search import Values, best_pools, compared_text
from autoauto.evaluate.serving.pools.ways import PooledWay, PoolWays
from autoauto.evaluate.serving.rates import HIGH, LOW, RatesAt, end_at
from autoauto.evaluate.serving.traffic.curves import rate_curves
from autoauto.evaluate.serving.traffic.trials import MakeTrial, OpenTrials, OpenWay
from autoauto.evaluate.serving.ways import ReplicaWays, Way
from autoauto.evaluate.setting import Setting
from autoauto.profile.profiler import Progress
from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.errors import DoesNotFit, Infeasible
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import Origin
from autoauto.records.units import BoolArray, FloatArray
from autoauto.schedule.times import timeline_of
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import (
    NAMES_OF_GENERATION,
    NO_TOTALS,
    QUANTITIES,
    REQUEST_LATENCY,
    RESULT_NAMES,
    DeviceTotals,
    Result,
    TokenResult,
)
from autoauto.space.table import numbers
from autoauto.space.trial import Status, Trial, measured_trial, unfit_trial, with_devices
from autoauto.targets.gpu.calibration import HELD

_OF_PLANS = {*RESULT_NAMES} - {"samples_per_s", "latency_s", *NAMES_OF_GENERATION}
"""The names of results that forecasts without plans do not have."""
_N_NUMBERS = 12
"""Numbers of replicas that are tried in every window of a trace."""
_N_HALVINGS = 8
"""Until a probability is known to half a percent."""


class ServingFlow(ModeFlow):
    """The `ModeFlow` of generation."""

    forecasts_cells = True

    def __init__(self, setting: Setting) -> None:
        """Take a setting; raises BadInput if its target serves no decoder."""
        self.setting, self._ways = setting, ReplicaWays.of(setting)
        self._pools = PoolWays(self._ways)
        self._one_device = DeviceTotals.of(setting.cluster.of_each)
        traffic = self._ways.costs.target.traffic
        self._open: OpenTrials | None = None
        self._of_forecasts = setting.constraints
        if traffic is not None:
            self._open = OpenTrials(self._ways, traffic, setting.constraints)
            self._of_forecasts = tuple(each for each in setting.constraints if each not in self._open.bounds)
        # Which GPUs a pipeline of several kinds uses, its plan says; of like GPUs all quantities are known without.
        known = {name for name, each in QUANTITIES.items() if setting.cluster.of_each(each) is not None}
        of_plans = _OF_PLANS - known
        self._needs_plans = any(of_plans.intersection(constraint.names) for constraint in self._of_forecasts)

    @property
    @override
    def simulates(self) -> bool:
        """False where clients ask again at once, so that a forecast tells all."""
        return self._open is not None

    @override
    def exceeds(self, knobs: Knobs, worth: float) -> bool:
        assert self._open is not None
        try:
            for way in self._ways_of(knobs, (knobs.batch_size,)):
                make = self._maker(knobs, way, Origin.ESTIMATED, self.setting.constraints)
                if OpenWay(self._open, knobs, way, make).keeps(worth):
                    return True
        except DoesNotFit:
            return False
        return False

    @property
    @override
    def window_s(self) -> float | None:
        return None if self._open is None else self._open.traffic.window_s

    @override
    def replicas_by_window(self, knobs: Knobs) -> Sequence[int]:
        """Windows that some replicas do not serve are not tried with fewer."""
        if self._open is None or self.window_s is None or session_of(knobs).prefill is not None:
            return ()
        holding: BoolArray | None = None
        needed = np.empty(0, dtype=np.int64)
        for replicas in (knobs.replicas, *_numbers_below(knobs.replicas)):
            fewer = replace(knobs, replicas=replicas)
            way, *_ = self._ways.ways(fewer, (knobs.batch_size,))  # like GPUs have one
            make = self._maker(fewer, way, Origin.ESTIMATED, self.setting.constraints)
            # Only the windows that held with more replicas are asked again.
            holding = OpenWay(self._open, fewer, way, make).windows_that_hold(holding)
            if not len(needed):
                needed = np.full(len(holding), replicas)
            needed[holding] = replicas
        return tuple(needed.tolist())

    def best_pools(self, values: Values, replicas: Collection[int] | None = None) -> Trial | None:
        """The forecast of the two pools with the most tokens/s; None if none fits and keeps all bounds.

        Only numbers of `replicas` are tried, any by default; `values` are those of knobs that are searched.
        """
        names = {"tpot_s", "ttft_s", "latency_s", REQUEST_LATENCY}
        bounds = [each for each in self.setting.constraints if names.issuperset(each.names)]

        def keeps(knobs: Knobs, tpot_s: float, ttft_s: float) -> bool:
            at_bound = _numbers(self._trial_of(knobs, TokenResult(tpot_s=tpot_s, ttft_s=ttft_s))) if bounds else {}
            return all(bound.violation(at_bound) <= 0 for bound in bounds)

        return best_pools(self._ways, values, keeps, lambda knobs: self.forecasts((knobs,))[0], replicas)

    def prompt_share(self, knobs: Knobs) -> float:
        """The share of a mean step that computes prompts, of replicas that compute both, which fit."""
        step_s: list[float] = []
        for each in (replace(knobs, session=session_of(knobs).of_decode), knobs):
            way, *_ = self._ways.ways(each, (knobs.batch_size,))
            step_s.append(way.replicas[0].rates.rates.period_s.item())
        return 1 - step_s[0] / step_s[1]

    def pools_text(self, single: Trial | None, pooled: Trial | None) -> str:
        """A line for people: which of the best of one pool and of two gives more, and why."""
        return compared_text(single, pooled, None if single is None else self.prompt_share(single.knobs))

    @override
    def forecast(self, knobs: Knobs, *, with_timeline: bool = False) -> Trial:
        """There is no timeline; where one is asked for, arrivals are simulated instead."""
        return self._trial(knobs, Origin.ESTIMATED, simulates=with_timeline)

    @override
    def evaluate(self, knobs: Knobs) -> Trial:
        """Give the numbers of the forecast, or of simulated arrivals."""
        return self._trial(knobs, Origin.MODELLED, simulates=True)

    @override
    def best_plan(self, knobs: Knobs, progress: Progress | None = None) -> Plan:
        """Give the cuts with the shortest mean step of the slowest stage."""
        plan = self._best(knobs, Origin.ESTIMATED).plan
        assert isinstance(plan, Plan)
        return plan

    @override
    def gap(self, knobs: Knobs) -> float:
        """Cuts of equal blocks are exact."""
        return 0.0

    @override
    def timeline(self, knobs: Knobs, plan: Plan) -> Timeline:
        return timeline_of(knobs.step, plan)

    @override
    def forecasts(self, cell: Sequence[Knobs]) -> Sequence[Trial]:
        """A constraint on the stages of a plan needs the plan."""
        if self._needs_plans:
            return list(map(self.forecast, cell))
        try:
            ways = self._ways_of(cell[0], tuple(knobs.batch_size for knobs in cell))
        except DoesNotFit as failure:
            return [self._unfit(knobs, failure) for knobs in cell]
        if self._of_forecasts or self._open is not None:
            trials: list[Trial] = []
            for index, knobs in enumerate(cell):
                trials.append(max((self._without_plan(knobs, way, index) for way in ways), key=_preference))
            return trials
        # Without bounds `_preference` of all batch sizes is an array: tokens/s, or below 0 the memory that lacks.
        worth: list[FloatArray] = []
        for way in ways:
            lacking = np.where(way.excess_bytes > 0, way.excess_bytes, np.inf)
            worth.append(np.where(way.fits, way.rates.tokens_per_s, -lacking))
        best = np.argmax(worth, axis=0)
        return [self._without_plan(knobs, ways[best[index]], index) for index, knobs in enumerate(cell)]

    def _ways_of(self, knobs: Knobs, sizes: Sizes) -> Sequence[Way | PooledWay]:
        if session_of(knobs).prefill is None:
            return self._ways.ways(knobs, sizes)
        return self._pools.ways(knobs, sizes)

    def _without_plan(self, knobs: Knobs, way: Way | PooledWay, index: int) -> Trial:
        try:
            if not way.fits[index]:
                raise Infeasible("no cuts fit", round(way.excess_bytes[index]))
            check_tokens(knobs, self._ways.costs.target.speculation)
            rates, lacks = way.rates.of(index), 0.0
            if self._open is not None:
                rates, lacks = self._open.bound(knobs, way, index, rates)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)
        trial = self._trial_of(knobs, rates)
        if lacks:
            return replace(trial, violation=lacks, status=Status.CONSTRAINED)
        if not self._of_forecasts:
            return trial
        at_bound = _numbers(self._trial_of(knobs, way.held_rates.of(index)))
        violation = max(constraint.violation(at_bound) for constraint in self._of_forecasts)
        return replace(trial, violation=violation, status=Status.CONSTRAINED if violation > 0 else Status.OK)

    def _trial(self, knobs: Knobs, origin: Origin, *, simulates: bool = False) -> Trial:
        try:
            return self._best(knobs, origin, simulates=simulates)
        except DoesNotFit as failure:
            return self._unfit(knobs, failure)

    def _best(self, knobs: Knobs, origin: Origin, *, simulates: bool = False) -> Trial:
        """The trial of the best way."""
        trials: list[Trial] = []
        failures: list[Infeasible] = []
        for way in self._ways_of(knobs, (knobs.batch_size,)):
            try:
                trials.append(self._with_plan(knobs, way, origin, simulates=simulates))
            except Infeasible as failure:
                failures.append(failure)
        if not trials:
            raise min(failures, key=lambda failure: failure.excess_bytes or inf)
        check_tokens(knobs, self._ways.costs.target.speculation)
        return max(trials, key=_preference)

    def _with_plan(self, knobs: Knobs, way: Way | PooledWay, origin: Origin, *, simulates: bool) -> Trial:
        low, high = way.at(LOW).of(0), way.at(HIGH).of(0)
        rates = replace(
            way.rates.of(0),
            tpot_low_s=low.tpot_s,
            tpot_high_s=high.tpot_s,
            ttft_low_s=low.ttft_s,
            ttft_high_s=high.ttft_s,
        )
        constraints = self.setting.constraints if simulates else self._of_forecasts
        make = self._maker(knobs, way, origin, constraints)
        if self._open is not None and simulates:
            check_tokens(knobs, self._ways.costs.target.speculation)
            return OpenWay(self._open, knobs, way, make).trial()

        def holds(rates: RatesAt) -> bool:
            return make(_result_of(knobs, rates.of(0)), True).violation <= 0

        if constraints and origin is Origin.MODELLED:
            probability = _probability(lambda share: holds(way.at(end_at(share))))
            rates = replace(rates, bounds_probability=probability)
        trial, at_bound = make(_result_of(knobs, rates), False), make(_result_of(knobs, way.held_rates.of(0)), True)
        reason = at_bound.reason
        has_margin = at_bound.tokens.tpot_s != trial.tokens.tpot_s or at_bound.tokens.ttft_s != trial.tokens.ttft_s
        if reason and has_margin:
            reason += f", at the end of the interval that {100 * HELD:.0f} % of measured rows keep"
        return replace(trial, status=at_bound.status, reason=reason, violation=at_bound.violation)

    def _maker(
        self, knobs: Knobs, way: Way | PooledWay, origin: Origin, constraints: Sequence[Constraint]
    ) -> MakeTrial:
        plan = way.plan(0)
        device, cluster = self.setting.hardware(knobs.session).devices[0], self.setting.cluster

        def make(result: Result, bounded: bool) -> Trial:
            priced = with_devices(result, knobs, plan, cluster)
            bounds = constraints if bounded else ()
            return measured_trial(knobs, plan, plan, priced, device=device, origin=origin, constraints=bounds)

        return make

    @override
    def rate_curves(self, best: Trial) -> RateCurves | None:
        opened, load, knobs = self._open, best.result.load, best.knobs
        # Of two pools no line has fewer of both; without a rate no bound holds at any.
        if opened is None or load is None or not load.rate_per_s or session_of(knobs).prefill is not None:
            return None
        ways = [way for way in self._ways.ways(knobs, (knobs.batch_size,)) if way.fits[0]]
        way = ways[0]
        if len(ways) > 1:
            way = max(ways, key=lambda each: _preference(self._with_plan(knobs, each, Origin.MODELLED, simulates=True)))
        make = self._maker(knobs, way, Origin.MODELLED, self.setting.constraints)

        def loaded(n_replicas: int) -> OpenWay:
            return OpenWay(opened, knobs, way, make, n_replicas)

        is_given = opened.rate_per_s is not None
        try:
            return rate_curves(loaded, knobs.replicas, load.rate_per_s, opened.bounds, is_given=is_given)
        except DoesNotFit:  # more requests of unlike lengths have longer ones
            return None

    def _trial_of(self, knobs: Knobs, rates: TokenResult) -> Trial:
        result = _result_of(knobs, rates, self._one_device.times(knobs.n_devices))
        return Trial(knobs, Status.OK, result=result, origin=Origin.ESTIMATED)

    def _unfit(self, knobs: Knobs, failure: DoesNotFit) -> Trial:
        return unfit_trial(knobs, failure, int(self.setting.hardware(knobs.session).devices[0].memory_bytes))


def _result_of(knobs: Knobs, rates: TokenResult, devices: DeviceTotals = NO_TOTALS) -> Result:
    return Result(
        samples_per_s=rates.tokens_per_s,
        estimated_samples_per_s=rates.tokens_per_s,
        latency_s=rates.ttft_s + (requests_of(knobs).output_tokens - 1) * rates.tpot_s,
        of_mode=rates,
        devices=devices,
    )


def _numbers_below(n: int) -> list[int]:
    """Whole numbers below n to 1, all or `_N_NUMBERS` of them.

    >>> _numbers_below(4), _numbers_below(1)
    ([3, 2, 1], [])
    """
    numbers = np.unique(np.linspace(1, n - 1, min(n - 1, _N_NUMBERS)).round())
    return [int(number) for number in numbers[::-1]]


def _probability(holds: Callable[[float], bool]) -> float:
    """How likely bounds hold: the largest share at whose end they do. Errors of all latencies are taken as one."""
    low, high = 0.0, 1.0
    for _ in range(_N_HALVINGS):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _preference(trial: Trial) -> tuple[bool, float, float]:
    """Larger for the better of several ways: what runs, what keeps bounds or is nearer to them, what gives more.

    Of ways that do not run it is larger for the one that lacks less memory, if memory is the reason.
    """
    if not trial.runs:
        return False, 0.0, -(trial.excess_bytes or inf)
    return True, -max(trial.violation, 0.0), trial.samples_per_s


def _numbers(trial: Trial) -> dict[str, float]:
    return {**numbers(trial.knobs), **trial.result.values, **trial.result.derived}
