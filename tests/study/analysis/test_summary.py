"""A study summarised: cells, trials, failures and finalists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.study.analysis.best import summarise_study
from autoauto.study.execution.process import Evaluate
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.study.conftest import Fake


ORDERS = (Order.GPIPE, Order.ONE_F_ONE_B)


def test_the_cells_of_a_study_are_those_of_its_search(storage: str, fake: Fake) -> None:
    fake.tied = 2
    space = SearchSpace(
        (1, 2), (0.6,), tuple(range(1, 100)), schedule=ORDERS, recompute=(False, True), n_micro_batches=(8,)
    )
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(space, fake, study, Objective.THROUGHPUT)
    assert set(summarise_study(study, storage).cells) == set(result.cells)
    assert [(c.knobs.n_ipu, c.knobs.mode.order, c.knobs.mode.recompute) for c in result.cells] == [
        (n, order, recompute) for n in (1, 2) for order in ORDERS for recompute in (False, True)
    ]
    fitting, failing = result.cells[0], result.cells[-1]
    assert fitting.largest is not None
    assert fitting.best is not None
    assert fitting.largest.knobs.batch_size == 60  # 100 + batch * 25 * 0.6 bytes of 1,000
    assert (failing.best, failing.largest) == (None, None)
    best = max(
        fake(
            Knobs(
                n_ipu=1,
                memory_proportion=0.6,
                batch_size=batch_size,
                schedule=Order.GPIPE,
                recompute=False,
                n_micro_batches=8,
            )
        ).samples_per_s
        for batch_size in (50, 60)
    )
    assert fitting.best.samples_per_s >= best
    assert failing.trials[0].reason == "tied weights leave no cut"


SPACE = SearchSpace((1, 2), (0.6, 1.0), tuple(range(1, 65)))


def test_a_summary_holds_every_trial_and_the_finalists(storage: str, fake: Evaluate, plan: Callable[..., Plan]) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    summary = summarise_study(study, storage, n_finalists=3)
    assert (summary.study_name, summary.storage, summary.attributes["model"]) == ("bow", storage, "abc")
    assert len(summary.trials) == result.counts.n_tried
    assert sum(trial.was_measured for trial in summary.trials) == result.counts.n_measured
    assert summary.winner is not None
    assert summary.winner == result.best
    assert (summary.winner.measured, summary.winner.estimate) == (
        plan(summary.winner.knobs),
        plan(summary.winner.knobs, 0.9),
    )
    without_plans = [replace(finalist, measured=None, estimate=None) for finalist in summary.finalists]
    assert without_plans == list(summary.ranked[:3])
    assert all(finalist.measured == plan(finalist.knobs) for finalist in summary.finalists)
    assert {(cell.knobs, cell.largest) for cell in summary.cells} == {
        (cell.knobs, cell.largest) for cell in result.cells
    }


def test_a_trial_that_does_not_fit_has_a_reason(storage: str, fake: Evaluate) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    space = SearchSpace((1,), (1.0,), (100,))
    run_search(space, fake, study, Objective.THROUGHPUT)
    summary = summarise_study(study, storage)
    (trial,) = summary.trials
    assert (trial.fits, trial.was_measured, trial.reason) == (False, True, "stage 0 is out of memory")
    assert trial.excess_bytes == 100 + 2500 - 1000
    assert (summary.winner, summary.ranked) == (None, ())


def test_failed_trials_are_listed_apart(storage: str, fake: Evaluate) -> None:
    def breaks(knobs: Knobs) -> object:
        raise RuntimeError("a bug")

    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SearchSpace((1,), (0.6,), (1,)), fake, study, Objective.THROUGHPUT)
    with pytest.raises(RuntimeError):
        run_search(SearchSpace((1,), (0.6,), (2,)), breaks, study, Objective.THROUGHPUT)  # type: ignore[arg-type]
    summary = summarise_study(study, storage)
    (failure,) = summary.failures
    assert (failure.knobs.batch_size, "a bug" in failure.reason, failure.failed) == (2, True, True)
    assert len(summary.trials) == 1
