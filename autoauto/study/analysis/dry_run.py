"""The course of a search if all measurements equalled the estimates: `dry_run`, `expected_winner`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from autoauto.evaluate.flow import Flow
from autoauto.records.interval import Interval
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objectives, objective_tuple
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import Comparison, cells_of
from autoauto.space.trial import ExpectedCell, Trial
from autoauto.study.analysis.comparisons import IS_WINNER
from autoauto.study.methods.protocol import Observation, drive, observation_of
from autoauto.study.methods.registry import MethodChoice, predictor
from autoauto.study.methods.simple_uses import simple_uses


class DryRun(NamedTuple):
    """The expected course of a search.

    Attributes:
        cells: the cells with an estimate, in the order of the grid.
        n_measured: number of those that are expected to fit their devices, and so would be measured.
    """

    cells: tuple[ExpectedCell, ...]
    n_tried: int
    n_measured: int
    n_configurations: int


def dry_run(
    space: SearchSpace,
    expect: Callable[[Knobs], Trial],
    objectives: Objectives,
    choice: MethodChoice,
    bounds: Flow | None = None,
) -> DryRun:
    """Run a method against the estimate; no trial is made and nothing is compiled whole.

    What the bounds of forecasts rule out is not forecast, as in a search.
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

    estimated = predictor(estimate, objectives)
    if bounds is not None:
        estimated = predictor(
            estimate,
            objectives,
            bounds.upper_bound,
            bounds.is_bounded_by,
            bounds.step_bounds,
            memory_never_falls=bounds.traits.memory_never_falls,
        )
    drive(choice.proposer(estimated, objectives).start(space, {}), observe)
    in_order = (estimates[knobs] for cell in space.cells for knobs in cell if knobs in estimates)
    cells = cells_of(in_order, objective_tuple(objectives)[0].score_of)
    return DryRun(
        tuple(ExpectedCell(cell, sum(trial.knobs in tried for trial in cell.trials)) for cell in cells),
        len(tried),
        sum(trial.runs for trial in tried.values()),
        space.n_configurations,
    )


def expected_winner(
    cells: Iterable[ExpectedCell], space: SearchSpace, objectives: Objectives
) -> tuple[Trial, list[Comparison]] | None:
    """The best of a dry run by the first objective, against the best of every simple use; None where nothing fits."""
    score_of = objective_tuple(objectives)[0].score_of
    fitting = [expected.cell.best for expected in cells if expected.cell.best is not None]
    if not fitting:
        return None
    winner = max(fitting, key=score_of)
    comparisons = []
    for use in simple_uses(space):
        best = max((trial for trial in fitting if use.has(trial.knobs)), key=score_of, default=None)
        if best is None:
            continue
        gain_percent, note = None, IS_WINNER
        if best is not winner:
            gain_percent, note = 100.0 * (score_of(winner) / score_of(best) - 1.0), ""
        speed = Interval(best.samples_per_s, None)
        comparisons.append(Comparison(use.name, best.knobs, speed, gain_percent, note, True, is_simple_use=True))
    return winner, comparisons
