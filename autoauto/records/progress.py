"""What a search tells while it runs: `Phase`, `FinishedTrial`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from autoauto.records.trial import Knobs


class Phase(StrEnum):
    """What a search is at."""

    PREDICTING = "predicting"
    """The estimate is asked of every cell; nothing is measured."""
    MEASURING = "measuring"
    VERIFYING = "verifying"
    """The winner is measured again."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that is finished and in the database.

    Attributes:
        number: in its study.
        knobs: the configuration.
        state: COMPLETE when it was measured, PRUNED when it does not fit, FAIL when the measurement itself failed.
        value: of the objective, the first of several; None unless it is COMPLETE.
        samples_per_s: measured throughput; None unless it is COMPLETE.
        reason: why it does not fit, or what failed; empty when it is COMPLETE.
        measured: whether there was a plan to measure; the estimate ruled it out otherwise.
        started, ended: of the measurement, in UTC.
        others: values of the other objectives.
    """

    number: int
    knobs: Knobs
    state: str
    value: float | None
    samples_per_s: float | None
    reason: str
    measured: bool
    started: datetime
    ended: datetime
    others: tuple[float, ...] = ()
