"""Expected ratios of configurations that were not measured, learned from measured ones: `Ratios`, `Belief`.

A ratio is measured / forecast of a time. Its logarithm r is modelled as a Gaussian process [gaussian-processes,
equations 2.23 and 2.24], a sum of three terms:

    r = shared      by all configurations
      + near        bends with the distance: correlation exp(-distance), as of a random walk in every coordinate
      + own         of one configuration alone, `OWN`

How large the first two are is not known before: most forecasts are near the truth and bend little, some bend more, and
a few are far off, where what runs is another thing than what was forecast. So there are several `HYPOTHESES`, and every
measurement makes those likelier that expected it:

    nothing measured            first ratio 1.02              first ratio 3.0
    quiet  ####                 quiet  #####                  quiet
    bent   ####                 bent   ####                   bent
    far    ##                   far    #                      far    ##########

The result is a mixture of normal distributions for every configuration, `Belief`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray

OWN = 0.01
"""Standard deviation of what a configuration's log ratio shares with no other."""
SCATTER = 0.05
"""Standard deviation of a row that others measured, beside what configurations have in common: for intervals that are
shown. By the even half of the questions, `python studies/truth_loop.py --questions even --intervals`."""
LABEL_DISTANCE = 0.5
"""Between configurations of which one label is different, in units in which the correlation falls to 1/e."""
_EXACT = 1e-12
"""Variance of a measurement without noise; 0 would make configurations that are alike singular."""
_N_HALVINGS = 40
Correlation = Callable[[int], FloatArray]
"""The correlation of all configurations with one, of their terms `near`; 1 with itself, or the square of its doubt."""


class Posterior(NamedTuple):
    """The log ratio of each configuration given the measured ones, as a normal distribution.

    Attributes:
        means, variances: (configurations,).
        misfit: r^T K^-1 r of the measured log ratios r, whose prior covariance is K; on average as many as they are.
    """

    means: FloatArray
    variances: FloatArray
    misfit: float


def posterior(measured: FloatArray, across: FloatArray, prior: FloatArray, log_ratios: FloatArray) -> Posterior:
    """Gaussian process regression with a prior mean of 0 [gaussian-processes, equations 2.23 and 2.24].

    Args:
        measured: covariance of the measurements with each other, noise included: (measurements, measurements).
        across: covariance of configurations with measurements: (configurations, measurements).
        prior: variances before anything was measured: (configurations,).
        log_ratios: what was measured: (measurements,).
    """
    weights = np.linalg.solve(measured, across.T)
    misfit = float(log_ratios @ np.linalg.solve(measured, log_ratios))
    return Posterior(log_ratios @ weights, prior - np.einsum("ij,ji->i", across, weights), misfit)


def normal_shares(deviations: FloatArray) -> FloatArray:
    """The shares of a normal distribution below so many standard deviations from its mean, elementwise."""
    from scipy.special import ndtr  # slow to import, and not needed where only estimates are searched

    shares: FloatArray = ndtr(deviations)
    return shares


class Hypothesis(NamedTuple):
    """A hypothesis on the error of forecasts.

    Attributes:
        probability: before anything is measured.
        shared, near: standard deviations of the terms of log ratios.
    """

    probability: float
    shared: float
    near: float


HYPOTHESES = (Hypothesis(0.38, 0.1, 0.05), Hypothesis(0.52, 0.1, 0.135), Hypothesis(0.1, 0.9, 0.4))
"""Of forecasts of serving engines: two by the likelihood of measured rows of which `zlib.crc32(id)` is even, and one as
wide as the few groups that the forecast does not explain. Of such values, those with the best replays of even rows,
`python studies/truth_loop.py --half even`; docs/validation.md says what else had a part in it."""


class Belief(NamedTuple):
    """The log ratios of configurations: one of several normal distributions each.

    Attributes:
        probabilities: (hypotheses, 1), which add up to 1.
        means, deviations: (hypotheses, configurations).
    """

    probabilities: FloatArray
    means: FloatArray
    deviations: FloatArray

    @property
    def mean(self) -> FloatArray:
        """The expected log ratio of every configuration."""
        return self.average(self.means)

    def average(self, values: FloatArray) -> FloatArray:
        """The mean of values of (hypotheses, configurations) over hypotheses."""
        mean: FloatArray = (self.probabilities * values).sum(axis=0)
        return mean

    def share_below(self, limits: FloatArray) -> FloatArray:
        """The probability of every configuration that its log ratio is no more than its limit."""
        return self.average(normal_shares((limits - self.means) / self.deviations))

    def quantile(self, share: float) -> FloatArray:
        """The log ratio below which a configuration's lies with this probability, by bisection."""
        from scipy.special import ndtri

        ends: FloatArray = self.means + float(ndtri(share)) * self.deviations
        # Below all ends every distribution has less than the share, above all of them more: the quantile is between.
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(_N_HALVINGS):
            middle = (low + high) / 2
            is_above = self.share_below(middle) < share
            low = np.where(is_above, middle, low)
            high = np.where(is_above, high, middle)
        quantile: FloatArray = high
        return quantile

    def interval(self, share: float) -> tuple[FloatArray, FloatArray]:
        """The ends between which ratios that are measured, not logarithms, lie with this probability."""
        measured = self._replace(deviations=np.hypot(self.deviations, SCATTER))
        return np.exp(measured.quantile((1 - share) / 2)), np.exp(measured.quantile((1 + share) / 2))


class Ratios:
    """The log ratios that were measured, and what they say of others.

    Args:
        correlation: of all configurations with one of them.
        variances: of the term `near` of every configuration, in units of the hypothesis's: the square of its doubt.
        noise: standard deviation of the logarithm of a measurement; the same configuration may be measured again.
        hypotheses: how far forecasts may be off.
    """

    def __init__(
        self,
        correlation: Correlation,
        variances: FloatArray,
        noise: float,
        hypotheses: Sequence[Hypothesis] = HYPOTHESES,
    ) -> None:
        self._correlation, self._variances = correlation, variances
        self._noise, self._hypotheses = noise, tuple(hypotheses)
        self._columns: list[FloatArray] = []  # correlations of all configurations with each that was measured
        self.measured: list[int] = []
        self.log_ratios: list[float] = []

    def add(self, index: int, log_ratio: float) -> None:
        """Add a measurement of a configuration."""
        self.measured.append(index)
        self.log_ratios.append(log_ratio)
        self._columns.append(self._correlation(index))

    def belief(self) -> Belief:
        """The distribution of the true log ratios of all configurations, without the noise of one more measurement."""
        log_evidence, means, variances = [], [], []
        for hypothesis in self._hypotheses:
            evidence, said = self._posterior(hypothesis)
            log_evidence.append(evidence)
            means.append(said.means)
            variances.append(said.variances)
        # Relative to the largest: the evidence of many measurements is too small for a float.
        likelihoods = np.exp(np.array(log_evidence) - max(log_evidence))
        probabilities = (likelihoods / likelihoods.sum())[:, None]
        return Belief(probabilities, np.array(means), np.sqrt(np.maximum(variances, _EXACT)))

    def _posterior(self, hypothesis: Hypothesis) -> tuple[float, Posterior]:
        """The log evidence of a hypothesis, up to a constant, and what the measurements say if it is true."""
        prior = hypothesis.shared**2 + hypothesis.near**2 * self._variances + OWN**2
        evidence = float(np.log(hypothesis.probability))
        if not self.measured:
            return evidence, Posterior(np.zeros(len(prior)), prior, 0.0)
        at = np.array(self.measured)
        is_same = np.arange(len(prior))[:, None] == at
        across = hypothesis.shared**2 + hypothesis.near**2 * np.array(self._columns).T + OWN**2 * is_same
        measured = across[at] + (self._noise**2 + _EXACT) * np.eye(len(at))
        said = posterior(measured, across, prior, np.array(self.log_ratios))
        # The density of a normal distribution of this covariance at what was measured.
        _, log_determinant = np.linalg.slogdet(measured)
        return evidence - 0.5 * float(said.misfit + log_determinant), said


class Likeness(NamedTuple):
    """A configuration of one replica, as far as errors of forecasts depend on it.

    Attributes:
        n_sequences: in flight.
        tensor_parallel: GPUs of a group.
        n_stages: groups that form a pipeline.
        expert_parallel: among how many GPUs experts are dealt.
        attention_parallel: groups whose attention has sequences of its own.
    """

    n_sequences: float
    tensor_parallel: float = 1.0
    n_stages: float = 1.0
    expert_parallel: float = 1.0
    attention_parallel: float = 1.0


LENGTHS = Likeness(5.5, 3.5, 3.5, 6.0, 4.0)
"""Powers of 2 after which the correlation of errors falls to 1/e."""


def coordinates(configurations: Sequence[Likeness]) -> FloatArray:
    """The coordinates of configurations, (configurations, axes), for `correlations`: powers of 2 of what they count."""
    scaled: FloatArray = np.log2(np.array(configurations, dtype=float)) / np.array(LENGTHS)
    return scaled


def correlations(coordinates: FloatArray, labels: FloatArray, doubts: FloatArray) -> Correlation:
    """Configurations that are near by their coordinates and have the same labels are alike.

    Args:
        coordinates: (configurations, axes), in units in which the correlation falls to 1/e.
        labels: (configurations, labels): numbers that are equal or not; a different one is a distance of
            `LABEL_DISTANCE`.
        doubts: how much more than by a forecast the log ratio of a configuration bends; 1 for a forecast.
    """

    def with_one(index: int) -> FloatArray:
        squares = ((coordinates - coordinates[index]) ** 2).sum(axis=1)
        squares += LABEL_DISTANCE**2 * (labels != labels[index]).sum(axis=1)
        near: FloatArray = doubts * doubts[index] * np.exp(-np.sqrt(squares))
        return near

    return with_one
