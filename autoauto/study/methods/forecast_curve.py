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
at each. Memory is not monotone either: a batch may fit although a smaller and a larger one do not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from autoauto.records.knobs.knobs import Knobs
from autoauto.study.methods.protocol import Forecast, Predict, constraint_ratio

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

    def __init__(self, cell: Sequence[Knobs], predict: Predict) -> None:
        self.sizes = [knobs.batch_size for knobs in cell]
        self.forecasts: dict[int, Forecast] = {}
        self._indices: list[int] = []  # of the forecasts, ascending
        self._cell, self._predict = cell, predict

    def forecast(self, index: int, worth: float = 0.0) -> Forecast:
        """The forecast of a configuration; the estimate is asked once."""
        if index not in self.forecasts:
            self.replace(index, self._predict(self._cell[index], worth))
        return self.forecasts[index]

    def replace(self, index: int, forecast: Forecast) -> None:
        """Use `forecast` from now on."""
        if index not in self.forecasts:
            insort(self._indices, index)
        self.forecasts[index] = forecast

    def survey(self, worth: float = 0.0) -> None:
        """Forecast the two ends and batch sizes a factor apart; the largest first, which teaches the estimate most."""
        index, chosen = 0, [len(self.sizes) - 1]
        while index < chosen[0]:
            chosen.append(index)
            index = bisect_left(self.sizes, SURVEY_RATIO * self.sizes[index], index + 1)
        for surveyed in sorted(chosen, reverse=True):
            self.forecast(surveyed, worth)

    def gaps(self) -> Iterator[Gap]:
        """The gaps in which a configuration may work; a bound needs a smaller one that fits, or the gap's upper end."""
        if len(self._indices) >= MAX_FORECASTS:
            return
        fitting = best = None
        for low, high in pairwise(self._indices):
            score = self.forecasts[low].score
            if score is not None:
                fitting = low
                best = low if best is None or score >= (self.forecasts[best].score or 0.0) else best
            if high - low > 1 and self._may_work_between(low, high):
                wide = self.sizes[high] - self.sizes[low] > NEIGHBOUR_DISTANCE
                smaller = {index for index in (fitting, best if wide else None) if index is not None}
                bound = max(
                    (self._grown(index, high - 1) for index in smaller), default=self.forecasts[high].score or inf
                )
                shortfall = max(0.0, min(self.forecasts[low].shortfall, self.forecasts[high].shortfall))
                yield Gap(bound, shortfall, high - 1, (low + high) // 2)

    def neighbour(self, index: int) -> int | None:
        """A neighbour of a configuration that has no forecast yet; None when all have one."""
        size = self.sizes[index]
        near = range(
            bisect_left(self.sizes, size - NEIGHBOUR_DISTANCE), bisect_right(self.sizes, size + NEIGHBOUR_DISTANCE)
        )
        return next((i for i in near if i not in self.forecasts), None)

    def at_or_below(self, index: int) -> Forecast:
        """The forecast of a configuration, or of the next smaller one that has one."""
        return self.forecasts[self._indices[bisect_right(self._indices, index) - 1]]

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
        gain, ratio = score / smaller_score, self.sizes[index] / self.sizes[smaller]
        smaller_share = min(1.0, (gain - 1.0) * ratio / (gain * (ratio - 1.0)))
        time = smaller_share + (1.0 - smaller_share) * ratio  # time at `index` in units of the time at `smaller`
        return min(1.0, max(MIN_FIXED_SHARE, GROWTH_SAFETY * smaller_share / time))

    def _may_work_between(self, low: int, high: int) -> bool:
        """Whether one of two ends works, or is so close to it that a configuration between them may work.

        A constrained quantity changes by no larger ratio than the batch size: a batch twice as large at most doubles
        throughput, and at most doubles cycles.
        """
        ratio = self.sizes[high] / self.sizes[low]
        ends = (self.forecasts[low], self.forecasts[high])
        return any(
            0.0 < end.excess <= MEMORY_RIPPLE if end.score is None else constraint_ratio(end.violation) <= ratio
            for end in ends
        )
