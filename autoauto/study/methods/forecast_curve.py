"""What the estimate says of one cell, asked as seldom as will do: `Prospect`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from autoauto.records.knobs import Knobs
from autoauto.study.methods.protocol import Forecast, Predict, strain

COARSE = 2.0
"""Ratio of the batch sizes that are asked for first."""
FIXED = 0.08
"""At least this share of a micro-batch's time is taken not to grow with the batch, until the next step of a tile."""
FIRST_FIXED = 0.85
"""The share where no smaller batch was forecast."""
SAFETY = 1.25
"""By so much more the score may grow than it did up to the last forecast."""
RIPPLE = 0.15
"""Share of a device's memory by which a larger batch may need less, when kernels divide it in another way."""
MOST_FORECASTS = 48
"""Forecasts of one cell after which gaps are let be."""
AROUND = 8
"""Batch sizes that differ by so many samples or less are near each other: the steps of many kernels."""


class Gap(NamedTuple):
    """Configurations between two that were forecast.

    Attributes:
        score: none of them is expected to have more; inf where nothing that works lets expect anything.
        short: what the better one of the two ends lacks (`Forecast.lack`); 0 when one works.
        last, middle: the largest, for which `score` holds, and the one to ask next; indices.
    """

    score: float
    short: float
    last: int
    middle: int


class Prospect:
    """The configurations of a cell by ascending batch size, and forecasts of some of them.

    Nothing is taken to be monotone: between two forecasts another may be worth more, since throughput falls by steps
    and rises between them, and it may fit where both do not.
    """

    def __init__(self, cell: Sequence[Knobs], predict: Predict) -> None:
        self.sizes = [knobs.batch_size for knobs in cell]
        self.forecasts: dict[int, Forecast] = {}
        self._asked: list[int] = []
        self._cell, self._predict = cell, predict

    def ask(self, index: int) -> Forecast:
        """The forecast of a configuration."""
        if index not in self.forecasts:
            self.set(index, self._predict(self._cell[index]))
        return self.forecasts[index]

    def set(self, index: int, forecast: Forecast) -> None:
        """Take over a forecast."""
        if index not in self.forecasts:
            insort(self._asked, index)
        self.forecasts[index] = forecast

    def survey(self) -> None:
        """Ask for batch sizes a factor apart, and for both ends; the largest first, of which estimates learn most."""
        index, chosen = 0, [len(self.sizes) - 1]
        while index < chosen[0]:
            chosen.append(index)
            index = bisect_left(self.sizes, COARSE * self.sizes[index], index + 1)
        for asked in sorted(chosen, reverse=True):
            self.ask(asked)

    def gaps(self) -> Iterator[Gap]:
        """Where another forecast may be worth more than those there are."""
        if len(self._asked) >= MOST_FORECASTS:
            return
        fitting = best = None
        for low, high in pairwise(self._asked):
            score = self.forecasts[low].score
            if score is not None:
                fitting = low
                best = low if best is None or score >= (self.forecasts[best].score or 0.0) else best
            if high - low > 1 and self._may_work_between(low, high):
                wide = self.sizes[high] - self.sizes[low] > AROUND
                smaller = {index for index in (fitting, best if wide else None) if index is not None}
                score = max(
                    (self._grown(index, high - 1) for index in smaller), default=self.forecasts[high].score or inf
                )
                short = max(0.0, min(self.forecasts[low].lack, self.forecasts[high].lack))
                yield Gap(score, short, high - 1, (low + high) // 2)

    def around(self, index: int) -> int | None:
        """A configuration near `index` that was not asked for yet; None when all were."""
        size = self.sizes[index]
        near = range(bisect_left(self.sizes, size - AROUND), bisect_right(self.sizes, size + AROUND))
        return next((i for i in near if i not in self.forecasts), None)

    def near(self, index: int) -> Forecast:
        """The forecast of a configuration, or of the next smaller one that has one."""
        return self.forecasts[self._asked[bisect_right(self._asked, index) - 1]]

    def grown(self, index: int) -> float:
        """At most what a configuration would score, by the next smaller batch that fits; 0 when none does."""
        smaller = reversed(self._asked[: bisect_left(self._asked, index)])
        return next((self._grown(asked, index) for asked in smaller if self.forecasts[asked].score is not None), 0.0)

    def _grown(self, index: int, to: int) -> float:
        """What the score at `index` may become at `to` before the next step.

        When a share f of the time does not grow with the batch, a batch r times as large scores r / (f + (1 - f) r)
        times as much.
        """
        score, ratio = self.forecasts[index].score, self.sizes[to] / self.sizes[index]
        assert score is not None
        fixed = self._fixed_share(index)
        return score * ratio / (fixed + (1.0 - fixed) * ratio)

    def _fixed_share(self, index: int) -> float:
        """The share of a micro-batch's time that does not grow with the batch, as the score grew up to `index`."""
        place = bisect_left(self._asked, index)
        if place == 0:
            return FIRST_FIXED
        smaller = self._asked[place - 1]
        score, score_there = self.forecasts[index].score, self.forecasts[smaller].score
        if score is None or score_there is None or score <= score_there:
            return FIXED
        gain, ratio = score / score_there, self.sizes[index] / self.sizes[smaller]
        there = min(1.0, (gain - 1.0) * ratio / (gain * (ratio - 1.0)))
        return min(1.0, max(FIXED, SAFETY * there / (there + (1.0 - there) * ratio)))

    def _may_work_between(self, low: int, high: int) -> bool:
        """Whether one of two ends works, or lacks no more than what lies between may lack less.

        What a constraint compares changes by no larger ratio than the batch: with a batch twice as large throughput
        doubles at most, and so do cycles.
        """
        ratio = self.sizes[high] / self.sizes[low]
        ends = (self.forecasts[low], self.forecasts[high])
        return any(0.0 < end.excess <= RIPPLE if end.score is None else strain(end.miss) <= ratio for end in ends)
