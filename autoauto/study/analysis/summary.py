"""What the trials of a study tell of every cell of the grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Knobs, SearchSpace, objectives_of
from autoauto.records.study_summary import Contender, Failure, Findings, Tried
from autoauto.records.trial import Cell
from autoauto.study.analysis.best import aim_of_study, best_trial, pareto_front
from autoauto.study.analysis.verification import VERIFIED, verifications
from autoauto.study.store.database import reads, shown_storage, storage_errors
from autoauto.study.store.trials import finished_trials, plan_of, was_measured


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


N_CONTENDERS = 10
"""So many of the best configurations have their stages read; of thousands that would take long."""


@reads
@storage_errors()
def study_findings(study: Study, storage: str, n_contenders: int = N_CONTENDERS) -> Findings:
    """All that the trials of a study tell.

    Args:
        study: from `load_study`.
        storage: the URL that it was loaded from.
        n_contenders: of how many of the best configurations to read the stages.
    """
    trials = finished_trials(study)
    tried = {trial.number: _tried(knobs, trial) for knobs, trial in trials.items()}
    found = Findings(
        study_name=study.study_name,
        storage=shown_storage(storage),
        objective=objectives_of(aim_of_study(study))[0],
        attributes={name: str(value) for name, value in study.user_attrs.items() if name != VERIFIED},
        tried=tuple(tried[number] for number in sorted(tried)),
        failures=tuple(map(_failure, study.get_trials(deepcopy=False, states=(TrialState.FAIL,)))),
    )
    best = best_trial(study) or next(iter(pareto_front(study)), None)  # of several objectives the first decides
    if best is None:
        return found
    verification = next((told for told in verifications(study) if told.winner.knobs == best.knobs), None)
    first = sorted(found.ranked, key=lambda one: one.number != best.number)[:n_contenders]
    contenders = tuple(_contender(one, trials[one.knobs]) for one in first)
    return replace(found, contenders=contenders, verification=verification)


def _tried(knobs: Knobs, trial: FrozenTrial) -> Tried:
    told = trial.user_attrs
    names = [name for name in Tried._fields if name in told]
    return Tried(trial.number, knobs, compiled=was_measured(trial), **{name: told[name] for name in names})


def _contender(tried: Tried, trial: FrozenTrial) -> Contender:
    told = trial.user_attrs
    estimated = told.get("estimated_stages")
    estimate = None if estimated is None else plan_of(told, estimated)
    return Contender(tried, plan_of(told, told["stages"]), estimate)


def _failure(trial: FrozenTrial) -> Failure:
    return Failure(trial.number, trial.params, str(trial.user_attrs.get("reason", "")))
