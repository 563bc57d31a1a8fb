"""Attempts as trials of Optuna, and trials as configurations and plans: `trial_of`, `finished_trials`, `plan_of`.

Where its trial stores an attempt:

    parameters          the knobs, with the ranges of the space
    state, values       COMPLETE with the objectives, PRUNED when it does not fit or violates a constraint, FAIL
    user attributes     status, reason, throughput, stages as measured and as estimated (`describe_stages`), ...
    system attributes   "constraints": how far the constraints are from holding
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from math import inf
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoauto.records.knobs import TRAINING_ORDERS, Knobs, Objectives, SearchSpace, Strategy
from autoauto.records.layers import LayerRange
from autoauto.records.phased import BufferLayout, BufferRow, IoMode, Phase, PhasedPlan, PhaseKind
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.trial import Attempt, FinishedTrial, Outcome
from autoauto.study.objectives import values_of
from autoauto.study.store.database import database_of, reads, storage_errors, through_restarts

Ranges = dict[str, BaseDistribution]
"""Parameters of a trial and the values that they may take."""
MAX_VIOLATION = 1e6
"""The stored violation of a configuration that violates a constraint by more; JSON has no infinity."""


def ranges_of(space: SearchSpace, knobs: Knobs) -> Ranges:
    """The parameters of a trial of `knobs`, and the values that they may take in `space`.

    Numbers have ranges, not categories: Optuna refuses a study whose categories change, but a search may be resumed in
    a wider space.
    """
    ranges: Ranges = {
        "n_ipu": IntDistribution(min(space.n_ipu), max(space.n_ipu)),
        "memory_proportion": FloatDistribution(min(space.memory_proportion), max(space.memory_proportion)),
        "batch_size": IntDistribution(min(space.batch_size), max(space.batch_size)),
    }
    if space.replicas != (1,):
        ranges["replicas"] = IntDistribution(min(space.replicas), max(space.replicas))
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
    return ranges


def trial_of(attempt: Attempt, ranges: Ranges, objectives: Objectives) -> FrozenTrial:
    """The finished trial of an attempt, to be added to a study in one write.

    It is COMPLETE with its values when the configuration fits and all constraints hold, PRUNED with a reason when not,
    FAIL when the attempt itself failed. So no trial stays RUNNING when a process dies. Its times are those of the
    attempt.
    """
    outcome = attempt.outcome
    if outcome is None:
        state, values = TrialState.FAIL, None
    elif outcome.fits:
        state, values = TrialState.COMPLETE, values_of(objectives, outcome)
    else:
        state, values = TrialState.PRUNED, None
    params = {name: getattr(attempt.knobs, name) for name in ranges}
    trial = create_trial(
        state=state,
        values=values,
        params={name: str(value) if isinstance(value, str) else value for name, value in params.items()},
        distributions=ranges,
        user_attrs={"status": str(attempt.status), **_attributes(attempt)},
        system_attrs={} if outcome is None else {"constraints": [_constraint(outcome)]},
    )
    trial.datetime_start, trial.datetime_complete = attempt.started, attempt.ended
    return trial


@storage_errors()
def add_trial(study: Study, trial: FrozenTrial) -> FrozenTrial:
    """Write a finished trial in one transaction; returns it with its number."""
    storage, study_id = database_of(study)
    return storage.get_trial(storage.create_new_trial(study_id, trial))


@reads
@through_restarts
def finished_trials(study: Study, space: SearchSpace | None = None) -> dict[Knobs, FrozenTrial]:
    """The COMPLETE and PRUNED trials by configuration, oldest first; only those in `space` when it is given."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    by_knobs = {knobs_of(trial.params): trial for trial in trials}
    return {knobs: trial for knobs, trial in by_knobs.items() if space is None or knobs in space}


def complete_trials(study: Study) -> dict[Knobs, FrozenTrial]:
    """The trials of configurations that fit, by configuration, oldest first."""
    return {knobs: trial for knobs, trial in finished_trials(study).items() if trial.state is TrialState.COMPLETE}


def was_measured(trial: FrozenTrial) -> bool:
    """Whether there was a plan to measure; nothing is compiled whole when the estimate rules out all plans."""
    return "partition" in trial.user_attrs


def violation_of(trial: FrozenTrial) -> float:
    """How far the constraints were from holding, at most `MAX_VIOLATION`; 0 without any, -inf when nothing ran."""
    return float(trial.system_attrs["constraints"][0]) if "stages" in trial.user_attrs else -inf


def as_finished(trial: FrozenTrial) -> FinishedTrial:
    """A trial of a database as a callback receives it."""
    return FinishedTrial(
        number=trial.number,
        knobs=knobs_of(trial.params),
        state=trial.state.name,
        value=trial.values[0] if trial.values else None,
        others=tuple(trial.values[1:]) if trial.values else (),
        samples_per_s=trial.user_attrs.get("samples_per_s"),
        reason=trial.user_attrs.get("reason", ""),
        measured=was_measured(trial),
        started=_utc(trial.datetime_start),
        ended=_utc(trial.datetime_complete),
    )


def _utc(local: datetime | None) -> datetime:
    assert local is not None  # of a finished trial
    return local.astimezone(UTC)


def knobs_of(params: Mapping[str, Any]) -> Knobs:
    """The configuration of a trial's parameters."""
    named = {
        "schedule": Order(params.get("schedule", Order.INFERENCE)),
        "strategy": Strategy(params.get("strategy", Strategy.PIPELINE)),
    }
    return Knobs(**{**params, **named})


def _attributes(attempt: Attempt) -> dict[str, Any]:
    """The user attributes besides the status; never None."""
    if attempt.outcome is not None:
        return _outcome_attributes(attempt.outcome)
    return {"reason": attempt.reason} | ({"log": list(attempt.log)} if attempt.log else {})


def _outcome_attributes(outcome: Outcome) -> dict[str, Any]:
    measured, estimate = outcome.measured, outcome.estimate
    attributes: dict[str, Any] = {}
    if outcome.reason:
        attributes["reason"] = outcome.reason
    if measured is None:
        attributes["excess_bytes"] = outcome.excess_bytes
    else:
        attributes |= {
            "samples_per_s": outcome.samples_per_s,
            "latency_s": outcome.latency_s,
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


def _constraint(outcome: Outcome) -> float:
    """How far the constraints are from holding, or `excess_bytes / memory_bytes`: above 0 is infeasible.

    It is 1.0 when the configuration does not run for another reason, and 0.0 when it runs and there are no constraints.

    The trial holds it as a list in the system attribute "constraints", as samplers with a `constraints_func` write it:
    the dashboard (0.21) reads it and ignores what `trial.set_constraint` of Optuna 5 writes; Optuna reads both.
    """
    if outcome.measured is not None:
        return 0.0 if outcome.violation == -inf else max(-MAX_VIOLATION, min(outcome.violation, MAX_VIOLATION))
    return outcome.excess_bytes / outcome.memory_bytes if outcome.excess_bytes else 1.0


def describe_stages(plan: Plan | PhasedPlan) -> list[dict[str, Any]]:
    """Every stage, or phase, of a plan as JSON values: all fields, and the memory of all categories together."""
    parts: Sequence[Stage | Phase] = plan.stages if isinstance(plan, Plan) else plan.phases
    return [{**asdict(part), "total_bytes": part.total_bytes} for part in parts]


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """The fields of a plan besides its stages as JSON values; `overlap` and `host_cycles` unless they are 0."""
    partition = {"partition": list(plan.partition)}
    if isinstance(plan, Plan):
        options: dict[str, Any] = {"overlap": plan.overlap, "host_cycles": plan.host_cycles}
        return partition | {name: value for name, value in options.items() if value}
    phased = asdict(plan)
    del phased["phases"]
    return partition | {"phased": phased}


def plan_of(attributes: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> Plan | PhasedPlan:
    """The plan of a trial's attributes; `stages` are those in "stages" (measured) or "estimated_stages"."""
    if "phased" not in attributes:
        pipeline = tuple(Stage(**_fields(Stage, stage)) for stage in stages)
        return Plan(pipeline, attributes.get("overlap", False), attributes.get("host_cycles", 0))
    phased = attributes["phased"]
    phases = tuple(map(_phase, stages))
    io_mode, steps = IoMode(phased["io_mode"]), phased["steps"]
    typed = {
        "io_mode": io_mode,
        "buffers": tuple(BufferLayout(**buffer) for buffer in phased["buffers"]),
        "phase_cycles": tuple(phase.cycles(io_mode, steps) for phase in phases),
        "naive_cycles": steps * sum(phase.variable_cycles + phase.step_cycles for phase in phases),
    }
    return PhasedPlan(phases=phases, **{**phased, **typed})


def _phase(row: Mapping[str, Any]) -> Phase:
    rows = {name: tuple(BufferRow(*buffer_row) for buffer_row in row[name]) for name in ("loads", "stores")}
    return Phase(**{**_fields(Phase, row), **rows, "kind": PhaseKind(row["kind"])})


def _fields(noun: type[Stage | Phase], row: Mapping[str, Any]) -> dict[str, Any]:
    values = {field.name: row[field.name] for field in fields(noun)}
    return {**values, "layers": LayerRange(*row["layers"])}
