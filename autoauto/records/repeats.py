"""The best of a search measured again beside others: `Repeated`, `Expected`, `Verification`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import mean, stdev
from typing import NamedTuple

from autoauto.records.trial import Knobs

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of measurements.

    Attributes:
        mean: of all.
        error: half the width of the 95 % confidence interval around it; None for one measurement, which tells none.
    """

    mean: float
    error: float | None


def interval(values: Sequence[float]) -> Interval:
    """The mean of values that scatter normally, and how far it may be from the true one (Student, 1908).

    >>> interval([10.0, 11.0, 12.0])  # 4.303 x 1 / sqrt(3)
    Interval(mean=11.0, error=2.484...)
    """
    if len(values) < 2:
        return Interval(mean(values), None)
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1.0 + CONFIDENCE) / 2.0))
    return Interval(mean(values), quantile * stdev(values) / len(values) ** 0.5)


class Verdict(StrEnum):
    """What turns tell of two configurations."""

    CLEAR = "clear"
    """One is better, or there was nothing to compare."""
    TIE = "tie"
    """They are the same as far as the turns tell: the simpler one wins."""
    UNSURE = "unsure"
    """The turns scatter too much to tell: the better mean wins."""


class Repeated(NamedTuple):
    """One configuration, and what came of it turn by turn.

    Attributes:
        name: what it is, for example "runner-up".
        knobs: the configuration.
        what: how it ran, where the knobs do not tell it.
        samples_per_s: measured throughput of every turn; None where it failed or did not fit.
        scores: what the search's objective makes of it, more is better; None likewise.
        reason: why some are missing; empty when none is.
    """

    name: str
    knobs: Knobs
    what: str = ""
    samples_per_s: tuple[float | None, ...] = ()
    scores: tuple[float | None, ...] = ()
    reason: str = ""

    @property
    def speed(self) -> Interval | None:
        """Throughput over all turns; None when no turn told it."""
        return _interval(self.samples_per_s)

    @property
    def score(self) -> Interval | None:
        """The objective over all turns; None when no turn told it."""
        return _interval(self.scores)


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return interval(known) if known else None


class Expected(NamedTuple):
    """The configuration that the seed's search would end on if all came out as estimated.

    Attributes:
        knobs: the configuration.
        samples_per_s: its throughput, estimated.
        gain_percent: how much more the best of the search is worth, estimated too.
    """

    knobs: Knobs
    samples_per_s: float
    gain_percent: float


@dataclass(frozen=True, slots=True)
class Verification:
    """What measuring again told.

    Attributes:
        repeated: the best of the search, then the runner-up where there is one, then the default configuration unless
            it is one of them.
        n_repeats: turns; in each all are measured once.
        settled: which of `repeated` is the winner: 0, or 1 when the runner-up is better, or as good and simpler.
        verdict: how that was found.
        seed: the seed's answer; None when nothing fits by the estimate.
    """

    repeated: tuple[Repeated, ...]
    n_repeats: int
    settled: int
    verdict: Verdict
    seed: Expected | None

    @property
    def winner(self) -> Repeated:
        """The best of all."""
        return self.repeated[self.settled]

    def named(self, name: str) -> Repeated | None:
        """The configuration that was measured under a name."""
        return next((one for one in self.repeated if one.name == name), None)
