"""The methods of search by name: `method_of`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from optuna.samplers import RandomSampler, TPESampler

from autoauto.records.errors import BadInput
from autoauto.records.knobs import Aim, Knobs, Method, SearchSpace, aim_name, objectives_of
from autoauto.records.plan import Plan
from autoauto.records.trial import Outcome
from autoauto.study.methods.guided import guided
from autoauto.study.methods.protocol import Forecast, Predict, Propose, Step, Steps, Tried
from autoauto.study.methods.sampled import sampled
from autoauto.study.objectives import objective_value, score
from autoauto.study.run import BISECTION
from autoauto.study.store.trials import MOST

SEED = 0  # of the samplers: a search that is resumed draws the same again


def method_of(
    method: Method,
    expect: Callable[[Knobs], Outcome],
    aim: Aim,
    noise: float = 0.0,
    n_measurements: int = 30,
) -> Propose:
    """The method that `run_search` takes.

    Args:
        method: its name.
        expect: what the estimate says of a configuration, as if it had been measured; only guided asks.
        aim: of the search; guided goes for the first objective.
        noise: share of a value that is noise; only guided minds.
        n_measurements: after which the samplers stop.
    """
    predict, n_objectives = predictor(expect, aim), len(objectives_of(aim))
    methods: dict[Method, Callable[[SearchSpace, Mapping[Knobs, Tried]], Steps]] = {
        Method.EXHAUSTIVE: lambda space, _: exhaustive(space),
        Method.GRID_BISECT: BISECTION.begin,
        Method.GUIDED: lambda space, known: guided(space, known, predict, noise),
        Method.TPE: lambda space, _: sampled(space, TPESampler(seed=SEED), n_measurements, n_objectives),
        Method.RANDOM: lambda space, _: sampled(space, RandomSampler(seed=SEED), n_measurements, n_objectives),
    }
    return Propose(methods[method], f"{method} {noise}" if method is Method.GUIDED else "")


def method_for(aim: Aim, method: str | None) -> Method:
    """The method of that name or, without one, that fits how many objectives there are.

    Raises:
        BadInput: there is no such method, or it knows no several objectives.
    """
    several = len(objectives_of(aim)) > 1
    name = method or (Method.TPE if several else Method.GUIDED)
    if name not in set(Method):
        raise BadInput(f"method is one of {', '.join(Method)}, got {name!r}")
    if several and name == Method.GUIDED:
        others = ", ".join(known for known in Method if known is not Method.GUIDED)
        raise BadInput(f"guided goes for one objective, got {aim_name(aim)}; try --method with {others}")
    return Method(name)


def predictor(expect: Callable[[Knobs], Outcome], aim: Aim) -> Predict:
    """What the estimate says, as a method of search asks for it; asked again, it says the same.

    Its score is of the first objective.
    """
    objective = objectives_of(aim)[0]

    @cache
    def predict(knobs: Knobs) -> Forecast:
        outcome = expect(knobs)
        if outcome.measured is None:
            return Forecast(None, outcome.excess_bytes / outcome.memory_bytes)
        plan = outcome.measured
        parts = plan.stages if isinstance(plan, Plan) else plan.phases
        fullest = max(part.total_bytes - part.limit_bytes for part in parts) / outcome.memory_bytes
        return Forecast(score(objective, objective_value(objective, outcome)), fullest, min(outcome.miss, MOST))

    return predict


def exhaustive(space: SearchSpace) -> Steps:
    """Try all there is: what other methods are judged by."""
    grid = [knobs for cell in space.cells for knobs in cell]
    for done, knobs in enumerate(grid):
        yield Step(knobs, done, len(grid))
