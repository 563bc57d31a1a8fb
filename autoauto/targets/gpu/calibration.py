"""Factors of measured rows over forecasts, one a (model, engine, system, format), shrunk where rows are few: `fit`.

A group's logarithms of measured / forecast scatter by `SCATTER` around a mean, and the means of groups by `SPREAD` around
0. Of n rows with mean m, the mean of the group is then most likely m * n / (n + SCATTER^2 / SPREAD^2), where both are normal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import median
from typing import NamedTuple

QUANTILE = 1.96
"""Of the normal distribution: 95 % lie within."""


class Prior(NamedTuple):
    """What is known of a quantity before anything of a group was measured, as standard deviations of logarithms.

    Attributes:
        scatter: of rows around the mean of their group.
        spread: of the means of groups.
    """

    scatter: float
    spread: float


TPOT_PRIOR = Prior(0.10, 0.48)
TTFT_PRIOR = Prior(0.38, 0.37)
"""Of the even half of the measured rows, by `studies/gpu_fit.py`: the median over groups of the deviation
in a group, and the deviation of the groups' medians."""


class Group(NamedTuple):
    """What shares a factor.

    Attributes:
        model: its name.
        engine: "vllm", "sglang" or "trtllm".
        system: the GPUs.
        precision: the format of weights.
    """

    model: str
    engine: str
    system: str
    precision: str


class Ratio(NamedTuple):
    """Measured over forecast of one row.

    Attributes:
        group: what shares its factor.
        tpot: of the time between two words.
        ttft: of the time to the first.
    """

    group: Group
    tpot: float
    ttft: float


class Factor(NamedTuple):
    """By what forecasts are multiplied.

    Attributes:
        factor: most likely.
        low, high: within which a row's own ratio lies in 95 % of cases.
        n_rows: that it was fitted on.
    """

    factor: float
    low: float
    high: float
    n_rows: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors by group.

    Attributes:
        tpot_ratios: measured over forecast, by group.
        ttft_ratios: the same of the first word.
    """

    tpot_ratios: Mapping[Group, Sequence[float]]
    ttft_ratios: Mapping[Group, Sequence[float]]

    def tpot(self, group: Group) -> Factor:
        """The factor of the time between two words; 1 where nothing was measured."""
        return factor_of(self.tpot_ratios.get(group, ()), TPOT_PRIOR)

    def ttft(self, group: Group) -> Factor:
        """The factor of the time to the first word."""
        return factor_of(self.ttft_ratios.get(group, ()), TTFT_PRIOR)


def fit(ratios: Iterable[Ratio]) -> Calibration:
    """The factors of all groups that were measured."""
    tpot: dict[Group, list[float]] = defaultdict(list)
    ttft: dict[Group, list[float]] = defaultdict(list)
    for ratio in ratios:
        tpot[ratio.group].append(ratio.tpot)
        ttft[ratio.group].append(ratio.ttft)
    return Calibration(dict(tpot), dict(ttft))


def factor_of(ratios: Sequence[float], prior: Prior) -> Factor:
    """The factor of one group; its centre is the median, so that one failed measurement does not move it.

    >>> few = factor_of([1.2], Prior(0.1, 0.1))
    >>> round(few.factor, 3), few.low < few.factor < few.high, factor_of([], Prior(0.1, 0.1)).factor
    (1.095, True, 1.0)
    """
    n_rows = len(ratios)
    weight = n_rows / (n_rows + (prior.scatter / prior.spread) ** 2)
    centre = weight * median(map(log, ratios)) if ratios else 0.0
    half = QUANTILE * sqrt(prior.scatter**2 + (1 - weight) * prior.spread**2)
    return Factor(exp(centre), exp(centre - half), exp(centre + half), n_rows)
