"""Means of measurements with their confidence intervals: `Interval`, `interval`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of measurements.

    Attributes:
        mean: of all.
        error: half the width of the 95 % confidence interval around it; None for a single measurement.
    """

    mean: float
    error: float | None


def interval(values: Sequence[float]) -> Interval:
    """The mean of normally distributed values and its confidence interval [student].

    >>> interval([10.0, 11.0, 12.0])  # 4.303 x 1 / sqrt(3)
    Interval(mean=11.0, error=2.484...)
    """
    if len(values) < 2:
        return Interval(mean(values), None)
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1.0 + CONFIDENCE) / 2.0))
    return Interval(mean(values), quantile * stdev(values) / len(values) ** 0.5)
