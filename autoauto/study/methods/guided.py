"""Best first by the estimate, as long as anything could still be better: `guided`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.study.methods.candidates import Candidate, Candidates
from autoauto.study.methods.error_model import Errors, Trust
from autoauto.study.methods.protocol import Predict, Step, Steps, Tried

WORTH = 0.003
"""What cannot be better than the best by more than this share is not worth a measurement."""
CLOSE = 0.004
"""Cells whose best forecast is within this share of the best have all its neighbours forecast before any is tried."""

PATIENCE = 8
"""Measurements in a row without any good after which the best is taken for the best."""


def guided(space: SearchSpace, known: Mapping[Knobs, Tried], predict: Predict, noise: float) -> Steps:
    """Try what the estimate finds best, learn how far it errs, and stop when nothing could be better: branch and bound.

    A cell is closed when the most that any configuration of it can score is no better than the best that was tried.
    That most is the forecast times what measured / estimated may be at most (`Trust`); configurations are forecast
    where their neighbours leave room for a better one (`Prospect`). Where the estimate rules out what would be better,
    the smallest such batch is tried after all, and a bisection takes over once it fits. What constraints compare errs
    as scores do, and how far is learned in the same way: what is expected to break one is tried only when it would be
    better and that it holds lies within the error.

    Two rules bound what a poor estimate costs: a cell is left after `candidates.PATIENCE` measurements in a row that
    found nothing better, and all that is hopeful after `PATIENCE`. So the best is not proven, but what is lost is
    small: by `studies/search_efficiency.py` at most 0.5 %.

    Args:
        space: what is searched.
        known: what was tried before, oldest first.
        predict: the estimate.
        noise: scores within this share of each other are ties; what is simpler than the best and expected to tie with
            it is tried too.
    """
    cells = _cells(space, predict)
    for done, cell in enumerate(cells):
        yield Step(None, done, len(cells))
        cell.prospect.survey()
    guide = _Guide(cells, noise)
    guide.recall(known)
    while (choice := guide.choose()) is not None:
        cell, index = choice
        tried = yield Step(cell.cell[index], guide.n_closed, len(cells))
        assert tried is not None
        guide.learn(cell, index, tried)


def _cells(space: SearchSpace, predict: Predict) -> list[Candidates]:
    """All cells; those that differ in the memory proportion alone are a family."""
    families: dict[object, int] = {}
    cells = []
    for number, cell in enumerate(space.cells):
        family = families.setdefault(replace(cell[0], memory_proportion=1.0), len(families))
        cells.append(Candidates(cell, predict, number, family))
    return cells


class _Guide:
    def __init__(self, cells: list[Candidates], noise: float) -> None:
        self._cells = cells
        self._noise, self._worth = noise, max(WORTH, noise)
        self._errors = Errors(Trust(noise), Trust(noise))
        self._best, self._best_devices = 0.0, 0
        self._asked_devices: set[int] = set()
        self._n_vain = 0

    @property
    def n_closed(self) -> int:
        """Cells that nothing more is expected of."""
        return sum(cell.closed(self._target) for cell in self._cells)

    def recall(self, known: Mapping[Knobs, Tried]) -> None:
        """Take over what came of earlier tries."""
        places = {knobs: (cell, index) for cell in self._cells for index, knobs in enumerate(cell.cell)}
        for knobs, tried in known.items():
            self.learn(*places[knobs], tried)

    def learn(self, cell: Candidates, index: int, tried: Tried) -> None:
        """Take over what came of a configuration."""
        score = tried.score or 0.0
        good = score > self._target
        self._n_vain = 0 if good else self._n_vain + tried.measured
        cell.learn(index, tried, self._errors, good)
        if score > self._best:
            self._best, self._best_devices = score, cell.cell[index].n_devices
        for other in self._cells:
            other.trust(self._errors)

    def choose(self) -> tuple[Candidates, int] | None:
        """What to try next; None when nothing could be better."""
        candidate = (self._hopeful() if self._n_vain < PATIENCE else None) or self._simpler()
        if candidate is not None:
            return candidate.cell, candidate.place
        for cell in self._cells:
            index = cell.doubtful(self._target) if self._best else cell.smallest()
            if index is not None:
                return cell, index
        return None

    @property
    def _target(self) -> float:
        return self._best * (1.0 + self._worth)

    def _hopeful(self) -> Candidate | None:
        """The configuration that could be best, once all are forecast that could be better still."""
        while True:
            tops = (top for cell in self._cells if (top := cell.best()) is not None)
            first = max(tops, key=lambda top: top.rank, default=None)
            if first is not None and first.bound <= self._target:
                first = None
            if not (self._ask_gaps(first) or (first is not None and self._ask_around(first))):
                return first

    def _ask_gaps(self, first: Candidate | None) -> bool:
        """Forecast a configuration that could be better than `first` and the best; False when there is none."""
        floor = max(self._target, 0.0 if first is None else first.bound * (1.0 + WORTH))
        gaps = [(gap, cell) for cell in self._cells if (gap := cell.gap(floor)) is not None]
        if gaps:
            (_, index), cell = max(gaps, key=lambda pair: pair[0][0])
            cell.ask(index)
        return bool(gaps)

    def _ask_around(self, first: Candidate) -> bool:
        """Forecast a neighbour of `first` or of an equal in another cell; False when there is none."""
        for cell in self._cells:
            top = cell.best()
            if top is not None and top.bound >= first.bound * (1.0 - CLOSE):
                index = cell.prospect.around(top.place)
                if index is not None:
                    cell.ask(index)
                    return True
        return False

    def _simpler(self) -> Candidate | None:
        """A configuration of fewer devices that is expected to tie with the best; one for every count of devices."""
        ties = [
            candidate
            for cell in self._cells
            for candidate in cell.open()
            if candidate.knobs.n_devices < self._best_devices
            and candidate.knobs.n_devices not in self._asked_devices
            and candidate.expected >= self._best * (1.0 - self._noise)
        ]
        simplest = min(ties, key=lambda tie: (tie.knobs.n_devices, -tie.expected), default=None)
        if simplest is not None:
            self._asked_devices.add(simplest.knobs.n_devices)
        return simplest
