"""The best measured trials of a study, by one objective or by several: `BestTrial`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.knobs import Aim, Knobs, SearchSpace, aim_of, objectives_of
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import Counts
from autoauto.study.analysis.tie_break import simplicity
from autoauto.study.analysis.verification import settled_knobs
from autoauto.study.objectives import scores_of
from autoauto.study.store.database import reads
from autoauto.study.store.trials import finished_trials, plan_of, was_measured

NOISE = "noise"
"""The attribute of a study that holds which share of a value is noise, as text; see `best_of`."""


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A measured trial, read back from the database.

    Attributes:
        number: its number in the study.
        knobs: the configuration.
        value: of the study's objective, or its first.
        samples_per_s: measured throughput.
        estimated_samples_per_s: throughput by the estimate; 0 when there was none.
        makespan_cycles: of a step of training; None for inference.
        measured: the stages, or phases, compiled whole.
        estimate: the same stages as estimated; None when there was no estimate.
        latency_s: measured, from a micro-batch's entry to its result; of training a step, of phases all of them.
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
    """The best measured trial of a study, or of a space in it, as its last search settled it.

    None when nothing fits, and for a study of several objectives, whose best trials are `pareto_front`.
    """
    noise = float(study.user_attrs.get(NOISE, 0.0))
    return best_of(finished_trials(study, space), aim_of_study(study), noise, settled_knobs(study))


def pareto_front(study: Study) -> tuple[BestTrial, ...]:
    """The measured trials of a study that no other beats in one objective without losing in another."""
    return front_of(finished_trials(study), aim_of_study(study))


def aim_of_study(study: Study) -> Aim:
    """What a study is for."""
    return aim_of(study.user_attrs["objective"])


def count_trials(study: Study) -> Counts:
    """How many configurations of a study have a finished trial, and how many of them were measured."""
    trials = finished_trials(study).values()
    return Counts(len(trials), sum(map(was_measured, trials)))


@reads
def best_of(
    trials: Mapping[Knobs, FrozenTrial],
    aim: Aim,
    noise: float = 0.0,
    settled: Mapping[Knobs, Knobs] | None = None,
) -> BestTrial | None:
    """The best measured one of `trials`; of those that are worse by at most the share `noise`, the simplest.

    Simpler are fewer devices, then fewer replicas, then a smaller batch, and then the older trial. When measuring again
    has `settled` that another one is better than the best, that one is. By several objectives no trial is the best.
    """
    scores = _scores(trials, aim)
    if not scores or len(objectives_of(aim)) > 1:
        return None
    least = max(scores.values())[0] * (1.0 - noise)
    ties = [knobs for knobs, (score,) in scores.items() if score >= least]
    knobs = min(ties, key=simplicity)
    instead = (settled or {}).get(knobs, knobs)
    return _best_trial(instead if instead in scores else knobs, trials)


@reads
def front_of(trials: Mapping[Knobs, FrozenTrial], aim: Aim) -> tuple[BestTrial, ...]:
    """Those of `trials` that no other beats in one objective without losing in another, best by the first on top.

    Of equals in all objectives the simplest stands for all.
    """
    scores = _scores(trials, aim)
    if not scores:
        return ()
    ranked = sorted(scores, key=lambda knobs: ([-score for score in scores[knobs]], simplicity(knobs)))
    front: list[Knobs] = []
    best = np.zeros((0, len(objectives_of(aim))))
    for knobs in ranked:  # what beats a configuration stands before it
        if not (best >= scores[knobs]).all(axis=1).any():
            best = np.vstack((best, scores[knobs]))
            front.append(knobs)
    return tuple(_best_trial(knobs, trials) for knobs in front)


def _scores(trials: Mapping[Knobs, FrozenTrial], aim: Aim) -> dict[Knobs, tuple[float, ...]]:
    """Of those that were measured and fit."""
    complete = {knobs: trial for knobs, trial in trials.items() if trial.state is TrialState.COMPLETE}
    return {knobs: scores_of(aim, trial.values) for knobs, trial in complete.items()}


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
