"""What a search would do if all measurements equalled the estimates: `dry_run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.knobs import Knobs, Method, Objectives, SearchSpace
from autoauto.records.trial import ExpectedCell, Outcome
from autoauto.study.methods.protocol import Observation, drive
from autoauto.study.methods.registry import method_of
from autoauto.study.objectives import scores_of, values_of


class DryRun(NamedTuple):
    """The expected course of a search.

    Attributes:
        cells: the cells with an estimate, in the order of the grid.
        n_tried: number of configurations that it would try.
        n_measured: number of those that are expected to fit their devices, and so would be measured.
        n_configurations: of the space.
    """

    cells: tuple[ExpectedCell, ...]
    n_tried: int
    n_measured: int
    n_configurations: int


def dry_run(
    space: SearchSpace,
    expect: Callable[[Knobs], Outcome],
    objectives: Objectives,
    method: Method,
    noise: float = 0.0,
    n_measurements: int = 30,
) -> DryRun:
    """Run a method against the estimate; no trial is made and nothing is compiled whole.

    The arguments are those of `method_of`.
    """
    estimates: dict[Knobs, Outcome] = {}

    def estimate(knobs: Knobs) -> Outcome:
        if knobs not in estimates:
            estimates[knobs] = expect(knobs)
        return estimates[knobs]

    tried: dict[Knobs, Outcome] = {}

    def observe(knobs: Knobs) -> Observation:
        tried[knobs] = estimate(knobs)
        return _observation(tried[knobs], objectives)

    drive(method_of(method, estimate, objectives, noise, n_measurements).start(space, {}), observe)
    cells = tuple(
        _cell([estimates[k] for k in cell if k in estimates], sum(k in tried for k in cell), objectives)
        for cell in space.cells
        if any(knobs in estimates for knobs in cell)
    )
    return DryRun(
        cells, len(tried), sum(outcome.measured is not None for outcome in tried.values()), space.n_configurations
    )


def _observation(outcome: Outcome, objectives: Objectives) -> Observation:
    score, *others = scores_of(objectives, values_of(objectives, outcome)) if outcome.fits else (None,)
    return Observation(score, outcome.measured is not None, tuple(others), outcome.violation)


def _cell(outcomes: list[Outcome], n_tries: int, objectives: Objectives) -> ExpectedCell:
    """The best by the first objective."""
    best = max(outcomes, key=lambda outcome: _observation(outcome, objectives).score or 0.0)
    return ExpectedCell(best.knobs, best.samples_per_s if best.fits else 0.0, n_tries, best.reason)
