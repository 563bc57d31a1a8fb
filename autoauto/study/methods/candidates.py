"""What could still be worth a measurement in one cell: `Candidates`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from autoauto.records.knobs import Knobs
from autoauto.study.methods.error_model import Errors, Places
from autoauto.study.methods.forecast_curve import Prospect
from autoauto.study.methods.protocol import Forecast, Predict, Tried, strain

DOUBT = 0.25
"""What lacks more than this share of a device's memory by the estimate does not fit."""
MARGIN = 0.02
"""Share of memory that is kept free after the estimate's second failure in a cell; doubled at every further one."""
PATIENCE = 2
"""Measurements in a row that a cell may take without any good."""


class Candidate(NamedTuple):
    """A configuration that is expected to work.

    Attributes:
        bound: what it scores at most.
        expected: what it is expected to score.
        cell: the cell that it is of.
        place: its index there.
    """

    bound: float
    expected: float
    cell: Candidates
    place: int

    @property
    def knobs(self) -> Knobs:
        """The configuration."""
        return self.cell.cell[self.place]

    @property
    def rank(self) -> tuple[float, int, int, int]:
        """More for what may be better, then for what is simpler."""
        knobs = self.knobs
        return self.bound, -knobs.n_devices, -knobs.replicas, -knobs.batch_size


class Candidates:
    """The configurations of a cell, what the estimate says of them, and what came of those that were tried.

    What a configuration scores at most is its forecast, or what smaller batches let expect, times the largest ratio of
    measured to estimated that all measurements so far allow there.
    """

    def __init__(self, cell: Sequence[Knobs], predict: Predict, number: int, family: int) -> None:
        self.cell = cell
        self.prospect = Prospect(cell, predict)
        self._tried: dict[int, Tried] = {}
        sizes = np.array(self.prospect.sizes, dtype=float)
        self._places = Places(np.full(len(cell), number), np.full(len(cell), family), np.log(sizes))
        self._expected = self._most = self._strained = self._least_strained = np.ones(len(cell))
        self._gaps: list[tuple[float, float, int]] | None = None  # until something changes, as is the next
        self._ranked: list[Candidate] | None = None
        self._too_full, self._n_failures, self._n_surprises, self._n_vain = inf, 0, 0, 0

    def trust(self, errors: Errors) -> None:
        """Take over what is known of the estimate's errors."""
        self._expected, self._most = errors.scores.ratios(self._places)
        self._strained, most = errors.strains.ratios(self._places)
        self._least_strained = self._strained**2 / most  # as far below what is expected, in logarithms
        self._gaps = self._ranked = None

    def learn(self, index: int, tried: Tried, errors: Errors, good: bool) -> None:
        """Take over what came of a configuration; `good` when it was the best so far and worth it."""
        forecast, place = self.prospect.ask(index), Places(*(column[[index]] for column in self._places))
        self._tried[index] = tried
        self._gaps = self._ranked = None
        self._n_vain = 0 if good else self._n_vain + 1
        if tried.miss > -inf and forecast.miss > -inf:
            errors.strains.learn(place, strain(tried.miss) / strain(forecast.miss))
        if tried.score is None:
            if forecast.score is not None and tried.miss <= 0:
                self._too_full = min(self._too_full, forecast.excess) - MARGIN * (2**self._n_failures - 1)
                self._n_failures += 1
        elif forecast.score is None:
            self._n_surprises += 1
            self.prospect.set(index, Forecast(tried.score / float(self._expected[index]), 0.0))
        else:
            errors.scores.learn(place, tried.score / forecast.score)

    def open(self) -> Iterator[Candidate]:
        """What is expected to work and was not tried."""
        for index, forecast in self.prospect.forecasts.items():
            if index not in self._tried and forecast.score is not None and self._expected_to_work(index, forecast):
                bound, expected = forecast.score * self._most[index], forecast.score * self._expected[index]
                yield Candidate(bound, expected, self, index)

    def best(self) -> Candidate | None:
        """What of the open ones may be best; None when there is none, or the cell has disappointed too often."""
        if self._n_vain >= PATIENCE:
            return None
        if self._ranked is None:
            self._ranked = sorted(self.open(), key=lambda candidate: candidate.rank, reverse=True)
        return next(iter(self._ranked), None)

    def ask(self, index: int) -> None:
        """Forecast one more configuration."""
        self.prospect.ask(index)
        self._gaps = self._ranked = None

    def gap(self, floor: float) -> tuple[float, int] | None:
        """Where a forecast could find more than `floor`: how promising it is, and which to ask; None when nowhere."""
        if self._n_vain >= PATIENCE:
            return None
        if self._gaps is None:
            bounds = [(gap.score * self._most[gap.last], gap) for gap in self.prospect.gaps()]
            self._gaps = sorted(((bound * (1.0 - gap.short), bound, gap.middle) for bound, gap in bounds), reverse=True)
        return next(((promise, middle) for promise, bound, middle in self._gaps if bound > floor), None)

    def closed(self, target: float) -> bool:
        """Whether nothing that is expected to work could score above `target`."""
        best = self.best()
        return self.gap(target) is None and bool(best is None or best.bound <= target)

    def doubtful(self, target: float) -> int | None:
        """The smallest batch that would score above `target` if it did work, though it is not expected to.

        The estimate of memory may err. Once it did, steps double until something does not fit, and then they halve.
        What constraints allow may err, too, but how far it does was learned.
        """
        largest = max((index for index, tried in self._tried.items() if tried.score is not None), default=-1)
        failed = min((i for i, tried in self._tried.items() if tried.score is None and i > largest), default=None)
        stop = len(self.cell) if failed is None else failed
        first = next((index for index in range(largest + 1, stop) if self._worth_doubt(index, target)), None)
        if first is None or not self._n_surprises:
            return first
        return min(first + 2**self._n_surprises - 1, stop - 1) if failed is None else (first + stop) // 2

    def smallest(self) -> int | None:
        """What to try in a cell where nothing is expected to work: the smallest batch, then what lacks least."""
        least = min(self.prospect.forecasts, key=lambda index: self.prospect.forecasts[index].lack)
        last = [least] if self._may_hold(least, self.prospect.forecasts[least]) else []
        return next((index for index in (0, *last) if index not in self._tried), None)

    def _expected_to_work(self, index: int, forecast: Forecast) -> bool:
        return forecast.excess < self._too_full and strain(forecast.miss) * self._strained[index] <= 1.0

    def _worth_doubt(self, index: int, target: float) -> bool:
        """What is expected to work has a bound of its own, and needs no doubt."""
        forecast = self.prospect.near(index)
        if forecast.score is None:
            possible = 0.0 < forecast.excess <= DOUBT
        else:
            possible = self._may_hold(index, forecast) and not self._expected_to_work(index, forecast)
        return possible and self.prospect.grown(index) * self._most[index] > target

    def _may_hold(self, index: int, forecast: Forecast) -> bool:
        """Whether the constraints may hold; what the estimate says is always possible."""
        return forecast.miss <= 0.0 or strain(forecast.miss) * self._least_strained[index] <= 1.0
