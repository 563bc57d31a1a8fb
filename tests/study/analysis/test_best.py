"""The best measured trial by one objective, and the Pareto front by several."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from optuna import Study

from autoauto.records.plans.plan import Plan
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective, Objectives
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.best import best_of, best_of_study, front_of
from autoauto.study.methods.protocol import Proposer
from autoauto.study.methods.registry import exhaustive
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.trials import stored_trials, with_plans

if TYPE_CHECKING:
    from tests.study.conftest import Fake

EXHAUSTIVE = Proposer(lambda space, _: exhaustive(space))
SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 101)))


@pytest.mark.parametrize("objective", list(Objective))
def test_the_best_is_read_back_whole(
    storage: str, fake: Fake, plan: Callable[[Knobs], Plan], objective: Objective
) -> None:
    study = open_study(storage, "bow", objective, {})
    run_search(SPACE, fake, study, objective)
    again = load_study(storage, "bow")
    stored = best_of_study(again, stored_trials(again).finished)
    assert stored is not None
    best = with_plans(again, stored)
    assert best.value == study.best_trial.value
    if objective is not Objective.DEVICES:  # of which several trials have as many
        assert best.number == study.best_trial.number
    assert study.trials[best.number].params == {
        "n_ipu": best.knobs.n_ipu,
        "memory_proportion": best.knobs.values["memory_proportion"],
        "batch_size": best.knobs.batch_size,
    }
    assert best.measured == plan(best.knobs)
    assert best.samples_per_s == fake(best.knobs).samples_per_s
    assert best.estimate == fake(best.knobs).estimate


def test_nothing_measured_has_no_best(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    assert best_of_study(study, stored_trials(study).finished) is None
    run_search(SearchSpace((1,), (1.0,), (64, 128)), fake, study, Objective.THROUGHPUT)
    assert len(study.get_trials()) == 2
    assert best_of_study(study, stored_trials(study).finished) is None


def test_ties_within_the_noise_go_to_the_simpler(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    run_search(SearchSpace((1, 2), (0.3,), (30, 60)), fake, study, Objective.THROUGHPUT, method=EXHAUSTIVE)
    trials = stored_trials(study).finished
    knobs = {
        noise: best.knobs
        for noise in (0.0, 0.01, 0.4, 0.6)
        if (best := best_of(trials, Objective.THROUGHPUT, noise)) is not None
    }
    # samples/s: 30 of 1 device 994, 60 of 1 device 997, and twice that by 2 devices, as shares 0.49, 0.5, 0.99 and 1
    assert knobs == {
        0.0: Knobs(n_ipu=2, memory_proportion=0.3, batch_size=60),
        0.01: Knobs(n_ipu=2, memory_proportion=0.3, batch_size=30),
        0.4: Knobs(n_ipu=2, memory_proportion=0.3, batch_size=30),
        0.6: Knobs(n_ipu=1, memory_proportion=0.3, batch_size=30),
    }


def test_a_report_uses_the_noise_of_the_search(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.PER_DEVICE, {"model": "abc"}, {"noise": "0.1"})
    space = SearchSpace((1, 2), (0.3,), (30, 60))
    result = run_search(space, fake, study, Objective.PER_DEVICE, method=EXHAUSTIVE, noise=0.1)
    best = best_of_study(study, stored_trials(study).finished)
    assert best is not None
    assert with_plans(study, best) == result.best
    assert result.best is not None
    assert result.best.knobs == Knobs(n_ipu=1, memory_proportion=0.3, batch_size=30)


BOTH = (Objective.THROUGHPUT, Objective.LATENCY)


def front_read(study: Study, objectives: Objectives) -> tuple[Trial, ...]:
    """The front of the trials in the database."""
    return tuple(with_plans(study, trial) for trial in front_of(stored_trials(study).finished, objectives))


def test_the_front_is_that_of_optuna_without_ties(storage: str, fake: Fake) -> None:
    study = open_study(storage, "two", BOTH, {"model": "abc"})
    space = SearchSpace((1, 2), (0.3, 1.0), (1, 5, 6, 7, 24, 30, 36, 60, 100))
    result = run_search(space, fake, study, BOTH, method=EXHAUSTIVE)
    assert result.best is None
    assert best_of_study(study, stored_trials(study).finished) is None
    assert result.front == front_read(study, BOTH)
    assert {best.values for best in result.front} == {tuple(trial.values) for trial in study.best_trials}
    assert len({best.values for best in result.front}) == len(result.front) > 2
    assert [best.value for best in result.front] == sorted((best.values[0] for best in result.front), reverse=True)


def test_of_equal_trials_the_front_has_the_simplest(storage: str, fake: Fake) -> None:
    study = open_study(storage, "two", BOTH, {})
    result = run_search(SearchSpace((1, 2), (0.3, 1.0), (6,)), fake, study, BOTH, method=EXHAUSTIVE)
    assert [best.knobs for best in result.front] == [
        Knobs(n_ipu=2, memory_proportion=0.3, batch_size=6),
        Knobs(n_ipu=1, memory_proportion=0.3, batch_size=6),
    ]


def test_the_front_of_one_objective_is_the_best(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    result = run_search(SearchSpace((1, 2), (0.3,), (5, 6)), fake, study, Objective.THROUGHPUT, method=EXHAUSTIVE)
    assert result.front == (result.best,) == front_read(study, Objective.THROUGHPUT)


def served(n_stages: int, tokens_per_s: float, status: Status = Status.OK) -> Trial:
    """A pipeline of one GPU a stage, with what it gives."""
    knobs = Knobs(
        n_stages, 8, 8 // n_stages, engine="vllm", tensor_parallel=1, precision="bf16", kv_cache_precision="bf16",
        input_tokens=64, output_tokens=32,
    )  # fmt: skip
    return Trial(knobs, status, samples_per_s=tokens_per_s, values=(tokens_per_s,))


def test_fewer_stages_win_where_the_error_of_forecasts_is_larger_than_the_margin() -> None:
    pipeline, plain = served(4, 1043.0), served(1, 1000.0)
    trials = {trial.knobs: trial for trial in (pipeline, plain)}
    assert best_of(trials, Objective.THROUGHPUT) is plain
    assert best_of(trials, Objective.THROUGHPUT, strict=True) is pipeline


def test_errors_of_ratios_are_known_of_throughput_alone() -> None:
    faster, plain = served(4, 1000.0), served(1, 1043.0)
    trials = {trial.knobs: trial for trial in (faster, plain)}
    assert best_of(trials, Objective.LATENCY) is faster


def test_what_breaks_a_bound_is_no_simpler_answer() -> None:
    pipeline, plain = served(4, 1043.0), served(1, 1000.0, Status.CONSTRAINED)
    trials = {trial.knobs: trial for trial in (pipeline, plain)}
    assert best_of(trials, Objective.THROUGHPUT) is pipeline
