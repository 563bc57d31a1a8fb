"""One suite for all methods, on a real study; `exhaustive`; and forecasts from the estimate."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective, Objectives
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial, apply_constraints
from autoauto.study.methods.registry import MethodChoice, exhaustive, predictor
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study
from tests.drawn import daily

if TYPE_CHECKING:
    from tests.study.conftest import Fake


SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 5, 6, 7, 24, 30, 36, 37, 60, 72, 100))
ALL = pytest.mark.parametrize("method", Method)
OTHER_PAIRS = [
    (method, objective)
    for method, objective in product(Method, Objective)
    if method is not Method.GUIDED and objective is not Objective.THROUGHPUT
]


class Expect:
    """An estimate that is exact."""

    def __init__(self, fake: Fake) -> None:
        self.fake = type(fake)(tied=fake.tied, constraints=fake.constraints)

    def __call__(self, knobs: Knobs) -> Trial:
        return self.fake(knobs)


def proposer(method: Method, fake: Fake, objective: Objectives = Objective.THROUGHPUT, n_measurements: int = 10):  # type: ignore[no-untyped-def]
    choice = MethodChoice(method, n_measurements=n_measurements)
    return choice.proposer(predictor(Expect(fake), objective), objective)


@pytest.mark.parametrize(
    ("method", "objective"),
    [
        *((method, Objective.THROUGHPUT) for method in Method),
        *((Method.GUIDED, objective) for objective in Objective if objective is not Objective.THROUGHPUT),
        *daily(OTHER_PAIRS, 0, several=True),
    ],
)
def test_no_configuration_is_measured_twice_or_outside_the_space_and_the_best_measured_wins(
    storage: str, fake: Fake, method: Method, objective: Objective
) -> None:
    study = open_study(storage, "bow", objective, {"model": "abc"})
    result = run_search(SPACE, fake, study, objective, method=proposer(method, fake, objective))
    assert len(fake.calls) == len(set(fake.calls)) == result.counts.n_tried
    assert all(knobs in SPACE for knobs in fake.calls)
    assert result.counts.n_measured == result.counts.n_tried  # the fake always has a plan
    assert result.counts.n_configurations == 4 * 11
    values = [trial.value for trial in study.get_trials() if trial.value is not None]
    assert result.best is not None
    assert result.best.value == (max(values) if objective is Objective.THROUGHPUT else min(values))


@ALL
def test_a_finished_search_measures_nothing_again(storage: str, fake: Fake, method: Method) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    first = run_search(SPACE, fake, study, Objective.THROUGHPUT, method=proposer(method, fake))
    calls = list(fake.calls)
    again = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    assert run_search(SPACE, fake, again, Objective.THROUGHPUT, method=proposer(method, fake)) == first
    assert fake.calls == calls
    assert len(again.get_trials()) == len(calls)


@ALL
def test_an_interrupted_search_resumes(storage: str, fake: Fake, method: Method) -> None:
    class Stop(Exception):
        pass

    def stops(knobs: Knobs) -> Trial:
        if len(fake.calls) == 2:
            raise Stop
        return fake(knobs)

    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    with pytest.raises(Stop):
        run_search(SPACE, stops, study, Objective.THROUGHPUT, method=proposer(method, fake))
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT, method=proposer(method, fake))
    assert len(fake.calls) == len(set(fake.calls)) == result.counts.n_tried


@ALL
def test_where_nothing_fits_there_is_a_reason(storage: str, fake: Fake, method: Method) -> None:
    fake.tied = 2
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    space = SearchSpace((2,), (0.3, 1.0), (1, 2, 3))
    result = run_search(space, fake, study, Objective.THROUGHPUT, method=proposer(method, fake))
    assert result.best is None
    assert result.cells[-1].trials[0].reason == "tied weights leave no cut"


@ALL
def test_a_space_of_one_configuration(storage: str, fake: Fake, method: Method) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    only = SearchSpace((2,), (0.3,), (7,))
    result = run_search(only, fake, study, Objective.THROUGHPUT, method=proposer(method, fake))
    assert fake.calls == [Knobs(n_ipu=2, memory_proportion=0.3, batch_size=7)]
    assert result.best is not None


@pytest.mark.parametrize("objective", daily(list(Objective), 2))
def test_guided_finds_what_exhaustive_finds(storage: str, fake: Fake, objective: Objective) -> None:
    best = {}
    for method in (Method.EXHAUSTIVE, Method.GUIDED):
        study = open_study(storage, method, objective, {"model": "abc"})
        result = run_search(SPACE, fake, study, objective, method=proposer(method, fake, objective))
        assert result.best is not None
        best[method] = (result.best.samples_per_s, result.best.value)
    assert best[Method.GUIDED] == best[Method.EXHAUSTIVE]
    assert len(fake.calls) < 1.5 * 44


@pytest.mark.parametrize("method", [Method.TPE, Method.RANDOM])
def test_samplers_measure_the_requested_number_of_configurations(storage: str, fake: Fake, method: Method) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT, method=proposer(method, fake, n_measurements=9))
    assert result.counts.n_measured == 9


def test_a_forecast_holds_the_free_share_of_the_fullest_device(fake: Fake) -> None:
    predict = predictor(Expect(fake), Objective.PER_DEVICE)
    fitting, failing = (
        predict.forecast(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=20)),
        predict.forecast(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=60)),
    )
    assert fitting.excess == pytest.approx((100 + 20 * 25 - 1000) / 1000)
    measured = fake(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=20)).measured
    assert measured is not None
    assert fitting.score == pytest.approx(20 / measured.cost_cycles)
    assert failing.score is None
    assert failing.excess == pytest.approx((100 + 60 * 25 - 1000) / 1000)


@ALL
def test_a_configuration_that_violates_a_constraint_is_never_the_best(storage: str, fake: Fake, method: Method) -> None:
    bound = Constraint("latency_s <= 2e-5")
    fake.constraints = (bound,)
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT, method=proposer(method, fake, n_measurements=25))
    assert result.best is not None
    assert result.best.latency_s <= 2e-5
    for trial in study.get_trials():
        broken = trial.user_attrs.get("latency_s", 0.0) > 2e-5
        assert broken == str(trial.user_attrs.get("reason")).startswith(
            "latency_s <= 2e-05 does not hold: latency_s is"
        )
        if broken:
            assert (trial.state.name, trial.user_attrs["status"]) == ("PRUNED", "constrained")
            assert trial.system_attrs["constraints"][0] > 0
    if method in (Method.EXHAUSTIVE, Method.GUIDED):
        fits = [fake(knobs) for cell in SPACE.cells for knobs in cell]
        assert result.best.samples_per_s == max(trial.samples_per_s for trial in fits if trial.fits)


def test_guided_measures_few_configurations_that_violate_a_constraint_by_the_estimate(storage: str, fake: Fake) -> None:
    space = SearchSpace((1, 2), (0.3,), tuple(range(1, 101)))
    fake.constraints = (Constraint("latency_s <= 2e-5"),)
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(space, fake, study, Objective.THROUGHPUT, method=proposer(Method.GUIDED, fake))
    broken = [trial for trial in study.get_trials() if trial.user_attrs["status"] == "constrained"]
    assert len(broken) <= 1 < len(study.get_trials()) <= 4


@pytest.mark.parametrize("method", [Method.EXHAUSTIVE, Method.GRID_BISECT, Method.TPE, Method.RANDOM])
def test_several_objectives_are_traded(storage: str, fake: Fake, method: Method) -> None:
    objectives = (Objective.THROUGHPUT, Objective.LATENCY)
    study = open_study(storage, "two", objectives, {"model": "abc"})
    space = SPACE.with_values(constraints=(Constraint("batch_size * n_ipu <= 144"),))
    result = run_search(space, fake, study, objectives, method=proposer(method, fake, objectives, n_measurements=20))
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert all(knobs in space for knobs in fake.calls)
    fitting = [trial for trial in map(fake, list(fake.calls)) if trial.fits]
    best = max(fitting, key=lambda trial: trial.samples_per_s)
    quickest = min(fitting, key=lambda trial: trial.latency_s)
    assert result.front[0].samples_per_s == best.samples_per_s
    assert result.front[-1].latency_s == quickest.latency_s


def test_a_forecast_holds_how_far_a_constraint_is_from_holding(fake: Fake) -> None:
    fake.constraints = (Constraint("latency_s <= 2e-5"),)
    predict = predictor(Expect(fake), Objective.THROUGHPUT)
    near, far = (
        predict.forecast(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=18)),
        predict.forecast(Knobs(n_ipu=1, memory_proportion=0.3, batch_size=36)),
    )
    assert near.works
    assert near.violation == pytest.approx(1 - 2e-5 / 18_100e-9)
    assert not far.works
    assert far.score is not None  # it fits, and its score is known
    assert far.shortfall == far.violation == pytest.approx(36_100e-9 / 2e-5 - 1)


def test_the_minimum_latency_for_a_throughput_is_found(storage: str, fake: Fake) -> None:
    space = SearchSpace((1,), (0.3,), tuple(range(1, 101)))
    fake.constraints = (Constraint("samples_per_s >= 980000"),)
    study = open_study(storage, "bow", Objective.LATENCY, {})
    result = run_search(space, fake, study, Objective.LATENCY, method=proposer(Method.GUIDED, fake, Objective.LATENCY))
    assert result.best is not None
    n_tried = len(fake.calls)
    trials = [fake(knobs) for cell in space.cells for knobs in cell]
    assert result.best.latency_s == min(trial.latency_s for trial in trials if trial.fits)
    assert n_tried <= 4


class Pessimistic(Expect):
    """An estimate whose latencies are 3 % too long."""

    def __call__(self, knobs: Knobs) -> Trial:
        trial = self.fake(knobs)
        return apply_constraints(trial.with_values(latency_s=trial.latency_s * 1.03), self.fake.constraints)


def test_an_error_of_a_constrained_quantity_is_fitted_for_all_cells_at_once(storage: str, fake: Fake) -> None:
    space = SearchSpace((1, 2), (0.3, 0.4, 0.5, 0.6, 0.7), tuple(range(1, 101)))
    fake.constraints = (Constraint("latency_s <= 12.3e-6"),)
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    predict = predictor(Pessimistic(fake), Objective.THROUGHPUT)
    method = MethodChoice(Method.GUIDED).proposer(predict, Objective.THROUGHPUT)
    result = run_search(space, fake, study, Objective.THROUGHPUT, method=method)
    n_tried = len(fake.calls)
    assert result.best is not None
    trials = [fake(knobs) for cell in space.cells for knobs in cell]
    assert result.best.samples_per_s == max(trial.samples_per_s for trial in trials if trial.fits)
    assert n_tried <= 6


def test_exhaustive_proposes_every_configuration_in_the_order_of_the_grid(world: Callable[..., Any]) -> None:
    for seed in range(20):
        a_world = world(seed)
        assert list(a_world.run(exhaustive(a_world.space))) == [knobs for cell in a_world.space.cells for knobs in cell]
        assert a_world.predicted == []


def test_progress_of_exhaustive_counts_configurations() -> None:
    proposals = exhaustive(SearchSpace((1, 2), (0.6,), (4, 8)))
    assert [(proposal.knobs, proposal.done, proposal.total) for proposal in proposals] == [
        (Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4), 0, 4),
        (Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8), 1, 4),
        (Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4), 2, 4),
        (Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), 3, 4),
    ]
