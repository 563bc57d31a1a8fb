"""The best of measured trials: `best_of` by one objective, `front_of` by several."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from optuna import Study

from autoauto.records.knobs.knobs import Knobs
from autoauto.records.knobs.objectives import Objectives, objective_tuple, parse_objectives
from autoauto.records.trials.trial import Counts, Trial
from autoauto.study.analysis.verification import verified_winners
from autoauto.study.objectives import scores_of

NOISE = "noise"
"""The attribute of a study that holds the noise of its last search as text; see `best_of`."""


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
