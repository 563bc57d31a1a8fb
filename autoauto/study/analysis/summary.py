"""A study for its reports: `summarise_study` reads it, `summarise` takes the trials of a search that has just ended.

A study that is resumed in another space holds trials outside it; the answer of its last search is the answer of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from optuna import Study

from autoauto.records.knobs.objectives import objective_tuple
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Trial
from autoauto.study.analysis.alternatives import ALTERNATIVES, stored_alternatives
from autoauto.study.analysis.best import best_of_study, front_of, objectives_of_study
from autoauto.study.analysis.verification import VERIFIED, verifications
from autoauto.study.store.database import reads, shown_storage
from autoauto.study.store.study import ANSWER, STARTED, space_of
from autoauto.study.store.trials import read_trials, with_plans

_NOT_SHOWN = (VERIFIED, ALTERNATIVES, ANSWER, STARTED)
N_FINALISTS = 10
"""Number of the best configurations whose stages are read; reading those of thousands would take long."""


def summarise_study(study: Study, storage: str, n_finalists: int = N_FINALISTS) -> StudySummary:
    """The trials of a study in the space of its last search, the best with their stages, and their verification.

    Args:
        study: from `load_study`.
        storage: the URL that it was loaded from.
        n_finalists: number of the best configurations whose stages are read.
    """
    return summarise(study, storage, read_trials(study), n_finalists)


@reads
def summarise(study: Study, storage: str, trials: Iterable[Trial], n_finalists: int) -> StudySummary:
    """The same with `trials` that are known already; of a configuration with several trials the last counts."""
    ended = sorted(trials, key=lambda trial: trial.number)
    objectives, attributes = objectives_of_study(study), study.user_attrs
    space = space_of(study)
    inside = [trial for trial in ended if space is None or trial.knobs in space]
    finished = {trial.knobs: trial for trial in inside if not trial.failed}
    front = front_of(finished, objectives) if len(objective_tuple(objectives)) > 1 else ()
    best = best_of_study(study, finished) or next(iter(front), None)
    summary = StudySummary(
        study_name=study.study_name,
        storage=shown_storage(storage),
        objective=objective_tuple(objectives)[0],
        attributes={name: str(value) for name, value in attributes.items() if name not in _NOT_SHOWN},
        trials=tuple(sorted(finished.values(), key=lambda trial: trial.number)),
        failures=tuple(trial for trial in inside if trial.failed),
        finalists=() if best is None else (best,),  # of several objectives the first decides
        verification=next((entry for entry in verifications(study) if best and entry.winner.knobs == best.knobs), None),
        space=space,
        alternatives=stored_alternatives(study),
        front=front,
        n_outside=len(ended) - len(inside),
    )
    return replace(summary, finalists=tuple(with_plans(study, trial) for trial in summary.ranked[:n_finalists]))
