"""What a search would do, told without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.records.knobs import Knobs, Method, Objective, SearchSpace
from autoauto.study.analysis.dry_run import rehearsal_of
from autoauto.study.methods.registry import method_of
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), (1, 5, 6, 7, 24, 30, 36, 37, 60))


@pytest.mark.parametrize("method", [Method.EXHAUSTIVE, Method.GRID_BISECT, Method.GUIDED])
def test_it_tells_what_happens_when_the_estimate_is_right(storage: str, fake: Fake, method: Method) -> None:
    told = rehearsal_of(SPACE, fake, Objective.THROUGHPUT, method)
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    propose = method_of(method, fake, Objective.THROUGHPUT)
    result = run_search(SPACE, type(fake)(), study, Objective.THROUGHPUT, method=propose)
    assert told.n_tried == result.counts.n_tried
    assert told.n_configurations == 4 * 9
    assert sum(cell.n_tries for cell in told.cells) == told.n_tried
    assert result.best is not None
    assert max(cell.samples_per_s for cell in told.cells) == result.best.samples_per_s


def test_every_cell_has_its_best(fake: Fake) -> None:
    told = rehearsal_of(SPACE, fake, Objective.THROUGHPUT, Method.EXHAUSTIVE)
    assert [(c.knobs.n_ipu, c.knobs.memory_proportion) for c in told.cells] == [(1, 0.3), (1, 1.0), (2, 0.3), (2, 1.0)]
    assert told.cells[1].knobs == Knobs(1, 1.0, 36)  # 100 + 36 * 25 bytes of 1,000, and six whole steps
    assert told.cells[1].n_tries == 9


def test_where_nothing_fits_the_reason_is_told(fake: Fake) -> None:
    fake.tied = 2
    (cell,) = rehearsal_of(SearchSpace((2,), (0.3,), (4, 8)), fake, Objective.THROUGHPUT, Method.GUIDED).cells
    assert cell == (Knobs(2, 0.3, 4), 0.0, 2, "tied weights leave no cut")
