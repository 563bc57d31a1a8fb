"""The best of measured trials: `best_of` by one objective, `front_of` by several.

For reports `summarise_study` reads a study, and `summarise` takes the trials of a search that has just ended. A study
that is resumed in another space holds trials outside it; the answer of its last search is the answer of all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
from optuna import Study

from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.objectives import Objectives, objective_tuple, parse_objectives
from autoauto.records.trials.study_summary import StudySummary
from autoauto.records.trials.trial import Counts, Trial
from autoauto.study.analysis.alternatives import ALTERNATIVES, stored_alternatives
from autoauto.study.analysis.verification import VERIFIED, verifications, verified_winners
from autoauto.study.objectives import scores_of
from autoauto.study.store.database import reads, shown_storage
from autoauto.study.store.study import ANSWER, STARTED, space_of
from autoauto.study.store.trials import read_trials, with_plans

NOISE = "noise"
"""The attribute of a study that holds the noise of its last search as text; see `best_of`."""
_NOT_SHOWN = (VERIFIED, ALTERNATIVES, ANSWER, STARTED)
N_FINALISTS = 10
"""Number of the best configurations whose stages are read; reading those of thousands would take long."""


def best_of_study(study: Study, trials: Mapping[Knobs, Trial]) -> Trial | None:
    """The best of `trials` of a study, after the verification of its searches.

    None when nothing fits, and for a study of several objectives, whose best trials are `front_of`.
    """
    noise = float(study.user_attrs.get(NOISE, 0.0))
    return best_of(trials, objectives_of_study(study), noise, verified_winners(study))


def objectives_of_study(study: Study) -> Objectives:
    """The objectives of a study."""
    return parse_objectives(study.user_attrs["objective"])


def counts_of(trials: Collection[Trial], n_configurations: int | None = None) -> Counts:
    """How many configurations have a finished trial, and how many of them were measured."""
    return Counts(len(trials), sum(trial.was_measured for trial in trials), n_configurations)


def best_of(
    trials: Mapping[Knobs, Trial],
    objectives: Objectives,
    noise: float = 0.0,
    winners: Mapping[Knobs, Knobs] | None = None,
) -> Trial | None:
    """The best measured one of `trials`; among those that are worse by at most the share `noise`, the simplest.

    Of equally simple ones (`Knobs.simplicity`) it is the oldest. By several objectives no trial is the best.

    Args:
        trials: finished trials, oldest first.
        objectives: of their study.
        noise: values that differ by at most this share tie.
        winners: best of a search -> the winner of its verification, where that is another one.
    """
    scores = _scores(trials, objectives)
    if not scores or len(objective_tuple(objectives)) > 1:
        return None
    lowest = max(scores.values())[0] * (1.0 - noise)
    ties = [knobs for knobs, (score,) in scores.items() if score >= lowest]
    best = min(ties, key=lambda knobs: knobs.simplicity)
    winner = (winners or {}).get(best, best)
    return trials[winner if winner in scores else best]


def front_of(trials: Mapping[Knobs, Trial], objectives: Objectives) -> tuple[Trial, ...]:
    """The Pareto front of `trials`: those that no other dominates, by descending score of the first objective.

    Of trials that are equal in all objectives it has the simplest.
    """
    scores = _scores(trials, objectives)
    ranked = sorted(scores, key=lambda knobs: ([-score for score in scores[knobs]], knobs.simplicity))
    front: list[Trial] = []
    best = np.zeros((0, len(objective_tuple(objectives))))
    for knobs in ranked:  # a configuration that dominates another is ranked before it
        if not (best >= scores[knobs]).all(axis=1).any():
            best = np.vstack((best, scores[knobs]))
            front.append(trials[knobs])
    return tuple(front)


def _scores(trials: Mapping[Knobs, Trial], objectives: Objectives) -> dict[Knobs, tuple[float, ...]]:
    """The scores of those that fit and meet the constraints."""
    return {knobs: scores_of(objectives, trial.values) for knobs, trial in trials.items() if trial.fits}


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
