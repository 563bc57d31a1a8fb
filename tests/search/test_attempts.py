"""Attempts from what a measurement returned or raised."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from autoauto.records.attempt import Status
from autoauto.records.trial import Knobs
from autoauto.search.attempts import LOG_LINES, attempt_of, failed_attempt

if TYPE_CHECKING:
    from tests.search.conftest import Fake

KNOBS = Knobs(2, 0.3, 32)


def test_an_outcome_is_an_attempt_without_a_reason_of_its_own(fake: Fake) -> None:
    outcome = fake(KNOBS)
    attempt = attempt_of(KNOBS, outcome, 1.5)
    assert (attempt.knobs, attempt.status, attempt.outcome) == (KNOBS, Status.OK, outcome)
    assert (attempt.reason, attempt.log) == ("", ())
    assert attempt.ended - attempt.started == timedelta(seconds=1.5)


def test_an_exception_is_a_bug_with_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError as error:
        attempt = attempt_of(KNOBS, error, 1.5)
    assert (attempt.status, attempt.reason) == (Status.BUG, "ZeroDivisionError: by zero")
    assert 'raise ZeroDivisionError("by zero")' in " ".join(attempt.log)


def test_no_memory_left_is_out_of_memory() -> None:
    assert attempt_of(KNOBS, MemoryError(), 1.5).status is Status.OUT_OF_MEMORY


def test_of_a_long_log_the_end_is_kept() -> None:
    lines = [str(i) for i in range(100)]
    assert failed_attempt(KNOBS, Status.CRASH, "signal 11", lines, 1.5).log == tuple(lines[-LOG_LINES:])
