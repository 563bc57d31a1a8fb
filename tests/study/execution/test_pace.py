"""The time left, by a clock that the test sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.records.knobs import Objective, SearchSpace
from autoauto.records.trial import Phase
from autoauto.study.execution.pace import TimeLeft, known_pace
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake


def test_the_rest_takes_as_long_as_what_was_done() -> None:
    times = iter([0.0, 10.0, 20.0, 23.0])
    time_left = TimeLeft(lambda: next(times))
    told = [time_left.seconds(Phase.MEASURING, done, 10, False) for done in (0, 1, 4, 10)]
    assert told == [None, 90.0, 30.0, 0.0]


def test_a_new_phase_has_a_new_pace() -> None:
    times = iter([0.0, 100.0, 200.0, 201.0])
    time_left = TimeLeft(lambda: next(times))
    assert time_left.seconds(Phase.PREDICTING, 0, 3, False) is None
    assert time_left.seconds(Phase.PREDICTING, 1, 3, False) == 200.0
    assert time_left.seconds(Phase.MEASURING, 0, 3, False) is None
    assert time_left.seconds(Phase.MEASURING, 1, 3, False) == 2.0


def test_what_is_recalled_takes_no_time_and_does_not_count() -> None:
    times = iter([0.0, 0.1, 0.2, 5.2])
    time_left = TimeLeft(lambda: next(times))
    assert [time_left.seconds(Phase.MEASURING, done, 12, done < 2) for done in range(4)] == [
        None,
        None,
        None,
        pytest.approx(45.0),
    ]


def test_cells_that_open_again_start_the_count_anew() -> None:
    times = iter([0.0, 1.0, 2.0, 4.0])
    time_left = TimeLeft(lambda: next(times))
    assert [time_left.seconds(Phase.MEASURING, done, 9, False) for done in (3, 4, 2, 3)] == [None, 5.0, None, 12.0]


SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3))
ABOUT = {"model_content": "a", "cluster_content": "b", "target": "ipu-5"}


def test_it_is_the_median_of_all_studies_about_the_same(storage: str, fake: Fake) -> None:
    assert known_pace(storage, ABOUT) is None
    slow = type(fake)(sleep_s=0.05)
    for name, about, target in (("one", ABOUT, slow), ("two", ABOUT, slow), ("other", {**ABOUT, "target": "x"}, fake)):
        run_search(SPACE, target, open_study(storage, name, Objective.THROUGHPUT, about), Objective.THROUGHPUT)
    pace = known_pace(storage, ABOUT)
    assert pace is not None
    assert pace.n_known == len(slow.calls)
    assert pace.seconds >= 0.05
    assert known_pace(storage, {**ABOUT, "model_content": "c"}) is None


@pytest.mark.parametrize("wrong", ["nonsense", "sqlite:////no/such/folder/x.db"])
def test_without_a_database_nothing_is_known(wrong: str) -> None:
    assert known_pace(wrong, ABOUT) is None
