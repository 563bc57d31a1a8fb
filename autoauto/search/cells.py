"""What the trials of a study tell of every cell of the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.trial import Cell, Knobs
from autoauto.search.trials import finished_trials


def study_cells(study: Study) -> tuple[Cell, ...]:
    """Every cell that a study has finished trials of, in the order in which they were begun."""
    cells: dict[Knobs, dict[Knobs, FrozenTrial]] = {}
    for knobs, trial in finished_trials(study).items():
        cells.setdefault(replace(knobs, batch_size=1), {})[knobs] = trial
    return tuple(map(cell_of, cells.values()))


def cell_of(trials: Mapping[Knobs, FrozenTrial]) -> Cell:
    """What the finished trials of one cell, at least one, tell of it."""
    fitting = {knobs: trial for knobs, trial in trials.items() if trial.state is TrialState.COMPLETE}
    smallest = min(trials, key=lambda knobs: knobs.batch_size)
    return Cell(
        knobs=smallest,
        batch_size=max((knobs.batch_size for knobs in fitting), default=None),
        samples_per_s=max((trial.user_attrs["samples_per_s"] for trial in fitting.values()), default=0.0),
        reason="" if fitting else trials[smallest].user_attrs["reason"],
    )
