"""Factors of measured rows over forecasts, one a (model, engine, system, format), shrunk where rows are few: `fit`.

Logarithms of measured / forecast scatter around the mean of their group, and the means of most groups lie close to 0; a
few lie far from it, where what was measured is another thing than what is forecast. So the mean of a group comes from a
normal distribution that is narrow, or with a small probability from one that is wide:

    few rows near 1         the narrow one is likelier          the factor is pulled to 1
    few rows far from 1     only the wide one explains them     the factor is that of the rows

What a row of a group may be is therefore a mixture of two normal distributions of logarithms. `Factor` has its middle,
the ends of an interval, the end at which bounds on latencies must hold, `HELD`, and how likely a bound holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp, log, log2, pi, sqrt
from statistics import NormalDist, median
from typing import NamedTuple

from autoauto.records.costs.decoder import Workload
from autoauto.targets.gpu.family_errors import DENSE, ErrorKey, Prior, Priors, priors_of

INTERVAL = 0.8
"""The share of rows that lie within a shown interval."""
HELD = 0.65
"""The share of rows that lie below the end at which bounds on latencies must hold. Chosen by `studies/gpu_choice.py` on
the even half of the measured rows: the smallest of some with which the configurations that are chosen keep 97 % of
bounds on the time between tokens, in the groups that the model explains."""
_CERTAIN = 30.0
"""Logarithm of odds above which an event is certain."""
_N_HALVINGS = 50
_STANDARD = NormalDist()


_OCTAVE_TPOT, _OCTAVE_TTFT = 0.003, 0.06
"""Variances of logarithms to add for requests whose lengths are another factor of 2 away from the measured ones. By the
even half of the questions, so that 8 of 10 rows of other lengths lie in their interval: `studies/carried_ratios.py`."""


class _Mean(NamedTuple):
    """A normal distribution of the logarithm of a factor; its text is part of the keys of stored forecasts."""

    centre: float
    variance: float

    def share_below(self, value: float) -> float:
        return _STANDARD.cdf((value - self.centre) / sqrt(self.variance))

    def quantile(self, share: float) -> float:
        return self.centre + _STANDARD.inv_cdf(share) * sqrt(self.variance)


class _Rows(NamedTuple):
    """Logarithms of a group's ratios: a normal mixture with a mean near 0 and, with `p_far`, one far from it."""

    near: _Mean
    far: _Mean
    p_far: float

    @property
    def centre(self) -> float:
        return (1 - self.p_far) * self.near.centre + self.p_far * self.far.centre

    def widened(self, deviation: float) -> _Rows:
        near = self.near._replace(variance=self.near.variance + deviation**2)
        far = self.far._replace(variance=self.far.variance + deviation**2)
        return _Rows(near, far, self.p_far)

    def share_below(self, value: float) -> float:
        return (1 - self.p_far) * self.near.share_below(value) + self.p_far * self.far.share_below(value)

    def quantile(self, share: float) -> float:
        """The logarithm below which a share of rows lies, by bisection."""
        # The quantile of a mixture lies between the quantiles of its parts.
        low, high = sorted([self.near.quantile(share), self.far.quantile(share)])
        for _ in range(_N_HALVINGS):
            middle = (low + high) / 2
            if self.share_below(middle) < share:
                low = middle
            else:
                high = middle
        return (low + high) / 2


class Group(NamedTuple):
    """The configurations that share a factor."""

    model: str
    engine: str
    system: str  # the GPUs
    precision: str  # the format of weights
    family: str = DENSE  # of the model, by `family_of`

    @property
    def error_key(self) -> ErrorKey:
        """The key of the errors that it shares with other models of its family."""
        return ErrorKey(self.family, self.engine, self.precision, self.system)


class Ratio(NamedTuple):
    """Measured over forecast times of one row."""

    group: Group
    tpot: float | None  # of the time between two tokens; None where it was not measured
    ttft: float | None  # of the time to the first token; None where it was not measured
    requests: Workload | None = None  # that were answered; None where they are not known


class Factor(NamedTuple):
    """The factor by which forecasts are multiplied.

    Attributes:
        factor: the most likely value.
        low, high: ends of the interval in which the ratio of a row lies in `INTERVAL` of cases.
        held: the end at which bounds must hold: the ratio of another row lies below it in `HELD` of cases.
    """

    factor: float
    low: float
    high: float
    held: float
    n_rows: int  # on which it was fitted
    rows: _Rows  # the distribution of the logarithms of ratios

    def at(self, share: float) -> float:
        """The ratio below which the ratio of another row lies with a probability."""
        return exp(self.rows.quantile(share))

    def widened(self, deviation: float) -> Factor:
        """The factor with a wider interval: the logarithm of the truth has a further, independent standard deviation.

        >>> factor = factor_of([], Prior(0.1, 0.1, 1.0, p_far=0.0))
        >>> [round(end, 2) for each in (factor, factor.widened(0.2)) for end in each[1:3]]
        [0.83, 1.2, 0.73, 1.37]
        """
        if not deviation:
            return self
        return _factor(self.rows.widened(deviation), self.n_rows)


class Factors(NamedTuple):
    """The factors of a group; throughput is divided by that of TPOT."""

    tpot: Factor
    ttft: Factor

    def widened(self, tpot: float, ttft: float | None = None) -> Factors:
        """Both factors as `Factor.widened` gives them; by default TTFT has the deviation of TPOT."""
        return Factors(self.tpot.widened(tpot), self.ttft.widened(tpot if ttft is None else ttft))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors of the groups that were measured."""

    factors: Mapping[Group, Factors]
    requests: Mapping[Group, frozenset[Workload]] = field(default_factory=dict)

    def of(self, group: Group, requests: Workload | None = None) -> Factors:
        """The factors of a group; the priors of its family if the user measured nothing.

        The further `requests` are from the measured ones, by default not at all, the wider are the intervals.
        """
        measured = self.requests.get(group)
        factors = self.factors.get(group) or unmeasured(group.error_key)
        if requests is None or not measured:
            return factors
        n_octaves = min(octaves(requests, other) for other in measured)
        return factors.widened(sqrt(_OCTAVE_TPOT * n_octaves), sqrt(_OCTAVE_TTFT * n_octaves))


def fit(ratios: Iterable[Ratio]) -> Calibration:
    """The factors of all groups that were measured."""
    groups: dict[Group, list[Ratio]] = defaultdict(list)
    for ratio in ratios:
        groups[ratio.group].append(ratio)
    factors: dict[Group, Factors] = {}
    requests: dict[Group, frozenset[Workload]] = {}
    for group, rows in groups.items():
        factors[group] = _factors(rows, priors_of(group.error_key))
        requests[group] = frozenset(row.requests for row in rows if row.requests)
    return Calibration(factors, requests)


def octaves(first: Workload, second: Workload) -> float:
    """The distance of the lengths of two kinds of requests in factors of 2, of prompts plus answers.

    >>> octaves(Workload(1024, 256), Workload(2048, 1024))
    3.0
    """
    of_prompts = abs(log2(first.input_tokens / second.input_tokens))
    of_answers = abs(log2(first.output_tokens / second.output_tokens))
    return of_prompts + of_answers


def _factors(rows: Sequence[Ratio], priors: Priors) -> Factors:
    tpot = factor_of([row.tpot for row in rows if row.tpot], priors.tpot)
    ttft = factor_of([row.ttft for row in rows if row.ttft], priors.ttft)
    return Factors(tpot, ttft)


@cache
def unmeasured(key: ErrorKey) -> Factors:
    """The factors of a group of which the user measured nothing."""
    return _factors((), priors_of(key))


def factor_of(ratios: Sequence[float], prior: Prior) -> Factor:
    """The factor of one group; its centre is the median, so that one failed measurement does not move it.

    >>> prior = Prior(0.1, 0.1, 1.0)
    >>> [round(factor_of(ratios, prior).factor, 2) for ratios in ([], [1.1], [1.1] * 9, [3.0])]
    [1.0, 1.05, 1.09, 2.97]
    """
    n_rows = len(ratios)
    measured = n_effective = 0.0
    if ratios:
        measured = median(map(log, ratios)) - prior.centre
        n_effective = 1 + (n_rows - 1) * 2 / pi  # a median of n rows is as certain as the mean of fewer
    near = _shrunk(measured, n_effective, prior, prior.near)
    far = _shrunk(measured, n_effective, prior, prior.far)
    return _factor(_Rows(near, far, _probability_far(measured, n_effective, prior)), n_rows)


@cache
def _factor(rows: _Rows, n_rows: int) -> Factor:
    low, high, held = (exp(rows.quantile(share)) for share in (0.5 - INTERVAL / 2, 0.5 + INTERVAL / 2, HELD))
    return Factor(exp(rows.centre), low, high, held, n_rows, rows)


def _shrunk(measured: float, n_rows: float, prior: Prior, spread: float) -> _Mean:
    """The distribution of another row of a group, given the mean of `n_rows` of its rows over the centre of the prior.

    The mean of the group is shrunk to 0, around which the means of groups have the deviation `spread`.
    """
    weight = n_rows / (n_rows + (prior.scatter / spread) ** 2)
    mean_variance = (1 - weight) * spread**2
    return _Mean(weight * measured + prior.centre, mean_variance + prior.scatter**2)


def _probability_far(measured: float, n_rows: float, prior: Prior) -> float:
    """The probability that a group is one of those far from 1, given its rows, by Bayes."""
    if not n_rows:
        return prior.p_far
    # Variances of the measured mean in either case: of rows around the mean of the group, and of means of groups.
    near = prior.scatter**2 / n_rows + prior.near**2
    far = prior.scatter**2 / n_rows + prior.far**2
    log_odds = log(prior.p_far / (1 - prior.p_far) * sqrt(near / far)) + measured**2 / 2 * (1 / near - 1 / far)
    if log_odds >= _CERTAIN:
        return 1.0
    return 1 / (1 + exp(-log_odds))


NOT_CALIBRATED = Calibration({})
