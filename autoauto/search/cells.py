"""What the trials of a study tell of every cell of the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.trial import Cell, Knobs, SearchSpace
from autoauto.search.storage import reads
from autoauto.search.trials import finished_trials


@reads
def study_cells(study: Study) -> tuple[Cell, ...]:
    """Every cell that a study has finished trials of, in the order in which they were begun."""
    return tuple(map(cell_of, _by_cell(finished_trials(study)).values()))


def cells_of(trials: Mapping[Knobs, FrozenTrial], space: SearchSpace) -> tuple[Cell, ...]:
    """Every cell of `space` that there are `trials` of, in the order of the grid."""
    found = _by_cell(trials)
    grid = (replace(cell[0], batch_size=1) for cell in space.cells)
    return tuple(cell_of(found[cell]) for cell in grid if cell in found)


def cell_of(trials: Mapping[Knobs, FrozenTrial]) -> Cell:
    """What the finished trials of one cell, at least one, tell of it."""
    fitting = {knobs: trial for knobs, trial in trials.items() if trial.state is TrialState.COMPLETE}
    smallest = min(trials, key=lambda knobs: knobs.batch_size)
    largest = max((knobs.batch_size for knobs in fitting), default=0)
    return Cell(
        knobs=smallest,
        batch_size=largest or None,
        samples_per_s=max((trial.user_attrs["samples_per_s"] for trial in fitting.values()), default=0.0),
        reason="" if fitting else trials[smallest].user_attrs["reason"],
        too_large=min((knobs.batch_size for knobs in trials if knobs.batch_size > largest), default=None),
    )


def _by_cell(trials: Mapping[Knobs, FrozenTrial]) -> dict[Knobs, dict[Knobs, FrozenTrial]]:
    cells: dict[Knobs, dict[Knobs, FrozenTrial]] = {}
    for knobs, trial in trials.items():
        cells.setdefault(replace(knobs, batch_size=1), {})[knobs] = trial
    return cells
