"""Means and their confidence intervals."""

import pytest
from scipy import stats

from autoauto.records.repeats import Repeated, Verdict, Verification, interval
from autoauto.records.trial import Knobs

KNOBS = Knobs(1, 0.6, 8)


@pytest.mark.parametrize("values", [[10.0, 11.0], [5.0, 5.5, 4.0, 7.25], [1.0, 2.0, 3.0, 4.0, 5.0, 9.0]])
def test_intervals_are_students(values: list[float]) -> None:
    found = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=stats.sem(values))
    assert found.error is not None
    assert (found.mean - found.error, found.mean + found.error) == pytest.approx((low, high))


def test_one_measurement_tells_no_interval() -> None:
    assert interval([3.0]) == (3.0, None)


def test_turns_that_failed_do_not_count() -> None:
    row = Repeated("winner", KNOBS, "", (10.0, None, 12.0), (1.0, None, 3.0), "died")
    assert row.speed is not None
    assert row.score is not None
    assert (row.speed.mean, row.score.mean) == (11.0, 2.0)
    assert Repeated("winner", KNOBS, "", (None,), (None,)).speed is None


def test_the_winner_is_the_settled_one() -> None:
    rows = Repeated("winner", KNOBS), Repeated("runner-up", Knobs(1, 0.6, 4))
    assert Verification(rows, 3, 1, Verdict.TIE, None).winner is rows[1]
    assert Verification(rows, 3, 0, Verdict.CLEAR, None).named("runner-up") is rows[1]
    assert Verification(rows, 3, 0, Verdict.CLEAR, None).named("default configuration") is None
