"""What came of trying to measure one configuration: `Attempt`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autoauto.records.trial import Knobs, Outcome


class Status(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    """A device's memory did not suffice; without an outcome it was the memory of the measuring process."""
    INFEASIBLE = "infeasible"
    """No plan respects the limits; nothing was compiled whole."""
    CONSTRAINED = "constrained"
    """It runs, but a constraint does not hold."""
    TIME_OUT = "time-out"
    CRASH = "crash"
    """The measuring process died."""
    BUG = "bug"
    """An exception that no target raises on purpose."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt.

    Attributes:
        knobs: the configuration.
        status: how it ended.
        outcome: what was measured, or why it does not fit; None when the attempt failed.
        reason: of a failure, in one line; empty when there is an outcome.
        log: the last lines of what a failed attempt printed or raised.
        started: by the clock of the machine when the attempt ended, less its duration: a clock that is set meanwhile
            changes no duration.
        ended: the same clock.
    """

    knobs: Knobs
    status: Status
    outcome: Outcome | None
    reason: str
    log: tuple[str, ...]
    started: datetime
    ended: datetime


def status_of(outcome: Outcome) -> Status:
    """The status of an attempt that has an outcome.

    A plan that was made but not measured ran out of memory; without a plan the limits stood against it.
    """
    if outcome.fits:
        return Status.OK
    if outcome.measured is not None:
        return Status.CONSTRAINED
    return Status.INFEASIBLE if outcome.estimate is None else Status.OUT_OF_MEMORY
