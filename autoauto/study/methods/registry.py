"""The methods of search by name, `MethodChoice`, and the estimate as they ask it, `predictor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import NamedTuple

from optuna.samplers import RandomSampler, TPESampler

from autoauto.evaluate.modes.mode import StepBounds
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objectives, objective_tuple, objectives_text
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.methods.candidates import MAX_MEMORY_DOUBT
from autoauto.study.methods.few import few
from autoauto.study.methods.grid_bisect import BISECTION
from autoauto.study.methods.guided import guided
from autoauto.study.methods.protocol import (
    Forecast,
    Observation,
    Predict,
    Predictor,
    Proposal,
    Proposals,
    Proposer,
    followed_by,
    limited,
    preceded_by,
)
from autoauto.study.methods.sampled import sampled
from autoauto.study.methods.surveyed import Survey
from autoauto.study.store.trials import MAX_VIOLATION

Expect = Callable[[Knobs], Trial]
ExpectBound = Callable[[Knobs], Trial | None]
IsBoundedBy = Callable[[Knobs, float], bool]
MIN_REFINEMENT = 0.001
"""The least share by which a forecast that is a bound (`is_bound`) becomes lower, unless it becomes one that is not."""
RANDOM_SEED = 0  # of the samplers: a search that is resumed draws the same configurations again


class MethodChoice(NamedTuple):
    """A method and what it is given, beside the estimate, which only guided asks, and the objectives.

    Attributes:
        n_measurements: the budget of tpe and random.
        last: one more configuration, which it proposes in the end.
        most: configurations that it measures at most, which `few` then chooses; None for as many as it wants.
    """

    method: Method
    noise: float = 0.0  # share of a value that is noise
    n_measurements: int = 30
    last: Knobs | None = None
    first: tuple[Knobs, ...] = ()
    most: int | None = None

    def proposer(self, predictor: Predictor, objectives: Objectives) -> Proposer:
        """The method, as `run_search` takes it."""
        if self.most is not None:
            method = Proposer(lambda space, known: few(space, known, predictor, self.noise), f"few {self.noise}")
        else:
            n, n_objectives = self.n_measurements, len(objective_tuple(objectives))
            methods: dict[Method, Callable[[SearchSpace, Mapping[Knobs, Observation]], Proposals]] = {
                Method.EXHAUSTIVE: lambda space, _: exhaustive(space),
                Method.GRID_BISECT: BISECTION.start,
                Method.GUIDED: lambda space, known: guided(space, known, predictor, self.noise),
                Method.TPE: lambda space, _: sampled(space, TPESampler(seed=RANDOM_SEED), n, n_objectives),
                Method.RANDOM: lambda space, _: sampled(space, RandomSampler(seed=RANDOM_SEED), n, n_objectives),
            }
            name = f"{self.method} {self.noise}" if self.method is Method.GUIDED else ""
            method = Proposer(methods[self.method], name)
            if self.last is not None:
                method = followed_by(method, self.last)
        return limited(preceded_by(method, self.first), self.most)


def method_for(objectives: Objectives, method: str | None) -> Method:
    """The method of that name, by default guided for one objective and tpe for several; BadInput if it does not fit."""
    several = len(objective_tuple(objectives)) > 1
    default = Method.TPE if several else Method.GUIDED
    name = method or default
    if name not in set(Method):
        raise BadInput(f"method is one of {', '.join(Method)}, got {name!r}")
    if several and name == Method.GUIDED:
        others = ", ".join(known for known in Method if known is not Method.GUIDED)
        raise BadInput(f"guided optimises one objective, got {objectives_text(objectives)}; try --method with {others}")
    return Method(name)


def predictor(
    expect: Expect,
    objectives: Objectives,
    upper_bound: ExpectBound | None = None,
    is_bounded_by: IsBoundedBy | None = None,
    step_bounds: Callable[[Knobs], StepBounds | None] | None = None,
    survey: Survey | None = None,
    *,
    memory_never_falls: bool = False,
) -> Predictor:
    """The estimate of the first objective as a function of the knobs; it is asked once for every configuration.

    So a forecast stays the same during a search, although the estimate is fitted to its measurements; one that only
    says what a configuration does not exceed is replaced when more is asked.

    Args:
        expect: the estimated trial of a configuration.
        upper_bound: one that is no worse and costs less to make; None where `expect` costs as little.
        is_bounded_by: says sooner whether a configuration gives no more than so many samples/s.
        step_bounds: bounds of the estimate, sooner than all of these; used for throughput only, as `is_bounded_by`.
        survey: makes the forecasts of whole cells at once, in place of all others.
    """
    if survey is not None:
        return Predictor(lambda knobs, _=0.0: survey([knobs])[0], survey=survey)
    if not objective_tuple(objectives)[0].is_throughput:  # they are bounds of throughput
        is_bounded_by = step_bounds = None
    upper_bound = upper_bound or (lambda _: None)
    forecast = _forecaster(expect, objectives, upper_bound, is_bounded_by)
    refine = _refiner(expect, objectives, upper_bound)
    limit = _limiter(step_bounds or (lambda _: None))
    return Predictor(forecast, limit, refine, memory_never_falls=memory_never_falls)


def _forecaster(
    expect: Expect, objectives: Objectives, upper_bound: ExpectBound, is_bounded_by: IsBoundedBy | None
) -> Predict:
    known: dict[Knobs, Forecast] = {}
    bounds: dict[Knobs, float] = {}

    def forecast(knobs: Knobs, worth: float = 0.0) -> Forecast:
        if knobs in known:
            return known[knobs]
        # First what costs least: a bound that was made before, one at this worth, one of the score, the estimate.
        if bounds.get(knobs, inf) > worth and is_bounded_by is not None and worth and is_bounded_by(knobs, worth):
            bounds[knobs] = worth
        if bounds.get(knobs, inf) <= worth:
            return Forecast(bounds[knobs], 0.0, is_bound=True)
        best = upper_bound(knobs)
        known[knobs] = _forecast(best or expect(knobs), objectives, is_bound=best is not None)
        return known[knobs]

    return forecast


def _limiter(step_bounds: Callable[[Knobs], StepBounds | None]) -> Callable[[Knobs], float]:
    @cache
    def limit(knobs: Knobs) -> float:
        best = step_bounds(knobs)
        if best is None:
            return inf
        # What lacks so much on its fullest device that the estimate cannot err by as much is not forecast.
        return 0.0 if best.excess > MAX_MEMORY_DOUBT else best.samples_per_s

    return limit


def _refiner(expect: Expect, objectives: Objectives, upper_bound: ExpectBound) -> Callable[[Knobs], Forecast]:
    """Makes a forecast tighter: by what was measured since if that says less, else by `expect`."""
    last: dict[Knobs, float] = {}

    def refine(knobs: Knobs) -> Forecast:
        best = upper_bound(knobs)
        if best is not None:
            forecast = _forecast(best, objectives, is_bound=True)
            if forecast.score is None or forecast.score < last.get(knobs, inf) * (1.0 - MIN_REFINEMENT):
                last[knobs] = forecast.score or 0.0
                return forecast
        return _forecast(expect(knobs), objectives)

    return refine


def _forecast(trial: Trial, objectives: Objectives, *, is_bound: bool = False) -> Forecast:
    expected = objective_tuple(objectives)[0].score_of(trial) if trial.runs else None
    is_unsupported = trial.status is Status.UNSUPPORTED
    return Forecast(
        expected, trial.excess, min(trial.violation, MAX_VIOLATION), is_bound and trial.runs, is_unsupported
    )


def exhaustive(space: SearchSpace) -> Proposals:
    """Propose every configuration of the space, in the order of the grid."""
    grid = [knobs for cell in space.cells for knobs in cell]
    for done, knobs in enumerate(grid):
        yield Proposal(knobs, done, len(grid))
