"""What a search would do if all measurements equalled the estimates: `dry_run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from autoauto.records.knobs import Knobs, Method, Objectives, SearchSpace
from autoauto.records.study_summary import cells_of
from autoauto.records.trial import ExpectedCell, Trial
from autoauto.study.methods.protocol import Observation, drive, observation_of
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
    expect: Callable[[Knobs], Trial],
    objectives: Objectives,
    method: Method,
    noise: float = 0.0,
    n_measurements: int = 30,
) -> DryRun:
    """Run a method against the estimate; no trial is made and nothing is compiled whole.

    The arguments are those of `method_of`.
    """
    estimates: dict[Knobs, Trial] = {}

    def estimate(knobs: Knobs) -> Trial:
        if knobs not in estimates:
            estimates[knobs] = expect(knobs)
        return estimates[knobs]

    tried: dict[Knobs, Trial] = {}

    def observe(knobs: Knobs) -> Observation:
        tried[knobs] = estimate(knobs)
        return observation_of(tried[knobs], objectives)

    drive(method_of(method, estimate, objectives, noise, n_measurements).start(space, {}), observe)
    in_order = (estimates[knobs] for cell in space.cells for knobs in cell if knobs in estimates)
    cells = cells_of(in_order, lambda trial: scores_of(objectives, values_of(objectives, trial))[0])
    return DryRun(
        tuple(ExpectedCell(cell, sum(trial.knobs in tried for trial in cell.trials)) for cell in cells),
        len(tried),
        sum(trial.runs for trial in tried.values()),
        space.n_configurations,
    )
