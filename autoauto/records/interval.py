"""Means of measurements with their confidence intervals: `Interval`, `interval`; that of a run's pace: `RunEnds`."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import fmean
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of measurements.

    The `error`, half the width of its confidence interval, of 95 % by default, is None for a single measurement.
    """

    mean: float
    error: float | None


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean of normally distributed values and its confidence interval [student], at 95 % or another confidence.

    >>> interval([10.0, 11.0, 12.0])  # 4.303 x 1 / sqrt(3)
    Interval(mean=11.0, error=2.484...)
    """
    n, mean = len(values), fmean(values)
    if n < 2:
        return Interval(mean, None)
    from scipy.special import stdtrit

    quantile = float(stdtrit(n - 1, (1.0 + confidence) / 2.0))
    variance = fsum((value - mean) ** 2 for value in values) / (n - 1)  # many times faster than `statistics.stdev`
    return Interval(mean, quantile * sqrt(variance / n))


class RunEnds(NamedTuple):
    """The ends of the confidence interval of the throughput of a run.

    Attributes:
        low_per_s, high_per_s: samples/s, by the clock.
        core_share: the part of its cores that the run had; other programs had the rest.
    """

    low_per_s: float
    high_per_s: float
    core_share: float = 1.0

    def is_below(self, other: RunEnds) -> bool:
        """True if the whole interval lies below the interval of another run.

        A run that had a smaller part of its cores is scaled up to the part of the other run: throughput grows at most
        in proportion to the cores.

        >>> RunEnds(60, 70, 0.5).is_below(RunEnds(80, 90, 0.5)), RunEnds(60, 70, 0.5).is_below(RunEnds(80, 90, 1.0))
        (True, False)
        """
        scale = max(1.0, other.core_share / max(self.core_share, 1e-9))
        return self.high_per_s * scale < other.low_per_s
