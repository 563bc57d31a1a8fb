"""What a search would do if everything came out as estimated: `rehearsal_of`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.knobs import Aim, Knobs, Method, SearchSpace
from autoauto.records.trial import ExpectedCell, Outcome
from autoauto.study.methods.protocol import Tried, drive
from autoauto.study.methods.registry import method_of
from autoauto.study.objectives import scores_of, values_of


class Rehearsal(NamedTuple):
    """What a search is expected to do.

    Attributes:
        cells: those that the estimate was asked of, in the order of the grid.
        n_tried: configurations that it would try.
        n_measured: those of them that are expected to fit their devices, and so would be measured.
        n_configurations: of the space.
    """

    cells: tuple[ExpectedCell, ...]
    n_tried: int
    n_measured: int
    n_configurations: int


def rehearsal_of(
    space: SearchSpace,
    expect: Callable[[Knobs], Outcome],
    aim: Aim,
    method: Method,
    noise: float = 0.0,
    n_measurements: int = 30,
) -> Rehearsal:
    """Run a method against the estimate itself; no trial is made and nothing compiled whole.

    The arguments are those of `method_of`.
    """
    asked: dict[Knobs, Outcome] = {}

    def remember(knobs: Knobs) -> Outcome:
        if knobs not in asked:
            asked[knobs] = expect(knobs)
        return asked[knobs]

    tried: dict[Knobs, Outcome] = {}

    def answer(knobs: Knobs) -> Tried:
        tried[knobs] = remember(knobs)
        return _as_tried(tried[knobs], aim)

    drive(method_of(method, remember, aim, noise, n_measurements).begin(space, {}), answer)
    cells = tuple(
        _cell([asked[knobs] for knobs in cell if knobs in asked], sum(knobs in tried for knobs in cell), aim)
        for cell in space.cells
        if any(knobs in asked for knobs in cell)
    )
    return Rehearsal(
        cells, len(tried), sum(outcome.measured is not None for outcome in tried.values()), space.n_configurations
    )


def _as_tried(outcome: Outcome, aim: Aim) -> Tried:
    score, *others = scores_of(aim, values_of(aim, outcome)) if outcome.fits else (None,)
    return Tried(score, outcome.measured is not None, tuple(others), outcome.miss)


def _cell(outcomes: list[Outcome], n_tries: int, aim: Aim) -> ExpectedCell:
    """The best by the first objective."""
    best = max(outcomes, key=lambda outcome: _as_tried(outcome, aim).score or 0.0)
    return ExpectedCell(best.knobs, best.samples_per_s if best.fits else 0.0, n_tries, best.reason)
