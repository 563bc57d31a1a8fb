"""A dry run against the search that it predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Method, Objective
from autoauto.space.space import SearchSpace
from autoauto.study.analysis.dry_run import dry_run, expected_winner
from autoauto.study.methods.registry import MethodChoice, predictor
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 5, 6, 7, 24, 30, 36, 37, 60))


@pytest.mark.parametrize("method", [Method.EXHAUSTIVE, Method.GRID_BISECT, Method.GUIDED])
def test_it_equals_the_search_when_the_estimate_is_exact(storage: str, fake: Fake, method: Method) -> None:
    expected = dry_run(SPACE, fake, Objective.THROUGHPUT, MethodChoice(method))
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    proposer = MethodChoice(method).proposer(predictor(fake, Objective.THROUGHPUT), Objective.THROUGHPUT)
    result = run_search(SPACE, type(fake)(), study, Objective.THROUGHPUT, method=proposer)
    assert expected.n_tried == result.counts.n_tried
    assert expected.n_configurations == 4 * 9
    assert sum(cell.n_tries for cell in expected.cells) == expected.n_tried
    assert result.best is not None
    speeds = [expected_cell.cell.best.samples_per_s for expected_cell in expected.cells if expected_cell.cell.best]
    assert max(speeds) == result.best.samples_per_s


def test_every_cell_has_its_best(fake: Fake) -> None:
    expected = dry_run(SPACE, fake, Objective.THROUGHPUT, MethodChoice(Method.EXHAUSTIVE))
    assert [(c.cell.knobs.n_ipu, c.cell.knobs.values["memory_proportion"]) for c in expected.cells] == [
        (1, 0.3),
        (1, 1.0),
        (2, 0.3),
        (2, 1.0),
    ]
    best = expected.cells[1].cell.best
    assert best is not None
    assert best.knobs == Knobs(
        n_ipu=1, memory_proportion=1.0, batch_size=36
    )  # 100 + 36 * 25 bytes of 1,000, and six whole steps
    assert expected.cells[1].n_tries == 9


def test_where_nothing_fits_the_cell_has_a_reason(fake: Fake) -> None:
    fake.tied = 2
    ((cell, n_tries),) = dry_run(
        SearchSpace((2,), (0.3,), (4, 8)), fake, Objective.THROUGHPUT, MethodChoice(Method.GUIDED)
    ).cells
    assert (cell.best, n_tries) == (None, 2)
    assert (cell.trials[0].knobs, cell.trials[0].reason) == (
        Knobs(n_ipu=2, memory_proportion=0.3, batch_size=4),
        "tied weights leave no cut",
    )


def test_the_expected_winner_is_compared_with_simple_uses(fake: Fake) -> None:
    cells = dry_run(SPACE, fake, Objective.THROUGHPUT, MethodChoice(Method.EXHAUSTIVE)).cells
    winner = expected_winner(cells, SPACE, Objective.THROUGHPUT)
    assert winner is not None
    trial, comparisons = winner
    assert trial.samples_per_s == max(e.cell.best.samples_per_s for e in cells if e.cell.best)
    assert [comparison.name for comparison in comparisons] == ["one device", "one pipeline of 2"]
    assert all(comparison.estimated and comparison.is_simple_use for comparison in comparisons)
    [same] = [comparison for comparison in comparisons if comparison.note]
    assert same.knobs == trial.knobs


def test_a_configuration_that_follows_the_method_is_counted(fake: Fake) -> None:
    alone = dry_run(SPACE, fake, Objective.THROUGHPUT, MethodChoice(Method.GRID_BISECT))
    last = SPACE.cells[0][0]
    more = dry_run(SPACE, fake, Objective.THROUGHPUT, MethodChoice(Method.GRID_BISECT, last=last))
    assert more.n_tried == alone.n_tried + 1


def test_where_nothing_fits_there_is_no_expected_winner(fake: Fake) -> None:
    fake.tied = 2
    space = SearchSpace((2,), (0.3,), (4, 8))
    cells = dry_run(space, fake, Objective.THROUGHPUT, MethodChoice(Method.GUIDED)).cells
    assert expected_winner(cells, space, Objective.THROUGHPUT) is None
