"""Means of measurements with their confidence intervals: `Interval`, `interval`."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import fmean
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of measurements.

    Attributes:
        mean: of all.
        error: half the width of the confidence interval around it, at 95 % unless it was asked for at another; None for a single measurement.
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
