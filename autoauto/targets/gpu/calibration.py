"""Factors of measured rows over forecasts, one a (model, engine, system, format), shrunk where rows are few: `fit`.

Logarithms of measured / forecast scatter around the mean of their group, and the means of most groups lie close to 0; a
few lie far from it, where what was measured is another thing than what is forecast. So the mean of a group comes from a
normal distribution that is narrow, or with a small probability from one that is wide:

    few rows near 1         the narrow one is likelier          the factor is pulled to 1
    few rows far from 1     only the wide one explains them     the factor is that of the rows
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
_CERTAIN = 1e12


class Prior(NamedTuple):
    """What is known of a quantity before anything of a group was measured, as standard deviations of logarithms.

    Attributes:
        scatter: of rows around the mean of their group.
        near: of the means of most groups around 0.
        far: of the means of the others.
        p_far: the probability that a group is one of the others.
    """

    scatter: float
    near: float
    far: float
    p_far: float = 0.15


TPOT_PRIOR = Prior(0.10, 0.09, 0.9)
TTFT_PRIOR = Prior(0.38, 0.36, 1.0)
"""Of the even half of the measured rows, by `studies/gpu_fit.py`: the deviation in a group, by its median, and the
deviation of the groups' medians; far groups lie as far as those that the program names."""


class _Mean(NamedTuple):
    """What is known of the logarithm of a factor.

    Attributes:
        centre: most likely.
        variance: of the truth around it.
    """

    centre: float
    variance: float


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

    >>> prior = Prior(0.1, 0.1, 1.0)
    >>> [round(factor_of(ratios, prior).factor, 2) for ratios in ([], [1.1], [1.1] * 9, [3.0])]
    [1.0, 1.05, 1.09, 2.97]
    """
    n_rows = len(ratios)
    measured = median(map(log, ratios)) if ratios else 0.0
    near, far = (_shrunk(measured, n_rows, prior.scatter, spread) for spread in (prior.near, prior.far))
    p_far = _probability_far(measured, n_rows, prior)
    centre = (1 - p_far) * near.centre + p_far * far.centre
    between = (1 - p_far) * p_far * (near.centre - far.centre) ** 2
    variance = (1 - p_far) * near.variance + p_far * far.variance + between
    half = QUANTILE * sqrt(prior.scatter**2 + variance)
    return Factor(exp(centre), exp(centre - half), exp(centre + half), n_rows)


def _shrunk(measured: float, n_rows: int, scatter: float, spread: float) -> _Mean:
    """The mean of a group of so many rows around `measured`, where such means spread around 0; all are normal."""
    weight = n_rows / (n_rows + (scatter / spread) ** 2)
    return _Mean(weight * measured, (1 - weight) * spread**2)


def _probability_far(measured: float, n_rows: int, prior: Prior) -> float:
    """How likely a group is one of those far from 1, given its rows."""
    if not n_rows:
        return prior.p_far
    near, far = (
        prior.scatter**2 / n_rows + spread**2 for spread in (prior.near, prior.far)
    )  # variances of what is measured
    odds = prior.p_far / (1 - prior.p_far) * sqrt(near / far) * exp(measured**2 / 2 * (1 / near - 1 / far))
    return odds / (1 + odds) if odds < _CERTAIN else 1.0
