"""A study for its reports: `summarise_study`, and what came of every cell of the grid: `study_cells`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Knobs, SearchSpace, objective_tuple
from autoauto.records.study_summary import Failure, Finalist, StudySummary, TrialSummary
from autoauto.records.trial import Cell
from autoauto.study.analysis.best import best_trial, objectives_of_study, pareto_front
from autoauto.study.analysis.verification import VERIFIED, verifications
from autoauto.study.store.database import reads, shown_storage, storage_errors
from autoauto.study.store.trials import finished_trials, plan_of, was_measured

N_FINALISTS = 10
"""Number of the best configurations whose stages are read; reading those of thousands would take long."""


@reads
def study_cells(study: Study) -> tuple[Cell, ...]:
    """Every cell with finished trials, in the order of their oldest trials."""
    return tuple(map(cell_of, _by_cell(finished_trials(study)).values()))


def cells_of(trials: Mapping[Knobs, FrozenTrial], space: SearchSpace) -> tuple[Cell, ...]:
    """Every cell of `space` with trials, in the order of the grid."""
    by_cell = _by_cell(trials)
    grid = (replace(cell[0], batch_size=1) for cell in space.cells)
    return tuple(cell_of(by_cell[cell]) for cell in grid if cell in by_cell)


def cell_of(trials: Mapping[Knobs, FrozenTrial]) -> Cell:
    """One cell by its finished trials, of which there is at least one."""
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


@reads
@storage_errors()
def summarise_study(study: Study, storage: str, n_finalists: int = N_FINALISTS) -> StudySummary:
    """All trials of a study, the best with their stages, and the verification of the best.

    Args:
        study: from `load_study`.
        storage: the URL that it was loaded from.
        n_finalists: number of the best configurations whose stages are read.
    """
    trials = finished_trials(study)
    rows = {trial.number: _trial_summary(knobs, trial) for knobs, trial in trials.items()}
    summary = StudySummary(
        study_name=study.study_name,
        storage=shown_storage(storage),
        objective=objective_tuple(objectives_of_study(study))[0],
        attributes={name: str(value) for name, value in study.user_attrs.items() if name != VERIFIED},
        trials=tuple(rows[number] for number in sorted(rows)),
        failures=tuple(map(_failure, study.get_trials(deepcopy=False, states=(TrialState.FAIL,)))),
    )
    best = best_trial(study) or next(iter(pareto_front(study)), None)  # of several objectives the first decides
    if best is None:
        return summary
    verification = next((entry for entry in verifications(study) if entry.winner.knobs == best.knobs), None)
    best_first = sorted(summary.ranked, key=lambda row: row.number != best.number)[:n_finalists]
    finalists = tuple(_finalist(row, trials[row.knobs]) for row in best_first)
    return replace(summary, finalists=finalists, verification=verification)


def _trial_summary(knobs: Knobs, trial: FrozenTrial) -> TrialSummary:
    attributes = trial.user_attrs
    numbers = {name: attributes[name] for name in TrialSummary._fields if name in attributes}
    return TrialSummary(trial.number, knobs, compiled=was_measured(trial), **numbers)


def _finalist(row: TrialSummary, trial: FrozenTrial) -> Finalist:
    attributes = trial.user_attrs
    estimated = attributes.get("estimated_stages")
    estimate = None if estimated is None else plan_of(attributes, estimated)
    return Finalist(row, plan_of(attributes, attributes["stages"]), estimate)


def _failure(trial: FrozenTrial) -> Failure:
    return Failure(trial.number, trial.params, str(trial.user_attrs.get("reason", "")))
