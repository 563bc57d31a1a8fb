"""The time left, by a clock that the test sets."""

import pytest

from autoauto.records.progress import Phase
from autoauto.search.time_left import TimeLeft


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
