"""Branch and bound over forecasts, the largest expected gain first: `guided`.

One cell (all knobs but the batch size) in the middle of a search:

    score
      |                     b     g
      |                     |    (gap)      f  forecast: what the estimate says
      | - - - - - - m - - - | - - - - - - - b  bound: f times the largest plausible measured / estimated
      |       b     :       f               m  measured
      |       |     f                       g  bound of a gap between two forecasts
      |   b   f                             - - target: the best measured score of all cells, plus MIN_GAIN
      |   f                             x   x  expected not to fit
      +---1---2-----4-------8-----------16----> batch size

1 and 2 are pruned: their bounds are below the target. 8 may be better, so it is measured unless a candidate of another
cell has a larger expected gain (`Candidate.expected_gain`). The gap between 8 and 16 has a bound above the target, so
its middle is forecast first (the branching step); a forecast costs much less than a measurement. 16 is measured only if
the score that it would have exceeds the target and its shortfall is within the error of the estimate. Every measurement
raises the target or narrows the bounds, in this cell most and in all others too (`ErrorModel`). A cell is closed when
nothing of it lies above the target; the search ends when all are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import exp, inf

from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute
from autoauto.space.space import SearchSpace
from autoauto.space.table import simplicity
from autoauto.study.methods.candidates import Candidate, Candidates
from autoauto.study.methods.fewest import fewest
from autoauto.study.methods.forecast_curve import SIGMA_ALL, ErrorModel, ErrorModels
from autoauto.study.methods.protocol import Observation, Predictor, Proposal, Proposals
from autoauto.study.methods.simple_uses import simple_uses
from autoauto.study.methods.surveyed import Survey, surveyed

MIN_GAIN = 0.003
"""A configuration whose bound exceeds the best by no more than this share is not worth a measurement."""
RESOLUTION = 2.8
"""The same where measurements scatter, in units of their noise: two readings differ by more in 5 % of all cases."""
TIE_SHARE = 0.004
"""The neighbours of the highest bound are forecast before it is measured; so are those within this share of it."""
N_CALIBRATING = 4
"""So many samples are measured before the other cells with limits are surveyed: errors are less uncertain then."""
PATIENCE = 8
"""Number of measurements in a row without improvement after which the best is assumed to be the best of all."""


def guided(space: SearchSpace, known: Mapping[Knobs, Observation], predictor: Predictor, noise: float) -> Proposals:
    """Measure what has the largest expected gain, fit the errors of the estimate, until no bound is above the best.

    Where the estimate rules out a configuration that would be better, the smallest such batch is measured nevertheless,
    and larger ones when it fits (`Candidates.doubtful`). The errors of constrained quantities are fitted like those of
    scores: a configuration that is expected to violate a constraint is measured only when it would be better and the
    constraint may hold within the error.

    What one would run without a search is never ruled out by the errors of other configurations (`_untried_use`).

    Two rules bound the cost of a poor estimate: a cell has no candidates after `CELL_PATIENCE` measurements in a row
    without improvement, and the whole search has none after `PATIENCE`. So the best is not proven; the loss is at most
    0.5 % by `studies/search_efficiency.py`. Where a measurement gives what the forecast says, it is (`surveyed`).

    Args:
        known: the observations of earlier searches, oldest first.
        predictor: the estimate. Cells are forecast only when their limit is above what is known, and a forecast is made
            tighter only before such a configuration is measured, so never for one whose bound is below the best.
        noise: scores within this share of each other are ties; configurations of fewer devices that are expected to tie
            with the best are measured too.
    """
    if predictor.survey is not None:
        assert isinstance(predictor.survey, Survey)
        method = fewest if predictor.survey.counts_devices else surveyed
        yield from method(space, known, predictor.survey)
        return
    search = _BranchAndBound(space, predictor, noise)
    total = search.n_cells
    while (cell := search.next_without_limit()) is not None:
        yield Proposal(None, search.n_surveyed, total, cell.cell[0])
        search.survey(cell)
    search.record_all(known)
    while (choice := search.choose()) is not None:
        cell, index = choice
        observation = yield Proposal(cell.cell[index], search.n_closed, total)
        assert observation is not None
        search.record(cell, index, observation)


def _samples(cells: Iterable[Candidates]) -> list[Candidates]:
    """One cell of every pipeline and batch sizes, the simplest of those that may work; by ascending limit."""
    by_size: dict[object, list[Candidates]] = {}
    for cell in cells:
        if 0.0 < cell.limit < inf:
            first = cell.cell[0]
            key = first.n_ipu, first.replicas, first.batch_size, first.mode.recompute
            by_size.setdefault(key, []).append(cell)
    samples = (min(like, key=lambda cell: (simplicity(cell.cell[0]), -cell.limit)) for like in by_size.values())
    return sorted(samples, key=lambda cell: cell.limit)


class _BranchAndBound:
    def __init__(self, space: SearchSpace, predictor: Predictor, noise: float) -> None:
        families: dict[object, int] = {}  # of cells that differ in the memory proportion alone
        cells = []
        for number, cell in enumerate(space.cells):
            family = families.setdefault(replace(cell[0], session=cell[0].session.common), len(families))
            cells.append(Candidates(cell, predictor, number, family))
        self.n_cells = len(cells)
        # Not surveyed; the largest limit is last, of equal ones that whose stages have more choices, then the first.
        first = sorted(cells, key=lambda cell: (-cell.limit, cell.cell[0].mode.recompute is not Recompute.AUTO))
        self._waiting = first[::-1]
        self._by_number = cells
        self._cells: list[Candidates] = []  # surveyed
        self._uses = simple_uses(space)
        self._refine = predictor.refine
        self._samples = _samples(cells)  # surveyed first: what works among them spares most of the others
        self._noise = noise
        self._min_gain = max(MIN_GAIN, RESOLUTION * noise)
        self._models = ErrorModels(ErrorModel(noise), ErrorModel(noise))
        self._best = 0.0
        self._best_n_devices = 0
        self._simpler_tried: set[int] = set()  # counts of devices of which a tie was proposed
        self._n_measured = 0
        self._n_without_gain = 0

    @property
    def n_surveyed(self) -> int:
        return len(self._cells)

    def next_without_limit(self) -> Candidates | None:
        """The next cell that has no limit, and so is surveyed; None when all are."""
        if self._waiting and self._waiting[-1].limit == inf:
            return self._waiting[-1]
        return None

    @property
    def n_closed(self) -> int:
        """Number of cells without a bound above the target."""
        limit = self._target / self._models.largest_ratio
        n_waiting = sum(cell.limit <= limit for cell in self._waiting)
        return n_waiting + sum(cell.closed(self._target) for cell in self._cells)

    def survey(self, cell: Candidates, floor: float = 0.0) -> None:
        """Make a few forecasts of a cell; those that certainly have no bound above `floor` need not be exact."""
        self._waiting.remove(cell)
        if cell in self._samples:
            self._samples.remove(cell)
        self._cells.append(cell)
        cell.survey(self._models, floor)

    def _survey_next(self, best: Candidate | None, floor: float) -> bool:
        """Survey a cell whose limit is above `floor`: a sample, or the one of the largest limit; False without one."""
        following: list[Candidates] = []
        if self._n_measured >= N_CALIBRATING:
            following += self._waiting[-1:]
        elif best is not None:
            following += self._samples[-1:]
        else:
            # Nothing works yet: the lowest of the samples is the likeliest to.
            following += [*self._samples[:1], *self._waiting[-1:]]
        for cell in following:
            if cell.limit * self._models.largest_ratio > floor:
                self.survey(cell, max(self._target, 0.0 if best is None else best.expected))
                return True
        return False

    def record_all(self, known: Mapping[Knobs, Observation]) -> None:
        if not known:
            return
        positions = {knobs: (cell, index) for cell in self._by_number for index, knobs in enumerate(cell.cell)}
        for knobs, observation in known.items():
            cell, index = positions[knobs]
            if cell in self._waiting:
                self.survey(cell)
            self.record(cell, index, observation)

    def record(self, cell: Candidates, index: int, observation: Observation) -> None:
        """Record one observation, and compute all bounds anew."""
        score = observation.score or 0.0
        improved = score > self._target
        self._n_measured += observation.measured
        if improved:
            self._n_without_gain = 0
        else:
            self._n_without_gain += observation.measured
        cell.record(index, observation, self._models, improved)
        if score > self._best:
            self._best = score
            self._best_n_devices = cell.cell[index].n_devices
        for other in self._cells:
            other.update(self._models)

    def choose(self) -> tuple[Candidates, int] | None:
        """The configuration to measure next; None when nothing may be better."""
        # A bound is no reason to measure: it is made tighter until it is exact or another candidate is better.
        while (candidate := self._candidate()) is not None:
            if self._refine is None or not candidate.is_bound:
                return candidate.cell, candidate.position
            candidate.cell.refine(candidate.position, self._refine)
        # Nothing works so far: the other cells are surveyed whatever their limits say, unless they rule a cell out.
        while not self._best and self._waiting and (self._waiting[-1].limit or not self._cells):
            self.survey(self._waiting[-1])
            if (candidate := self._best_candidate()) is not None:
                return candidate.cell, candidate.position
        for cell in self._cells:
            index = cell.doubtful(self._target) if self._best else cell.last_resort()
            if index is not None:
                if cell.doubt_memory(index):  # only a smaller batch was forecast: now the configuration itself is
                    return self.choose()
                return cell, index
        return self._untried_refusal()

    def _untried_refusal(self) -> tuple[Candidates, int] | None:
        """A configuration of a runtime that does not run the model: one is tried, so that the study has the reason."""
        cells = [cell for cell in self._cells if cell.is_unsupported]
        tried = {cell.cell[0].session for cell in cells if cell.is_tried}
        for cell in cells:
            if cell.cell[0].session not in tried:
                return cell, 0
        return None

    def _candidate(self) -> Candidate | None:
        """The next candidate, which may need a tighter forecast before it is measured."""
        candidate = self._best_candidate() if self._n_without_gain < PATIENCE else None
        return candidate or self._untried_use() or self._simpler_tie()

    @property
    def _target(self) -> float:
        return self._best * (1.0 + self._min_gain)

    def _best_candidate(self) -> Candidate | None:
        """The candidate of the largest expected gain, after all gaps of a higher bound than any were forecast."""
        while True:
            best = self._highest_bound()
            if self._forecast_gap(best):
                continue
            if best is None:
                return None
            if not self._forecast_neighbour(best):
                return self._smallest_of_ties(self._most_promising(best))

    def _highest_bound(self) -> Candidate | None:
        candidates = [candidate for cell in self._cells if (candidate := cell.best()) is not None]
        if not self._best:  # without a target, a bound is no reason to measure unless there is nothing else
            candidates = [candidate for candidate in candidates if not candidate.is_bound] or candidates
        largest = max((candidate.bound for candidate in candidates), default=0.0)
        if largest <= self._target:
            return None
        # Ranks take time to make, so only ties have theirs made.
        ties = [candidate for candidate in candidates if candidate.bound == largest]
        return max(ties, key=lambda candidate: candidate.rank)

    def _most_promising(self, best: Candidate) -> Candidate:
        """The candidate of the largest expected gain above the target, or `best` if nothing works or it is a bound."""
        if best.is_bound or not self._best:
            return best
        exact = []
        for cell in self._cells:
            first = cell.best()
            if first is not None and first.bound > self._target:
                for candidate in cell.open_candidates():
                    if candidate.bound > self._target and not candidate.is_bound:
                        exact.append(candidate)
        return max(exact, key=lambda candidate: (candidate.expected_gain(self._best), candidate.rank))

    def _smallest_of_ties(self, best: Candidate) -> Candidate:
        """The candidate of the smallest batch in the cell of the best whose bound is within the noise of that.

        It takes less time to measure, and of those that tie it is the answer; a larger one is measured after it only if
        its bound is above the target then.
        """
        if not self._noise:
            return best
        lowest = best.bound * (1.0 - self._noise)
        ties = []
        for candidate in best.cell.open_candidates():
            # In place of an exact forecast no bound is taken.
            if candidate.bound >= lowest and (best.is_bound or not candidate.is_bound):
                ties.append(candidate)
        return min(ties, key=lambda tie: tie.position)

    def _forecast_gap(self, best: Candidate | None) -> bool:
        """Forecast in the most promising gap whose bound is above the target and above `best`; False without one."""
        floor = max(self._target, 0.0 if best is None else best.bound * (1.0 + MIN_GAIN))
        if self._survey_next(best, floor):
            return True
        gaps = [(gap, cell) for cell in self._cells if (gap := cell.best_gap(floor)) is not None]
        if gaps:
            (_, index), cell = max(gaps, key=lambda pair: pair[0][0])
            cell.forecast(index, floor)
        return bool(gaps)

    def _forecast_neighbour(self, best: Candidate) -> bool:
        """Forecast a neighbour of `best`, or of a candidate of another cell that ties with it; False without one."""
        for cell in self._cells:
            candidate = cell.best()
            if candidate is not None and candidate.bound >= best.bound * (1.0 - TIE_SHARE):
                index = cell.curve.neighbour(candidate.position)
                if index is not None:
                    cell.forecast(index)
                    return True
        return False

    def _untried_use(self) -> Candidate | None:
        """The best candidate of a simple use of the cluster of which nothing was measured, if it may be the best.

        Measurements of pipelines say little of one session: so the estimate may err by as much as before the first of
        them. One that is no better than the best whatever it errs is not tried.
        """
        worth = self._best * exp(-SIGMA_ALL)
        for use in self._uses:
            # Cells of the use are surveyed until its best forecast above `worth` is known.
            waiting = [cell for cell in self._waiting if use.has(cell.cell[0])]
            cells = [cell for cell in self._cells if use.has(cell.cell[0])]
            while waiting and waiting[-1].limit >= max([worth, *(cell.best_forecast for cell in cells)]):
                cells.append(waiting.pop())
                self.survey(cells[-1], worth)
            if any(cell.measured_sizes for cell in cells):
                continue
            candidates = []
            for cell in cells:
                for candidate in cell.open_candidates():
                    is_no_better = candidate.is_bound and candidate.bound <= self._target
                    if candidate.forecast >= worth and not is_no_better:
                        candidates.append(candidate)
            if candidates:
                return self._smallest_of_ties(max(candidates, key=lambda candidate: candidate.forecast))
        return None

    def _simpler_tie(self) -> Candidate | None:
        """A candidate of fewer devices that is expected to tie with the best; once for every count of devices."""
        lowest = self._best * (1.0 - self._noise)
        lowest_limit = lowest / self._models.scores.elsewhere[0]
        for cell in list(self._waiting):  # `survey` removes cells from it
            if cell.limit >= lowest_limit and cell.cell[0].n_devices < self._best_n_devices:
                self.survey(cell)
        ties = []
        for cell in self._cells:
            n_devices = cell.cell[0].n_devices  # of all sizes of the cell
            if n_devices < self._best_n_devices and n_devices not in self._simpler_tried:
                ties += [candidate for candidate in cell.open_candidates() if candidate.expected >= lowest]
        simplest = min(ties, key=lambda tie: (tie.knobs.n_devices, -tie.expected), default=None)
        if simplest is not None and not simplest.is_bound:
            self._simpler_tried.add(simplest.knobs.n_devices)
        return simplest
