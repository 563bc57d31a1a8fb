"""The errors of the estimate, fitted to measurements: `ErrorModel`.

It models r = log(measured / estimated) of every configuration as a sum of independent normal variables. Configurations
that have more in common share more of them, so a measurement narrows the bounds of close configurations most:

    r = all         shared by all configurations                              SIGMA_ALL
      + family      all knobs but batch size and memory proportion are equal  SIGMA_FAMILY
      + batch       the same family, and the batch sizes are close            SIGMA_BATCH
      + cell        all knobs but the batch size are equal                    SIGMA_CELL
      + own         no other configuration                                    SIGMA_OWN
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray

SIGMA_ALL, SIGMA_FAMILY, SIGMA_BATCH, SIGMA_CELL, SIGMA_OWN = 0.3, 0.03, 0.006, 0.015, 0.002
"""Prior standard deviations of the terms of log(measured / estimated)."""
BATCH_LENGTH_SCALE = 1.0  # in log(batch size): the shared part falls to 1/e at this distance
PRIOR_STRENGTH = 8.0  # number of measurements that the prior deviations count for, when measurements scatter less
N_SIGMAS = 2.0  # standard deviations between the expected ratio and its upper bound


class GridPositions(NamedTuple):
    """What the error model knows about configurations, one entry each.

    Attributes:
        cell: number of the cell: all knobs but the batch size.
        family: number of the family: all knobs but batch size and memory proportion.
        log_batch: natural logarithm of the batch size.
    """

    cell: FloatArray
    family: FloatArray
    log_batch: FloatArray


class ErrorModels(NamedTuple):
    """The errors of the two quantities that are estimated for a configuration that fits.

    Attributes:
        scores: errors of its score.
        constraint_ratios: errors of its `constraint_ratio`.
    """

    scores: ErrorModel
    constraint_ratios: ErrorModel

    @property
    def largest_ratio(self) -> float:
        """The upper bound of measured / estimated of a configuration that has no more in common than all have."""
        return float(self.scores.elsewhere[1])


class ErrorModel:
    """Gaussian process regression of log(measured / estimated) [gaussian-processes, equations 2.23 and 2.24].

    The covariance of two configurations is the sum of the squared deviations of the terms that they share. When the
    measured ratios scatter more than the prior says, all deviations are scaled up by as much. When they scatter less,
    all are scaled down, weighted by the number of measurements: the mean of the scale of the prior and the scale of the
    measurements, conjugate to a normal distribution of unknown scale.

    It is our own because scikit-learn's GaussianProcessRegressor gives the same numbers with a kernel and a scale that
    would be our code as well, and takes twice to five times as long.
    """

    def __init__(self, noise: float) -> None:
        self._noise = noise
        self._measured = GridPositions(np.zeros(0), np.zeros(0), np.zeros(0))
        self._log_ratios = np.zeros(0)

    def add(self, position: GridPositions, ratio: float) -> None:
        """Add one measurement: measured / estimated at a position."""
        self._measured = GridPositions(
            *(np.append(old, new) for old, new in zip(self._measured, position, strict=True))
        )
        self._log_ratios = np.append(self._log_ratios, np.log(ratio))

    @property
    def elsewhere(self) -> tuple[float, float]:
        """The expected value and the upper bound of measured / estimated in a family of which nothing was measured."""
        nowhere = GridPositions(*(np.full(1, -1.0) for _ in GridPositions._fields))
        mean, largest = self.ratios(nowhere)
        return float(mean[0]), float(largest[0])

    def ratios(self, positions: GridPositions) -> tuple[FloatArray, FloatArray]:
        """The expected value of measured / estimated at `positions`, and its upper bound."""
        prior_variance = SIGMA_ALL**2 + SIGMA_FAMILY**2 + SIGMA_BATCH**2 + SIGMA_CELL**2 + SIGMA_OWN**2
        n = len(self._log_ratios)
        known = _covariance(self._measured, self._measured) + np.eye(n) * (SIGMA_OWN**2 + self._noise**2)
        across = _covariance(positions, self._measured)
        weights = np.linalg.solve(known, across.T)
        mean = self._log_ratios @ weights
        variance = np.maximum(prior_variance - np.einsum("ij,ji->i", across, weights), 0.0)
        scatter = self._log_ratios @ np.linalg.solve(known, self._log_ratios)  # n on average, by the prior
        scale = max(scatter / max(n, 1), (PRIOR_STRENGTH + scatter) / (PRIOR_STRENGTH + n))
        return np.exp(mean), np.exp(mean + N_SIGMAS * np.sqrt(scale * variance))


def _covariance(first: GridPositions, second: GridPositions) -> FloatArray:
    """Covariance of all pairs of configurations, without their own terms."""
    cell, family, log_batch = (np.subtract.outer(a, b) for a, b in zip(first, second, strict=True))
    shared = SIGMA_FAMILY**2 + SIGMA_BATCH**2 * np.exp(-np.abs(log_batch) / BATCH_LENGTH_SCALE)
    covariance: FloatArray = SIGMA_ALL**2 + np.where(family == 0, shared, 0.0) + np.where(cell == 0, SIGMA_CELL**2, 0.0)
    return covariance
