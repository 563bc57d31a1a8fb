"""The best measured trials of a study: `best_trial` by one objective, `pareto_front` by several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Knobs, Objectives, SearchSpace, objective_tuple, parse_objectives
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import Counts
from autoauto.study.analysis.tie_break import simplicity
from autoauto.study.analysis.verification import verified_winners
from autoauto.study.objectives import scores_of
from autoauto.study.store.database import reads
from autoauto.study.store.trials import finished_trials, plan_of, was_measured

NOISE = "noise"
"""The attribute of a study that holds the noise of its last search as text; see `best_of`."""


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A measured trial, read back from the database.

    Attributes:
        number: its number in the study.
        knobs: the configuration.
        value: of the study's first objective.
        samples_per_s: measured throughput.
        estimated_samples_per_s: estimated throughput; 0 without an estimate.
        makespan_cycles: of a step of training; None for inference.
        measured: the plan with the costs of its stages, or phases, compiled whole.
        estimate: the same plan with estimated costs; None without an estimate.
        latency_s: measured from a micro-batch's entry to its result; in training of a step, with phases of all phases.
        others: the values of further objectives.
    """

    number: int
    knobs: Knobs
    value: float
    samples_per_s: float
    estimated_samples_per_s: float
    makespan_cycles: float | None
    measured: Plan | PhasedPlan
    estimate: Plan | PhasedPlan | None
    latency_s: float = 0.0
    others: tuple[float, ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        """Of all objectives."""
        return (self.value, *self.others)


def best_trial(study: Study, space: SearchSpace | None = None) -> BestTrial | None:
    """The best measured trial of a study, or of a space in it, after the verification of its searches.

    None when nothing fits, and for a study of several objectives, whose best trials are `pareto_front`.
    """
    noise = float(study.user_attrs.get(NOISE, 0.0))
    return best_of(finished_trials(study, space), objectives_of_study(study), noise, verified_winners(study))


def pareto_front(study: Study) -> tuple[BestTrial, ...]:
    """The measured trials of a study that no other dominates."""
    return front_of(finished_trials(study), objectives_of_study(study))


def objectives_of_study(study: Study) -> Objectives:
    """The objectives of a study."""
    return parse_objectives(study.user_attrs["objective"])


def count_trials(study: Study) -> Counts:
    """How many configurations of a study have a finished trial, and how many of them were measured."""
    trials = finished_trials(study).values()
    return Counts(len(trials), sum(map(was_measured, trials)))


@reads
def best_of(
    trials: Mapping[Knobs, FrozenTrial],
    objectives: Objectives,
    noise: float = 0.0,
    winners: Mapping[Knobs, Knobs] | None = None,
) -> BestTrial | None:
    """The best measured one of `trials`; among those that are worse by at most the share `noise`, the simplest.

    Of equally simple ones (`simplicity`) it is the oldest. By several objectives no trial is the best.

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
    best = min(ties, key=simplicity)
    winner = (winners or {}).get(best, best)
    return _best_trial(winner if winner in scores else best, trials)


@reads
def front_of(trials: Mapping[Knobs, FrozenTrial], objectives: Objectives) -> tuple[BestTrial, ...]:
    """The Pareto front of `trials`: those that no other dominates, by descending score of the first objective.

    Of trials that are equal in all objectives it has the simplest.
    """
    scores = _scores(trials, objectives)
    if not scores:
        return ()
    ranked = sorted(scores, key=lambda knobs: ([-score for score in scores[knobs]], simplicity(knobs)))
    front: list[Knobs] = []
    best = np.zeros((0, len(objective_tuple(objectives))))
    for knobs in ranked:  # a configuration that dominates another is ranked before it
        if not (best >= scores[knobs]).all(axis=1).any():
            best = np.vstack((best, scores[knobs]))
            front.append(knobs)
    return tuple(_best_trial(knobs, trials) for knobs in front)


def _scores(trials: Mapping[Knobs, FrozenTrial], objectives: Objectives) -> dict[Knobs, tuple[float, ...]]:
    """The scores of those that fit and meet the constraints."""
    complete = {knobs: trial for knobs, trial in trials.items() if trial.state is TrialState.COMPLETE}
    return {knobs: scores_of(objectives, trial.values) for knobs, trial in complete.items()}


def _best_trial(knobs: Knobs, trials: Mapping[Knobs, FrozenTrial]) -> BestTrial:
    trial = trials[knobs]
    attributes = trial.user_attrs
    estimated = attributes.get("estimated_stages")
    return BestTrial(
        number=trial.number,
        knobs=knobs,
        value=trial.values[0],
        samples_per_s=attributes["samples_per_s"],
        estimated_samples_per_s=attributes.get("estimated_samples_per_s", 0.0),
        makespan_cycles=attributes.get("makespan_cycles"),
        measured=plan_of(attributes, attributes["stages"]),
        estimate=None if estimated is None else plan_of(attributes, estimated),
        latency_s=attributes["latency_s"],
        others=tuple(trial.values[1:]),
    )
