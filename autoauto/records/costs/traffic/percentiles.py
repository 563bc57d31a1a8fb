"""The mean and percentiles of what was measured of requests: `Percentiles`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray


class Percentiles(NamedTuple):
    """The mean and percentiles of one quantity of requests, in its unit; NaN if there were no requests.

    A percentile between two values is interpolated linearly, as NumPy does.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> Percentiles:
        """Compute the mean and the percentiles of some values."""
        mean = float(np.mean(values)) if len(values) else float("nan")
        return cls(mean, *(percentile(values, percent_of(name)) for name in PERCENTS))


PERCENTS = Percentiles._fields[1:]
"""The names of percentiles: "p50" is the value that half of all do not exceed."""


def percent_of(name: str) -> float:
    """The percent of a percentile's name: digits after the second are decimals.

    >>> percent_of("p50"), percent_of("p999")
    (50.0, 99.9)
    """
    return float(f"{name[1:3]}.{name[3:] or 0}")


def percentile(values: Sequence[float] | FloatArray, percent: float) -> float:
    """The value that `percent` of the values do not exceed; NaN if there are no values."""
    return float(np.percentile(values, percent)) if len(values) else float("nan")
