"""Cells of the grid, read back from trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, Objective, SearchSpace
from autoauto.search.cells import study_cells
from autoauto.search.run import run_search
from autoauto.search.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

ORDERS = (Order.GPIPE, Order.ONE_F_ONE_B)


def test_the_study_tells_the_cells_that_the_search_told(storage: str, fake: Fake) -> None:
    fake.tied = 2
    space = SearchSpace((1, 2), (0.6,), tuple(range(1, 100)), ORDERS, (False, True), (8,))
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(space, fake, study, Objective.THROUGHPUT)
    assert study_cells(study) == result.cells
    assert [(c.knobs.n_ipu, c.knobs.schedule, c.knobs.recompute) for c in result.cells] == [
        (n, order, recompute) for n in (1, 2) for order in ORDERS for recompute in (False, True)
    ]
    fitting, failing = result.cells[0], result.cells[-1]
    assert (fitting.batch_size, failing.batch_size) == (60, None)  # 100 + batch * 25 * 0.6 bytes of 1,000
    best = max(fake(Knobs(1, 0.6, batch_size, Order.GPIPE, False, 8)).samples_per_s for batch_size in (50, 60))
    assert fitting.samples_per_s >= best
    assert failing.reason == "tied weights leave no cut"
