"""The configurations of one cell that may still be worth a measurement: `Candidates`.

A configuration is in one of these states, by its forecast and by the measurements so far:

    measured          its observation is known
    candidate         it is expected to fit and to meet the constraints; its score has a bound (`open_candidates`)
    in a gap          it has no forecast; the gap has a bound (`best_gap`)
    doubtful          it is expected not to work, but the estimate may err by as much (`doubtful`)
    ruled out         it lacks more than the estimate may err by
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import erfc, exp, inf, log, sqrt
from typing import NamedTuple

import numpy as np

from autoauto.space.knobs import Knobs
from autoauto.space.table import simplicity
from autoauto.study.methods.forecast_curve import N_SIGMAS, ErrorModels, ForecastCurve, GridPositions
from autoauto.study.methods.protocol import Forecast, Observation, Predictor, constraint_ratio

MAX_MEMORY_DOUBT = 0.25
"""A configuration that lacks more than this share of a device's memory by the estimate does not fit."""
MEMORY_MARGIN = 0.02
"""Share of memory that stays free after the second wrong estimate of memory in a cell; doubled at every further one."""
CERTAIN = 1e-6
"""Standard deviation of the logarithm of what is known."""
CELL_PATIENCE = 2
"""Number of measurements in a row without improvement after which a cell has no candidates any more."""


def normal_share(deviations: float) -> float:
    """The share of a normal distribution below so many standard deviations from its mean, also far below it."""
    return erfc(-deviations / sqrt(2.0)) / 2.0


class Candidate(NamedTuple):
    """A configuration that is expected to work.

    Attributes:
        bound: the maximum score that is plausible.
        holds: the probability that its constraints hold.
        cell: its cell.
        position: its index there.
    """

    bound: float
    expected: float
    holds: float
    cell: Candidates
    position: int

    @property
    def knobs(self) -> Knobs:
        """The configuration."""
        return self.cell.cell[self.position]

    @property
    def forecast(self) -> float:
        """The score by the estimate alone."""
        return self.cell.curve.forecasts[self.position].score or 0.0

    @property
    def is_bound(self) -> bool:
        """True if the forecast is a bound: the configuration is no better than it (`Forecast.is_bound`)."""
        return self.cell.curve.forecasts[self.position].is_bound

    def expected_gain(self, best: float) -> float:
        """The mean of what its score is above the best, where its constraints hold.

        It is `measure_next.expected_gains` of one normal distribution, without a limit.
        """
        deviation = max(log(self.bound / self.expected) / N_SIGMAS, CERTAIN)
        distance = log(self.expected / best) / deviation
        mean = self.expected * exp(deviation**2 / 2)
        return self.holds * (mean * normal_share(distance + deviation) - best * normal_share(distance))

    @property
    def rank(self) -> tuple[float, ...]:
        """Larger for a larger bound, then for the simpler configuration."""
        return self.bound, *(-number for number in simplicity(self.knobs))


class Candidates:
    """The configurations of a cell, their forecasts, and the observations of those that were measured.

    The bound of a score is its forecast, or for a gap the bound of the forecast curve, times the upper bound of
    measured / estimated there (`ErrorModel.ratios`).
    """

    def __init__(self, cell: Sequence[Knobs], predictor: Predictor, number: int, family: int) -> None:
        self.cell = cell
        self.limit = max(map(predictor.limit, cell))
        self.curve = ForecastCurve(cell, predictor)
        self._observations: dict[int, Observation] = {}
        sizes = np.array(self.curve.sizes, dtype=float)
        self._positions = GridPositions(np.full(len(cell), number), np.full(len(cell), family), np.log(sizes))
        self._score_ratio = self._max_score_ratio = np.ones(len(cell))
        self._constraint_ratio = self._min_constraint_ratio = np.ones(len(cell))
        self._gaps: list[tuple[float, float, int]] | None = None  # cached until something changes, as is `_ranked`
        self._ranked: list[Candidate] | None = None
        self._max_excess = inf  # what lacks more of a device's memory by the estimate is not expected to fit
        self._n_memory_errors = 0  # configurations that fit by the estimate, and did not when they were measured
        self._n_surprises = 0  # configurations that did not fit by the estimate, and did when they were measured
        self._n_without_gain = 0

    def update(self, models: ErrorModels) -> None:
        """Compute all bounds anew from the fitted errors of the estimate."""
        self._score_ratio, self._max_score_ratio = models.scores.ratios(self._positions)
        self._constraint_ratio, upper = models.constraint_ratios.ratios(self._positions)
        self._min_constraint_ratio = self._constraint_ratio**2 / upper  # as far below the expected one, in logarithms
        self._gaps = self._ranked = None

    def record(self, index: int, observation: Observation, models: ErrorModels, improved: bool) -> None:
        """Record the observation of a configuration; `improved` when it is the best so far by enough."""
        forecast = self.curve.forecast(index)
        position = GridPositions(*(column[[index]] for column in self._positions))
        self._observations[index] = observation
        self._gaps = self._ranked = None
        self._n_without_gain = 0 if improved else self._n_without_gain + 1
        if observation.violation > -inf and forecast.violation > -inf:
            ratio = constraint_ratio(observation.violation) / constraint_ratio(forecast.violation)
            models.constraint_ratios.add(position, ratio)
        if observation.score is None:
            if forecast.score is not None and observation.violation <= 0:
                # It fits by the estimate only: what lacks as much, or is about as full, does not fit either.
                margin = MEMORY_MARGIN * (2**self._n_memory_errors - 1)
                self._max_excess = min(self._max_excess, forecast.excess) - margin
                self._n_memory_errors += 1
        elif forecast.score is None:
            # It fits although the estimate said no: the forecast that the errors so far would make of its score.
            self._n_surprises += 1
            self.curve.replace(index, Forecast(observation.score / float(self._score_ratio[index]), 0.0))
            self.curve.doubt_memory()
        elif not forecast.is_bound:
            models.scores.add(position, observation.score / forecast.score)

    @property
    def measured_sizes(self) -> set[int]:
        """The batch sizes that were measured."""
        return {self.curve.sizes[index] for index, seen in self._observations.items() if seen.measured}

    def open_candidates(self) -> Iterator[Candidate]:
        """The configurations that are expected to work and were not measured."""
        for index, forecast in self.curve.forecasts.items():
            if index in self._observations or forecast.score is None or not self._expected_to_work(index, forecast):
                continue
            bound = forecast.score
            if not forecast.is_bound:  # a bound has no error: the errors are those of forecasts
                bound *= self._max_score_ratio[index]
            expected = forecast.score * float(self._score_ratio[index])
            yield Candidate(bound, expected, self._p_holds(index, forecast), self, index)

    @property
    def is_unsupported(self) -> bool:
        """True if the runtime of the configuration cannot run the model."""
        return all(forecast.unsupported for forecast in self.curve.forecasts.values())

    @property
    def is_tried(self) -> bool:
        """True if a configuration of the cell has an observation."""
        return bool(self._observations)

    @property
    def best_forecast(self) -> float:
        """The largest score of its forecasts."""
        return max((forecast.score or 0.0 for forecast in self.curve.forecasts.values()), default=0.0)

    def best(self) -> Candidate | None:
        """The candidate of the highest rank; None without one, or after `CELL_PATIENCE` measurements without gain."""
        if self._n_without_gain >= CELL_PATIENCE:
            return None
        if self._ranked is None:
            # As `Candidate.rank`: in a cell the smaller batch is the simpler configuration.
            self._ranked = sorted(self.open_candidates(), key=lambda each: (-each.bound, each.position))
        return next(iter(self._ranked), None)

    def survey(self, models: ErrorModels, floor: float) -> None:
        """Make a few forecasts; those whose bound is certainly not above `floor` may be `is_bound`."""
        self.update(models)
        self.curve.survey(floor / float(self._max_score_ratio.max()))

    def forecast(self, index: int, floor: float = 0.0) -> None:
        """Forecast one more configuration; where its bound is certainly not above `floor` it may be `is_bound`."""
        self.curve.forecast(index, floor / float(self._max_score_ratio[index]))
        self._gaps = self._ranked = None

    def refine(self, index: int, refine: Callable[[Knobs], Forecast]) -> None:
        """Make the forecast of a configuration tighter."""
        self.curve.replace(index, refine(self.cell[index]))
        self._gaps = self._ranked = None

    def best_gap(self, floor: float) -> tuple[float, int] | None:
        """The most promising gap of a bound above `floor`: its promise, and which index to forecast; None without one.

        The promise is the bound, less the share by which both ends fail to work.
        """
        if self._n_without_gain >= CELL_PATIENCE:
            return None
        if self._gaps is None:
            self._gaps = []
            for gap in self.curve.gaps():
                bound = gap.bound * self._max_score_ratio[gap.last]
                self._gaps.append((bound * (1.0 - gap.shortfall), bound, gap.middle))
            self._gaps.sort(reverse=True)
        for promise, bound, middle in self._gaps:
            if bound > floor:
                return promise, middle
        return None

    def closed(self, target: float) -> bool:
        """True if no configuration that is expected to work has a bound above `target`."""
        best = self.best()
        return self.best_gap(target) is None and bool(best is None or best.bound <= target)

    def doubtful(self, target: float) -> int | None:
        """A configuration above the largest that works, which would score above `target` but is expected not to work.

        It is the smallest of these. Once the estimate of memory was wrong, the step from the largest that works doubles
        until a configuration does not fit, and is halved from then on.
        """
        works = [index for index, seen in self._observations.items() if seen.score is not None]
        largest = max(works, default=-1)
        fails = [index for index, seen in self._observations.items() if seen.score is None and index > largest]
        stop = min(fails, default=len(self.cell))
        first = next((index for index in range(largest + 1, stop) if self._is_doubtful(index, target)), None)
        if first is None or not self._n_surprises:
            return first
        if fails:
            return (first + stop) // 2
        step: int = 2**self._n_surprises
        return min(first + step - 1, stop - 1)

    def doubt_memory(self, index: int) -> bool:
        """Rule no size out by a smaller one any more, if this one is; False if it is not."""
        if not self.curve.is_ruled_out(index):
            return False
        self.curve.doubt_memory()
        self._gaps = self._ranked = None
        return True

    def last_resort(self) -> int | None:
        """The index to try if nothing is expected to work in a cell: the smallest batch, then the least shortfall."""
        if 0 not in self._observations:
            return 0
        closest = min(self.curve.forecasts, key=lambda index: self.curve.forecasts[index].shortfall)
        may_work = self._constraints_may_hold(closest, self.curve.forecasts[closest])
        return closest if may_work and closest not in self._observations else None

    def _expected_to_work(self, index: int, forecast: Forecast) -> bool:
        ratio = constraint_ratio(forecast.violation) * self._constraint_ratio[index]
        return forecast.excess < self._max_excess and bool(ratio <= 1.0)

    def _p_holds(self, index: int, forecast: Forecast) -> float:
        """The probability that the constraints hold of a configuration, by the error of the estimate."""
        if forecast.violation == -inf:
            return 1.0
        ratio = self._constraint_ratio[index]
        deviation = max(log(ratio / self._min_constraint_ratio[index]) / N_SIGMAS, CERTAIN)
        return normal_share(-log(constraint_ratio(forecast.violation) * ratio) / deviation)

    def _is_doubtful(self, index: int, target: float) -> bool:
        """True if the configuration may fit although the forecast says no, and its score may exceed `target`."""
        forecast = self.curve.at_or_below(index)
        if forecast.score is None:
            possible = 0.0 < forecast.excess <= MAX_MEMORY_DOUBT
        else:
            possible = self._constraints_may_hold(index, forecast) and not self._expected_to_work(index, forecast)
        return possible and bool(self.curve.growth_bound(index) * self._max_score_ratio[index] > target)

    def _constraints_may_hold(self, index: int, forecast: Forecast) -> bool:
        """True if the constraints hold by the estimate, or within its error."""
        ratio = constraint_ratio(forecast.violation) * self._min_constraint_ratio[index]
        return forecast.violation <= 0.0 or bool(ratio <= 1.0)
