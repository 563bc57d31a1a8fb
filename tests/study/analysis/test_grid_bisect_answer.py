"""The answer of the search of [auto-pipeline], estimated, and measured where the trials show it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.comparisons import estimated_answer, measured_answer
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))


def test_the_estimated_answer_is_where_a_search_by_bisection_ends(storage: str, fake: Fake) -> None:
    result = run_search(SPACE, fake, open_study(storage, "bow", Objective.THROUGHPUT, {}), Objective.THROUGHPUT)
    winner = Knobs(n_ipu=2, memory_proportion=0.3, batch_size=96)
    answer = estimated_answer(SPACE, type(fake)(), Objective.THROUGHPUT, winner)
    assert answer is not None
    at_ends = [fake(cell.largest.knobs) for cell in result.cells if cell.largest]
    assert len(at_ends) == len(result.cells) == 4
    best = max(at_ends, key=lambda trial: trial.samples_per_s)
    assert (answer.knobs, answer.samples_per_s) == (best.knobs, best.samples_per_s)
    assert answer.gain_percent == pytest.approx(100 * (fake(winner).samples_per_s / best.samples_per_s - 1))


def test_where_nothing_fits_there_is_no_estimated_answer(fake: Fake) -> None:
    fake.tied = 2
    assert (
        estimated_answer(
            SearchSpace((2,), (0.3,), (1, 2)),
            fake,
            Objective.THROUGHPUT,
            Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1),
        )
        is None
    )


def summary_of(speeds: dict[tuple[int, int], float]) -> StudySummary:
    """Trials by n_ipu and batch size; 0 does not fit."""
    trials = tuple(
        Trial(
            Knobs(n_ipu=n, memory_proportion=0.6, batch_size=b),
            Status.OK if speed else Status.OUT_OF_MEMORY,
            samples_per_s=speed,
            number=number,
        )
        for number, ((n, b), speed) in enumerate(speeds.items())
    )
    return StudySummary("small", "sqlite:///x.db", Objective.THROUGHPUT, {}, trials, ())


def test_the_measured_answer_is_the_best_of_the_largest_batches_that_fit() -> None:
    """Throughput falls below the boundary in one cell, which bisection does not see."""
    summary = summary_of({(1, 1): 90.0, (1, 2): 70.0, (1, 3): 0.0, (2, 2): 75.0, (2, 3): 0.0})
    answer = measured_answer(summary)
    assert answer is not None
    assert (answer.knobs.n_ipu, answer.samples_per_s) == (2, 75.0)


@pytest.mark.parametrize("unknown", [(1, 3), (1, 5)])
def test_without_the_boundary_of_a_cell_there_is_no_measured_answer(unknown: tuple[int, int]) -> None:
    """Of batch sizes to 5, 2 fits and no trial shows whether 3 does."""
    summary = summary_of({(1, 2): 70.0, (2, 5): 75.0} | ({unknown: 0.0} if unknown == (1, 5) else {}))
    assert measured_answer(summary) is None


def test_with_an_untried_cell_there_is_no_measured_answer() -> None:
    summary = summary_of({(1, 1): 90.0, (1, 2): 70.0, (1, 3): 0.0})
    assert measured_answer(replace(summary, space=SearchSpace((1,), (0.6,), (1, 2, 3)))) is not None
    assert measured_answer(replace(summary, space=SearchSpace((1, 2), (0.6,), (1, 2, 3)))) is None
