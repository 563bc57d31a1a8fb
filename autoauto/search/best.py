"""The best measured trial of a study: `BestTrial`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optuna import Study
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.trial import Counts, Knobs
from autoauto.search.plans import plan_of
from autoauto.search.trials import finished_trials, was_measured


@dataclass(frozen=True, slots=True)
class BestTrial:
    """A measured trial, read back from the database.

    Attributes:
        number: its number in the study.
        knobs: the configuration.
        value: of the study's objective.
        samples_per_s: measured throughput.
        estimated_samples_per_s: throughput by the estimate; 0 when there was none.
        makespan_cycles: of a step of training; None for inference.
        measured: the stages, or phases, compiled whole.
        estimate: the same stages as estimated; None when there was no estimate.
    """

    number: int
    knobs: Knobs
    value: float
    samples_per_s: float
    estimated_samples_per_s: float
    makespan_cycles: float | None
    measured: Plan | PhasedPlan
    estimate: Plan | PhasedPlan | None


def best_trial(study: Study) -> BestTrial | None:
    """The best measured trial of a study, the oldest of equals; None when nothing fitted or nothing was measured."""
    return best_of(finished_trials(study), study.direction)


def count_trials(study: Study) -> Counts:
    """How many configurations of a study have a finished trial, and how many of them were measured."""
    trials = finished_trials(study).values()
    return Counts(len(trials), sum(map(was_measured, trials)))


def best_of(trials: Mapping[Knobs, FrozenTrial], direction: StudyDirection) -> BestTrial | None:
    """The best measured one of `trials`, the first of equals."""
    complete = [(knobs, trial) for knobs, trial in trials.items() if trial.state is TrialState.COMPLETE]
    sign = -1.0 if direction is StudyDirection.MAXIMIZE else 1.0
    knobs, trial = min(complete, key=lambda pair: sign * _value(pair[1]), default=(None, None))
    if knobs is None or trial is None:
        return None
    attributes = trial.user_attrs
    estimated = attributes.get("estimated_stages")
    return BestTrial(
        number=trial.number,
        knobs=knobs,
        value=_value(trial),
        samples_per_s=attributes["samples_per_s"],
        estimated_samples_per_s=attributes.get("estimated_samples_per_s", 0.0),
        makespan_cycles=attributes.get("makespan_cycles"),
        measured=plan_of(attributes, attributes["stages"]),
        estimate=None if estimated is None else plan_of(attributes, estimated),
    )


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None  # COMPLETE
    return trial.value
