"""Who measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.records.errors import MeasurementsFailed
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Attempt, Outcome, Status
from autoauto.study.execution.executors import Children, Failures, Own
from autoauto.study.execution.process import Bounds, attempt_of, failed_attempt

if TYPE_CHECKING:
    from tests.search.conftest import Fake

A, B, C = (Knobs(1, 0.3, batch_size) for batch_size in (1, 2, 3))


def measured(knobs: Knobs) -> Outcome:
    return Outcome(knobs, None, None, 0.0, 0.0, 0, 1, "no plan")


def test_this_process_measures_one_at_a_time_while_it_waits(fake: Fake) -> None:
    own = Own(fake)
    own.begin(A)
    assert (own.n_hands, own.n_free, fake.calls) == (1, 0, [])
    own.wait(60.0)
    [attempt] = own.ended()
    assert (attempt.knobs, attempt.status, fake.calls) == (A, Status.OK, [A])
    assert own.n_free == 1
    own.wait(0.0)
    assert own.ended() == []


def divides_by_zero(knobs: Knobs) -> Outcome:
    return measured(Knobs(1, 0.3, knobs.batch_size // 0))


def test_what_the_target_raises_is_raised_once_it_is_recorded() -> None:
    own = Own(divides_by_zero)
    own.begin(A)
    own.wait(0.0)
    [attempt] = own.ended()
    assert attempt.status is Status.BUG
    with pytest.raises(ZeroDivisionError):
        own.recorded(attempt)


def test_what_is_closed_is_not_measured(fake: Fake) -> None:
    own = Own(fake)
    own.begin(A)
    own.close()
    own.wait(0.0)
    assert (own.ended(), fake.calls) == ([], [])


@pytest.mark.slow
def test_children_measure_side_by_side() -> None:
    children = Children(measured, 2, Bounds())
    assert (children.n_hands, children.n_free) == (2, 2)
    seen: list[Attempt] = []
    left = [C]
    try:
        for knobs in (A, B):
            children.begin(knobs)
        assert children.n_free == 0
        while len(seen) < 3:
            children.wait(10.0)
            seen += children.ended()
            if left and children.n_free:
                children.begin(left.pop())
    finally:
        children.close()
    assert {attempt.knobs for attempt in seen} == {A, B, C}
    assert {attempt.status for attempt in seen} == {Status.INFEASIBLE}


FAILED = failed_attempt(A, Status.CRASH, "died of SIGSEGV", [], 1.0)
MEASURED = attempt_of(A, measured(A), 1.0)


def test_a_search_that_begins_with_failures_is_ended_soon() -> None:
    failures = Failures()
    failures.count(FAILED)
    failures.count(FAILED)
    with pytest.raises(MeasurementsFailed, match=r"^3 measurements in a row failed, the last by crash"):
        failures.count(FAILED)


def test_a_search_that_has_measured_something_goes_on_for_longer() -> None:
    failures = Failures()
    for attempt in [FAILED, FAILED, MEASURED, *[FAILED] * 9, MEASURED, *[FAILED] * 9]:
        failures.count(attempt)
    with pytest.raises(MeasurementsFailed, match=r"^10 measurements in a row failed"):
        failures.count(FAILED)
