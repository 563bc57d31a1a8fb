"""Forecasts of one cell over its batch sizes, with bounds between them: `ForecastCurve`.

A forecast takes the estimate a moment, so only some batch sizes are forecast; bounds cover the gaps between them:

    score
      |              ______ bound of the gap (4, 8): the score at 4 may grow until just before 8, when part of the
      |         ____/       time is fixed (`_grown`); after that the next tile of a kernel may be reached
      |        f     f      f  forecast
      |    f                f
      |  f
      +--1-2---4-----8----16--> batch size     survey: 1, 2, 4, ... and the largest; then the middle of a promising gap

The score is not assumed to be monotone: kernels divide a batch into tiles, so throughput rises between steps and falls
at each. Memory is not monotone on every target either: a batch may fit although a smaller and a larger one do not.
Where a target says that it never falls, the estimate is asked of no batch above one that lacks memory.

The errors of the estimate, fitted to measurements: `ErrorModel`.

It models r = log(measured / estimated) of every configuration as a sum of independent normal variables. Configurations
that have more in common share more of them, so a measurement narrows the bounds of close configurations most:

    r = all         shared by all configurations                              SIGMA_ALL
      + family      all knobs but batch size and memory proportion are equal  SIGMA_FAMILY
      + batch       the same family, and the batch sizes are close            SIGMA_BATCH
      + cell        all knobs but the batch size are equal                    SIGMA_CELL
      + own         no other configuration                                    SIGMA_OWN
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from autoauto.records.units import FloatArray
from autoauto.space.knobs import Knobs
from autoauto.study.methods.engines.ratios import posterior
from autoauto.study.methods.protocol import Forecast, Predictor, constraint_ratio

SURVEY_RATIO = 2.0
"""Ratio of neighbouring batch sizes of the survey."""
MIN_FIXED_SHARE = 0.08
"""Minimum share of a micro-batch's time that is assumed not to grow with the batch, until the next step of a tile."""
FIRST_FIXED_SHARE = 0.85
"""The assumed share when no smaller batch has a forecast."""
GROWTH_SAFETY = 1.25
"""Factor by which the fixed share may exceed the one that fits the last two forecasts."""
MEMORY_RIPPLE = 0.15
"""Share of a device's memory by which a larger batch may need less, when kernels divide it in another way."""
MAX_FORECASTS = 48
"""Number of forecasts of one cell after which it has no gaps any more."""
NEIGHBOUR_DISTANCE = 8
"""Batch sizes that differ by at most so many samples are neighbours: the tile sizes of many kernels."""


class Gap(NamedTuple):
    """The configurations between two neighbouring forecasts.

    Attributes:
        bound: the maximum score that is expected of them; inf where no forecast limits it.
        shortfall: the smaller `Forecast.shortfall` of the two ends; 0 when one of them works.
        last: index of the largest configuration, for which `bound` is computed.
        middle: index of the configuration to forecast next.
    """

    bound: float
    shortfall: float
    last: int
    middle: int


class ForecastCurve:
    """The configurations of a cell by ascending batch size, with the forecasts of some of them."""

    def __init__(self, cell: Sequence[Knobs], predictor: Predictor) -> None:
        self.sizes = [knobs.batch_size for knobs in cell]
        self.forecasts: dict[int, Forecast] = {}
        self._indices: list[int] = []  # of the forecasts, ascending
        self._cell, self._predict, self._rules_out = cell, predictor.forecast, predictor.memory_never_falls

    def forecast(self, index: int, worth: float = 0.0) -> Forecast:
        """The forecast of a configuration, or of a smaller one that rules it out; the estimate is asked once."""
        if index not in self.forecasts:
            if self.is_ruled_out(index):
                return self.at_or_below(index)
            self.replace(index, self._predict(self._cell[index], worth))
        return self.forecasts[index]

    def doubt_memory(self) -> None:
        """Rule no size out any more: what a smaller one lacks by the estimate may be an error of it."""
        self._rules_out = False
        self.survey()

    def replace(self, index: int, forecast: Forecast) -> None:
        """Use `forecast` from now on."""
        if index not in self.forecasts:
            insort(self._indices, index)
        self.forecasts[index] = forecast

    def survey(self, worth: float = 0.0) -> None:
        """Forecast the two ends and batch sizes a factor apart.

        The largest is first, which improves the estimate most; or the smallest, where larger ones then need none.
        """
        chosen = [len(self.sizes) - 1]
        index = 0
        while index < chosen[0]:
            chosen.append(index)
            index = bisect_left(self.sizes, SURVEY_RATIO * self.sizes[index], index + 1)
        for surveyed in sorted(chosen, reverse=not self._rules_out):
            self.forecast(surveyed, worth)

    def gaps(self) -> Iterator[Gap]:
        """The gaps in which a configuration may work; a bound needs a smaller one that fits, or the gap's upper end."""
        if len(self._indices) >= MAX_FORECASTS:
            return
        fitting: int | None = None  # the largest so far that fits
        best: int | None = None  # the one so far of the highest score
        for low, high in pairwise(self._indices):
            score = self.forecasts[low].score
            if score is not None:
                fitting = low
                if best is None or score >= (self.forecasts[best].score or 0.0):
                    best = low
            if high - low == 1 or self.is_ruled_out(high - 1) or not self._may_work_between(low, high):
                continue
            if fitting is None or best is None:
                bound = self.forecasts[high].score or inf
            else:
                bound = self._grown(fitting, high - 1)
                # In a wide gap the steps of tiles may be passed after which the score falls: the best may grow again.
                if self.sizes[high] - self.sizes[low] > NEIGHBOUR_DISTANCE:
                    bound = max(bound, self._grown(best, high - 1))
            shortfall = max(0.0, min(self.forecasts[low].shortfall, self.forecasts[high].shortfall))
            yield Gap(bound, shortfall, high - 1, (low + high) // 2)

    def neighbour(self, index: int) -> int | None:
        """A neighbour of a configuration that has no forecast yet; None when all have one."""
        size = self.sizes[index]
        near = range(
            bisect_left(self.sizes, size - NEIGHBOUR_DISTANCE), bisect_right(self.sizes, size + NEIGHBOUR_DISTANCE)
        )
        return next((i for i in near if i not in self.forecasts and not self.is_ruled_out(i)), None)

    def at_or_below(self, index: int) -> Forecast:
        """The forecast of a configuration, or of the next smaller one that has one."""
        return self.forecasts[self._indices[bisect_right(self._indices, index) - 1]]

    def is_ruled_out(self, index: int) -> bool:
        """True if it has no forecast, and a smaller batch lacks memory where a larger one never needs less."""
        if not self._rules_out or index in self.forecasts:
            return False
        n_smaller = bisect_left(self._indices, index)
        return n_smaller > 0 and self.forecasts[self._indices[n_smaller - 1]].lacks_memory

    def growth_bound(self, index: int) -> float:
        """The maximum score of a configuration, from the next smaller batch that fits; 0 when none does."""
        smaller = reversed(self._indices[: bisect_left(self._indices, index)])
        return next((self._grown(i, index) for i in smaller if self.forecasts[i].score is not None), 0.0)

    def _grown(self, index: int, to: int) -> float:
        """The score that the one at `index` may grow to at `to`, before the next step of a tile.

        When a share f of the time does not grow with the batch, a batch r times as large scores r / (f + (1 - f) r)
        times as much.
        """
        score, ratio = self.forecasts[index].score, self.sizes[to] / self.sizes[index]
        assert score is not None
        fixed = self._fixed_share(index)
        return score * ratio / (fixed + (1.0 - fixed) * ratio)

    def _fixed_share(self, index: int) -> float:
        """The share of a micro-batch's time that does not grow with the batch, fitted to the two last forecasts."""
        position = bisect_left(self._indices, index)
        if position == 0:
            return FIRST_FIXED_SHARE
        smaller = self._indices[position - 1]
        score, smaller_score = self.forecasts[index].score, self.forecasts[smaller].score
        if score is None or smaller_score is None or score <= smaller_score:
            return MIN_FIXED_SHARE
        gain = score / smaller_score
        ratio = self.sizes[index] / self.sizes[smaller]
        # `_grown` from the smaller one is this score: gain = ratio / (share + (1 - share) ratio), solved for the share.
        smaller_share = min(1.0, (gain - 1.0) * ratio / (gain * (ratio - 1.0)))
        time = smaller_share + (1.0 - smaller_share) * ratio  # time at `index` in units of the time at `smaller`
        return min(1.0, max(MIN_FIXED_SHARE, GROWTH_SAFETY * smaller_share / time))

    def _may_work_between(self, low: int, high: int) -> bool:
        """True if a configuration between two ends may work: one of the ends works or nearly does.

        A constrained quantity changes by no larger ratio than the batch size: a batch twice as large at most doubles
        throughput, and at most doubles cycles.
        """
        ratio = self.sizes[high] / self.sizes[low]
        for end in (self.forecasts[low], self.forecasts[high]):
            if end.score is None:
                may_work = 0.0 < end.excess <= MEMORY_RIPPLE
            else:
                may_work = constraint_ratio(end.violation) <= ratio
            if may_work:
                return True
        return False


SIGMA_ALL, SIGMA_FAMILY, SIGMA_BATCH, SIGMA_CELL, SIGMA_OWN = 0.3, 0.03, 0.006, 0.015, 0.002
"""Prior standard deviations of the terms of log(measured / estimated)."""
READING_SCATTER = 3.0
"""Where measurements scatter, the estimate of a batch size rests on readings at two others, and leaves out what a small
micro-batch costs beside computing. So `SIGMA_BATCH` is larger there, by so many times the noise."""
BATCH_LENGTH_SCALE = 1.0  # in log(batch size): the shared part falls to 1/e at this distance
PRIOR_STRENGTH = 8.0  # number of measurements that the prior deviations count for, when measurements scatter less
N_SIGMAS = 2.0  # standard deviations between the expected ratio and its upper bound


class GridPositions(NamedTuple):
    """Positions of configurations in the grid, as the error model sees them, an entry for each configuration.

    Attributes:
        cell: number of the cell: all knobs but the batch size.
        family: number of the family: all knobs but batch size and memory proportion.
        log_batch: natural logarithm of the batch size.
    """

    cell: FloatArray
    family: FloatArray
    log_batch: FloatArray


class ErrorModels(NamedTuple):
    """The errors of the two quantities that are estimated for a configuration that fits."""

    scores: ErrorModel
    constraint_ratios: ErrorModel

    @property
    def largest_ratio(self) -> float:
        """The upper bound of measured / estimated of a configuration that has no more in common than all have."""
        return float(self.scores.elsewhere[1])


class ErrorModel:
    """Gaussian process regression of log(measured / estimated), see `posterior`.

    The covariance of two configurations is the sum of the squared deviations of the terms that they share. When the
    measured ratios scatter more than the prior says, all deviations are scaled up by as much. When they scatter less,
    all are scaled down, weighted by the number of measurements: the mean of the scale of the prior and the scale of the
    measurements, conjugate to a normal distribution of unknown scale.

    `Ratios` is the model of the same errors where all of a space is forecast (`few`, `MeasureNext`). This one stays for
    searches that forecast by and by: it bounds configurations and whole cells that have no forecast yet, by what they
    share with measured ones, so that most are never forecast. `Ratios` has a column for every forecast configuration,
    and its mixture has no such bound. Which is measured next is decided by one rule for both, `expected_gains`.

    It is our own because scikit-learn's GaussianProcessRegressor gives the same numbers with a kernel and a scale that
    would be our code as well, and takes twice to five times as long.
    """

    def __init__(self, noise: float) -> None:
        self._noise, self._batch_variance = noise, SIGMA_BATCH**2 + (READING_SCATTER * noise) ** 2
        self._measured = GridPositions(np.zeros(0), np.zeros(0), np.zeros(0))
        self._log_ratios = np.zeros(0)

    def add(self, position: GridPositions, ratio: float) -> None:
        """Add one measurement: measured / estimated at a position."""
        columns = zip(self._measured, position, strict=True)
        self._measured = GridPositions(*(np.append(old, new) for old, new in columns))
        self._log_ratios = np.append(self._log_ratios, np.log(ratio))

    @property
    def elsewhere(self) -> tuple[float, float]:
        """The expected value and the upper bound of measured / estimated in a family of which nothing was measured."""
        unknown = np.array([-1.0])  # no cell and no family has this number
        mean, largest = self.ratios(GridPositions(unknown, unknown, unknown))
        return float(mean[0]), float(largest[0])

    def ratios(self, positions: GridPositions) -> tuple[FloatArray, FloatArray]:
        """The expected value of measured / estimated at `positions`, and its upper bound."""
        prior_variance = SIGMA_ALL**2 + SIGMA_FAMILY**2 + self._batch_variance + SIGMA_CELL**2 + SIGMA_OWN**2
        prior = np.full(len(positions.cell), prior_variance)
        n = len(self._log_ratios)
        if not n:
            return np.ones(len(prior)), np.exp(N_SIGMAS * np.sqrt(prior))
        measured = self._covariance(self._measured, self._measured) + np.eye(n) * (SIGMA_OWN**2 + self._noise**2)
        said = posterior(measured, self._covariance(positions, self._measured), prior, self._log_ratios)
        # Measurements that scatter more than the prior count in full, those that scatter less against `PRIOR_STRENGTH`.
        scale = max(said.misfit / n, (PRIOR_STRENGTH + said.misfit) / (PRIOR_STRENGTH + n))
        variances = np.maximum(said.variances, 0.0)  # rounding may leave less than nothing
        return np.exp(said.means), np.exp(said.means + N_SIGMAS * np.sqrt(scale * variances))

    def _covariance(self, first: GridPositions, second: GridPositions) -> FloatArray:
        """Covariance of all pairs of configurations, without their own terms."""
        is_cell = np.equal.outer(first.cell, second.cell)
        is_family = np.equal.outer(first.family, second.family)
        distances = np.abs(np.subtract.outer(first.log_batch, second.log_batch))
        shared = SIGMA_FAMILY**2 + self._batch_variance * np.exp(-distances / BATCH_LENGTH_SCALE)
        of_cell = np.where(is_cell, SIGMA_CELL**2, 0.0)
        covariance: FloatArray = SIGMA_ALL**2 + np.where(is_family, shared, 0.0) + of_cell
        return covariance
