"""Where the seed's search would end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from autoauto.records.trial import Knobs, Objective, SearchSpace
from autoauto.search.run import run_search
from autoauto.search.seed_answer import expected_answer
from autoauto.search.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))


def test_it_is_where_bisection_ends_when_the_estimate_is_right(storage: str, fake: Fake) -> None:
    result = run_search(SPACE, fake, open_study(storage, "bow", Objective.THROUGHPUT, {}), Objective.THROUGHPUT)
    winner = Knobs(2, 0.3, 96)
    told = expected_answer(SPACE, type(fake)(), Objective.THROUGHPUT, winner)
    assert told is not None
    assert all(cell.batch_size for cell in result.cells)
    at_ends = [fake(replace(cell.knobs, batch_size=cell.batch_size)) for cell in result.cells if cell.batch_size]
    best = max(at_ends, key=lambda outcome: outcome.samples_per_s)
    assert (told.knobs, told.samples_per_s) == (best.knobs, best.samples_per_s)
    assert told.gain_percent == pytest.approx(100 * (fake(winner).samples_per_s / best.samples_per_s - 1))


def test_where_nothing_fits_there_is_none(fake: Fake) -> None:
    fake.tied = 2
    assert expected_answer(SearchSpace((2,), (0.3,), (1, 2)), fake, Objective.THROUGHPUT, Knobs(1, 0.3, 1)) is None
