"""One configuration as one Optuna trial: asked, told, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, Trial, TrialState

from autoauto.records.schedule import Order
from autoauto.records.trial import TRAINING_ORDERS, Knobs, Objective, Outcome, SearchSpace, Strategy
from autoauto.search.objective import objective_value
from autoauto.search.plans import describe_plan, describe_stages
from autoauto.search.storage import storage_errors

INTERRUPTED = "interrupted"
"""The `reason` of a trial that was running when its search was stopped or killed."""


class _Given(BaseSampler):
    """Samples the configuration that the search chose."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> float | str:
        value: float | str = getattr(self._knobs, param_name)
        return str(value) if isinstance(value, str) else value


@storage_errors()
def ask(study: Study, space: SearchSpace, knobs: Knobs) -> Trial:
    """Begin a trial of `knobs`: it is RUNNING from now on."""
    study.sampler = _Given(knobs)
    # Ranges, not categories: Optuna refuses a study whose categories change, and a search may go on in a wider space.
    ranges: dict[str, BaseDistribution] = {
        "n_ipu": IntDistribution(min(space.n_ipu), max(space.n_ipu)),
        "memory_proportion": FloatDistribution(min(space.memory_proportion), max(space.memory_proportion)),
        "batch_size": IntDistribution(min(space.batch_size), max(space.batch_size)),
    }
    if knobs.training:
        ranges |= {
            "schedule": CategoricalDistribution([str(order) for order in (*TRAINING_ORDERS, Order.SEQUENTIAL)]),
            "recompute": CategoricalDistribution([False, True]),
        }
    if knobs.strategy is Strategy.PHASED:
        ranges["strategy"] = CategoricalDistribution([str(strategy) for strategy in Strategy])
    if knobs.n_micro_batches > 1 or knobs.training:
        values = (*space.n_micro_batches, *space.steps)
        ranges["n_micro_batches"] = IntDistribution(min(values), max(values))
    return study.ask(ranges)


@storage_errors()
def tell_outcome(study: Study, trial: Trial, outcome: Outcome, objective: Objective) -> FrozenTrial:
    """End a trial: COMPLETE with its value when the configuration fits, PRUNED with a reason when it does not."""
    for name, value in _attributes(outcome).items():
        trial.set_user_attr(name, value)
    _set_constraint(trial, outcome)
    if outcome.measured is None:
        return study.tell(trial, state=TrialState.PRUNED)
    return study.tell(trial, objective_value(objective, outcome))


@storage_errors()
def tell_failure(study: Study, trial: Trial, error: BaseException) -> FrozenTrial:
    """End a trial as FAIL: the user interrupted it, or its evaluation crashed."""
    if isinstance(error, KeyboardInterrupt):
        trial.set_user_attr("reason", INTERRUPTED)
    else:
        trial.set_user_attr("exc_type", type(error).__name__)
        trial.set_user_attr("reason", f"{type(error).__name__}: {error}")
    return study.tell(trial, state=TrialState.FAIL)


@storage_errors()
def finished_trials(study: Study, space: SearchSpace | None = None) -> dict[Knobs, FrozenTrial]:
    """The COMPLETE and PRUNED trials by configuration, oldest first; only those in `space` when it is given."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    found = {_knobs(trial.params): trial for trial in trials}
    return {knobs: trial for knobs, trial in found.items() if space is None or knobs in space}


def was_measured(trial: FrozenTrial) -> bool:
    """Whether there was a plan to measure; where the estimate rules all plans out, nothing is compiled whole."""
    return "partition" in trial.user_attrs


def _knobs(params: Mapping[str, Any]) -> Knobs:
    named = {
        "schedule": Order(params.get("schedule", Order.INFERENCE)),
        "strategy": Strategy(params.get("strategy", Strategy.PIPELINE)),
    }
    return Knobs(**{**params, **named})


def _attributes(outcome: Outcome) -> dict[str, Any]:
    """What the trial shows besides its parameters and value. Few, since each is a commit of its own; never None."""
    measured, estimate = outcome.measured, outcome.estimate
    attributes: dict[str, Any] = {}
    if measured is None:
        attributes |= {"reason": outcome.reason, "excess_bytes": outcome.excess_bytes}
    else:
        attributes |= {
            "samples_per_s": outcome.samples_per_s,
            "compute_cycles": measured.compute_cycles,
            "transfer_cycles": measured.transfer_cycles,
            "stages": describe_stages(measured),
        }
    if outcome.timeline is not None and outcome.knobs.training:
        attributes["bubble_fraction"] = outcome.timeline.bubble_fraction
        attributes["makespan_cycles"] = outcome.timeline.makespan_cycles
    if outcome.estimated_samples_per_s:
        attributes["estimated_samples_per_s"] = outcome.estimated_samples_per_s
    if estimate is not None:
        attributes["estimated_stages"] = describe_stages(estimate)
    plan = measured or estimate
    return attributes if plan is None else attributes | describe_plan(plan)


def _set_constraint(trial: Trial, outcome: Outcome) -> None:
    """Write `excess_bytes / memory_bytes`: above 0 is infeasible; 1.0 when something else than memory is the reason.

    The dashboard (0.21) reads a list under the system attribute "constraints", as samplers with a `constraints_func`
    write it, and ignores what `trial.set_constraint` of Optuna 5 writes; Optuna reads both. The public way to that
    list is the storage's own setter, which asks for the trial's id.
    """
    value = outcome.excess_bytes / outcome.memory_bytes if outcome.fits or outcome.excess_bytes else 1.0
    storage = trial.storage
    study_id = storage.get_study_id_from_name(trial.study.study_name)
    trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
    storage.set_trial_system_attr(trial_id, "constraints", [value])
