"""The time left, by a clock that the test sets, and the pace of earlier measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import SearchActivity
from autoauto.study.execution.pace import Pace, TimeLeft, known_pace
from autoauto.study.execution.process import finished_trial
from autoauto.study.store.study import open_study
from autoauto.study.store.trials import ranges_of, to_optuna

if TYPE_CHECKING:
    from tests.study.conftest import Fake


def test_the_rest_takes_as_long_as_what_was_done() -> None:
    times = iter([0.0, 10.0, 20.0, 23.0])
    time_left = TimeLeft(lambda: next(times))
    left_s = [time_left.seconds(SearchActivity.MEASURING, done, 10, False) for done in (0, 1, 4, 10)]
    assert left_s == [None, 90.0, 30.0, 0.0]


def test_every_activity_has_its_own_pace() -> None:
    times = iter([0.0, 100.0, 200.0, 201.0])
    time_left = TimeLeft(lambda: next(times))
    assert time_left.seconds(SearchActivity.PREDICTING, 0, 3, False) is None
    assert time_left.seconds(SearchActivity.PREDICTING, 1, 3, False) == 200.0
    assert time_left.seconds(SearchActivity.MEASURING, 0, 3, False) is None
    assert time_left.seconds(SearchActivity.MEASURING, 1, 3, False) == 2.0


def test_resumed_configurations_do_not_count() -> None:
    times = iter([0.0, 0.1, 0.2, 5.2])
    time_left = TimeLeft(lambda: next(times))
    assert [time_left.seconds(SearchActivity.MEASURING, done, 12, done < 2) for done in range(4)] == [
        None,
        None,
        None,
        pytest.approx(45.0),
    ]


def test_the_count_starts_anew_when_closed_cells_open_again() -> None:
    times = iter([0.0, 1.0, 2.0, 4.0])
    time_left = TimeLeft(lambda: next(times))
    assert [time_left.seconds(SearchActivity.MEASURING, done, 9, False) for done in (3, 4, 2, 3)] == [
        None,
        5.0,
        None,
        12.0,
    ]


SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3))
ABOUT = {"model_content": "a", "cluster_content": "b", "target": "ipu-5"}


def test_the_pace_is_the_median_of_all_studies_of_the_same_model_and_devices(storage: str, fake: Fake) -> None:
    assert known_pace(storage, ABOUT) is None
    several = (("one", ABOUT, (1.0, 2.5)), ("two", ABOUT, (7.0,)), ("other", {**ABOUT, "target": "x"}, (100.0,)))
    for name, about, durations_s in several:
        study = open_study(storage, name, Objective.THROUGHPUT, about)
        for batch_size, seconds in enumerate(durations_s, start=1):
            knobs = Knobs(n_ipu=1, memory_proportion=0.3, batch_size=batch_size)
            trial = finished_trial(knobs, fake(knobs), seconds)
            study.add_trial(to_optuna(trial, ranges_of(SPACE, knobs), Objective.THROUGHPUT))
    assert known_pace(storage, ABOUT) == Pace(2.5, 3)
    assert known_pace(storage, {**ABOUT, "model_content": "c"}) is None


@pytest.mark.parametrize("wrong", ["nonsense", "sqlite:////no/such/folder/x.db"])
def test_without_a_database_nothing_is_known(wrong: str) -> None:
    assert known_pace(wrong, ABOUT) is None
