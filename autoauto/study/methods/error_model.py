"""How far the estimate can be trusted, learned from what was measured: `Trust`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

OVERALL, FAMILY, BATCH, CELL, OWN = 0.3, 0.03, 0.006, 0.015, 0.002
"""Prior standard deviations of log(measured / estimated): what all configurations share, what those of a family share,
what those of a family with close batch sizes share, what a cell shares, and what is a configuration's own."""
REACH = 1.0  # in log(batch size): how close is close
STRENGTH = 8.0  # measurements that the prior deviations are worth, when measurements scatter less
SURE = 2.0  # standard deviations that the bound lies above the mean


class Places(NamedTuple):
    """Where configurations lie, one entry each.

    Attributes:
        cell: number of the cell: all knobs but the batch size.
        family: number of the family: all knobs but batch size and memory proportion.
        log_batch: natural logarithm of the batch size.
    """

    cell: Floats
    family: Floats
    log_batch: Floats


class Errors(NamedTuple):
    """What is known of the errors of both things that an estimate tells of a configuration that fits.

    Attributes:
        scores: of its score.
        strains: of how near it comes to breaking a constraint (`strain`).
    """

    scores: Trust
    strains: Trust


class Trust:
    """A normal prior over log(measured / estimated), and what measurements made of it.

    Ratios of close configurations are alike: the covariance adds the squares above for all that two configurations
    share (Gaussian process regression; Rasmussen and Williams, 2006, equations 2.23 and 2.24). When ratios scatter more
    than the prior says, all deviations are scaled up by as much; when less, down, as far as there are measurements for
    it (the mean of the prior's scale and theirs; conjugate to a normal with unknown scale).
    """

    def __init__(self, noise: float) -> None:
        self._noise = noise
        self._seen = Places(np.zeros(0), np.zeros(0), np.zeros(0))
        self._log_ratios = np.zeros(0)

    def learn(self, place: Places, ratio: float) -> None:
        """Take one measurement."""
        self._seen = Places(*(np.append(old, new) for old, new in zip(self._seen, place, strict=True)))
        self._log_ratios = np.append(self._log_ratios, np.log(ratio))

    def ratios(self, places: Places) -> tuple[Floats, Floats]:
        """What measured / estimated is at `places`: expected, and at most."""
        own = OVERALL**2 + FAMILY**2 + BATCH**2 + CELL**2 + OWN**2
        n = len(self._log_ratios)
        known = _covariance(self._seen, self._seen) + np.eye(n) * (OWN**2 + self._noise**2)
        across = _covariance(places, self._seen)
        weights = np.linalg.solve(known, across.T)
        mean = self._log_ratios @ weights
        variance = np.maximum(own - np.einsum("ij,ji->i", across, weights), 0.0)
        scatter = self._log_ratios @ np.linalg.solve(known, self._log_ratios)  # n on average, by the prior
        scale = max(scatter / max(n, 1), (STRENGTH + scatter) / (STRENGTH + n))
        return np.exp(mean), np.exp(mean + SURE * np.sqrt(scale * variance))


def _covariance(one: Places, other: Places) -> Floats:
    """What two configurations share, for all pairs; without what is their own."""
    cell, family, log_batch = (np.subtract.outer(a, b) for a, b in zip(one, other, strict=True))
    shared = FAMILY**2 + BATCH**2 * np.exp(-np.abs(log_batch) / REACH)
    covariance: Floats = OVERALL**2 + np.where(family == 0, shared, 0.0) + np.where(cell == 0, CELL**2, 0.0)
    return covariance
