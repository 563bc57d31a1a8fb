"""What a measurement returned or raised, as an `Attempt`."""

from __future__ import annotations

import traceback
from datetime import datetime, timedelta

from autoauto.records.attempt import Attempt, Status, status_of
from autoauto.records.trial import Knobs, Outcome

LOG_LINES = 20


def attempt_of(knobs: Knobs, result: Outcome | Exception, elapsed_s: float) -> Attempt:
    """The attempt that just ended with `result`, `elapsed_s` after it began.

    An exception is a bug, since a target's out of memory is an outcome, unless the process itself had no memory left.
    """
    if isinstance(result, Outcome):
        return _ended(knobs, status_of(result), result, "", (), elapsed_s)
    status = Status.OUT_OF_MEMORY if isinstance(result, MemoryError) else Status.BUG
    log = "".join(traceback.format_exception(result)).splitlines()
    return failed_attempt(knobs, status, f"{type(result).__name__}: {result}", log, elapsed_s)


def failed_attempt(knobs: Knobs, status: Status, reason: str, log: list[str], elapsed_s: float) -> Attempt:
    """An attempt that just ended without an outcome; of its log the end is kept."""
    return _ended(knobs, status, None, reason, tuple(log[-LOG_LINES:]), elapsed_s)


def _ended(
    knobs: Knobs, status: Status, outcome: Outcome | None, reason: str, log: tuple[str, ...], elapsed_s: float
) -> Attempt:
    ended = datetime.now()
    return Attempt(knobs, status, outcome, reason, log, ended - timedelta(seconds=elapsed_s), ended)
