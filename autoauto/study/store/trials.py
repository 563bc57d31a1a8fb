"""Trials in a database, as Optuna stores them: `to_optuna`, `from_optuna`, `stored_trials`, `with_plans`.

Where Optuna stores a trial:

    parameters          the knobs, with the ranges of the space
    state, values       COMPLETE with the objectives, PRUNED when it does not fit or violates a constraint, FAIL
    user attributes     status, reason, throughput, partition, ...
    system attributes   "constraints": how far the constraints are from holding; attributes that are longer than
                        `N_SHOWN`, such as stages as measured and as estimated (`describe_stages`)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import count, takewhile
from math import inf, isnan
from typing import Any, NamedTuple

from optuna import Study
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoauto.records.costs.options import PlainSession
from autoauto.records.errors import BadInput
from autoauto.records.files.json import from_plain
from autoauto.records.hardware import Period
from autoauto.records.knob import Domain
from autoauto.records.plans.phased import Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin, studied_origin
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import NO_RESULT, NUMBERS, OF_RESULTS
from autoauto.space.objectives import Objectives, values_of
from autoauto.space.space import SearchSpace
from autoauto.space.table import COLUMNS, KNOBS, shown
from autoauto.space.trial import Status, Trial, numbers_of
from autoauto.study.store.database import attributes_of, database_of, reads, row_errors, through_restarts
from autoauto.study.store.rows import UNREADABLE, trial_rows

Ranges = dict[str, BaseDistribution]
"""Parameters of a trial and the values that they may take."""
MAX_VIOLATION = 1e6
"""The stored violation of a configuration that violates a constraint by more; JSON has no infinity."""
ORIGIN = "origin"
"""The attribute of a trial with the origin of its numbers, where it is not that of the study."""
N_SHOWN = 100
"""The most characters of a user attribute, which the dashboard shows in one line; it shows no system attributes."""
_READERS = {knob.name: knob.domain.read for knob in COLUMNS}
_ENDED = {state.name for state in TrialState if state.is_finished()}
_OPEN = {state.name for state in TrialState if not state.is_finished()}
_NUMBERS = tuple(number.name for number in NUMBERS)
_OF_RESULT = tuple(number.name for number in OF_RESULTS)


def local_time(utc: datetime | None) -> datetime | None:
    """A time as those of Optuna's trials: local, without a zone."""
    return None if utc is None else utc.astimezone().replace(tzinfo=None)


def ranges_of(space: SearchSpace, knobs: Knobs) -> Ranges:
    """The parameters of a trial of `knobs`, and the values that they may take in `space` or have in the trial.

    A knob that has its default in the whole space is no parameter, but the first knob of a session always is: by it the
    trial is read back as that session.
    """
    ranges: Ranges = {}
    own = knobs.values
    always = {*shown(knobs), *knobs.session.knobs[:1]}
    for knob in COLUMNS:
        if knob.name not in own:
            continue
        values: list[Any] = []
        for axis in KNOBS:
            if axis.field == knob.name:
                values += space[axis.name]
        if knob in always or set(values) != {knob.default}:
            # The space may lack the trial's own: phases have one replica where all pipelines have more.
            ranges[knob.name] = _range(knob.domain, [*values, own[knob.name]])
    return ranges


def _range(domain: Domain, values: Sequence[Any]) -> BaseDistribution:
    # Numbers have ranges: Optuna refuses other categories, but a search may be resumed in a wider space.
    if domain.stored:
        return CategoricalDistribution(domain.stored)
    if any(isinstance(value, str) for value in values):  # of each device, which are no range
        return CategoricalDistribution(tuple(dict.fromkeys(values)))
    low, high = min(values), max(values)
    return FloatDistribution(low, high) if domain.kind is float else IntDistribution(low, high)


def to_optuna(trial: Trial, ranges: Ranges, objectives: Objectives, origin: Origin | None = None) -> FrozenTrial:
    """A trial as Optuna stores it, to be added to a study in one write, so that none stays RUNNING when a process dies.

    It is COMPLETE with its values when the configuration fits and all constraints hold, PRUNED with a reason when not,
    FAIL when the measurement itself failed. The origin of its numbers is stored where it is not that of the study.
    """
    own = trial.knobs.values
    params: dict[str, Any] = {}
    for name in ranges:
        value = own[name]
        params[name] = str(value) if isinstance(value, str) else value  # a word of an enumeration is a plain text
    attributes = {"status": str(trial.status), **_attributes(trial)}
    if origin is not None:
        attributes[ORIGIN] = str(origin)
    system = {name: value for name, value in attributes.items() if len(str(value)) > N_SHOWN}
    user = {name: value for name, value in attributes.items() if name not in system}
    if "reason" in system:
        user["reason"] = f"{trial.reason[: N_SHOWN - 1]}…"
    if not trial.failed:
        system["constraints"] = [_constraint(trial)]
    stored = create_trial(
        state=TrialState[trial.state],
        values=values_of(objectives, trial) if trial.fits else None,
        params=params,
        distributions=ranges,
        user_attrs=user,
        system_attrs=system,
    )
    stored.datetime_start = local_time(trial.started)
    stored.datetime_complete = local_time(trial.ended)
    return stored


def from_optuna(stored: FrozenTrial) -> Trial:
    """A finished trial of a database, with its plans; a BadInput if another program edited it."""
    attributes = {**stored.user_attrs, **stored.system_attrs}  # a long reason is whole in the latter
    try:
        cells = {
            "number": stored.number,
            "state": stored.state.name,
            "constraint": next(iter(attributes.get("constraints", ())), None),
            "datetime_start": _utc(stored.datetime_start),
            "datetime_complete": _utc(stored.datetime_complete),
            **stored.params,
            **attributes,
        }
        trial = _trial(cells, tuple(stored.values or ()))
        plans = {name: plan_of(attributes, name) for name in (STAGES, ESTIMATED_STAGES) if name in attributes}
        log = tuple(attributes.get("log", ()))
        trial = replace(trial, estimate=plans.get(ESTIMATED_STAGES), measured=plans.get(STAGES), log=log)
        if trial.fits and not trial.values:
            raise ValueError("no values")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"trial {stored.number} of the study was edited, and cannot be read ({type(error).__name__}: {error}); "
            "correct it there, or give another --study-name"
        ) from error
    return trial


@row_errors()
def add_trial(study: Study, trial: FrozenTrial) -> int:
    """Write a trial that has ended; returns its number."""
    storage, study_id = database_of(study)
    trial_id = storage.create_new_trial(study_id, trial)
    return storage.get_trial_number_from_id(trial_id)


class StoredTrials(NamedTuple):
    """The trials of a study that have ended, by number, without their plans.

    Attributes:
        own: those that autoauto wrote and that are as it wrote them.
        n_foreign: how many others there are: of another program, or with cells that were edited. They are left out.
    """

    own: list[Trial]
    n_foreign: int

    @property
    def finished(self) -> dict[Knobs, Trial]:
        """The trials that did not fail, by configuration, oldest first; of a configuration with several the last.

        Those with another origin than the study's are left out: a search compares numbers of one origin.
        """
        return {trial.knobs: trial for trial in self.own if not trial.failed and trial.origin is None}


@reads
def stored_trials(study: Study) -> StoredTrials:
    """The trials of a study that have ended, and how many are left out."""
    n_objectives = _n_objectives(study)
    own: list[Trial] = []
    n_foreign = 0
    for row in trial_rows(study):
        if row["state"] in _OPEN:
            continue
        trial = own_trial(row, n_objectives)
        if trial is None:
            n_foreign += 1
        else:
            own.append(trial)
    return StoredTrials(own, n_foreign)


@through_restarts
def _n_objectives(study: Study) -> int:
    return len(study.directions)


def own_trial(row: Mapping[str, Any], n_objectives: int) -> Trial | None:
    """The trial of the cells of `trial_rows`; None where another program wrote or edited it."""
    if "status" not in row or row["state"] not in _ENDED or UNREADABLE in row.values():
        return None
    values: tuple[float, ...] = ()
    if row["value"] is not None:  # the columns of further objectives are "value_1" and so on
        others = takewhile(row.__contains__, (f"value_{index}" for index in count(1)))
        values = (row["value"], *(row[name] for name in others))
    numbers = [row[name] for name in (*_NUMBERS, "constraint") if row.get(name) is not None]
    if not all(isinstance(number, int | float) and not isnan(number) for number in (*values, *numbers)):
        return None
    try:
        trial = _trial(row, values)
    except (KeyError, TypeError, ValueError):
        return None
    if trial.fits and len(values) != n_objectives:
        return None
    return trial


@reads
def with_plans(study: Study, trial: Trial) -> Trial:
    """A trial of a study with its plans, which are read unless it has them; its numbers stay (`with_means`)."""
    if trial.measured is not None or not trial.runs:
        return trial
    read = from_optuna(_stored_trial(study, trial.number))
    if read.measured is None:
        raise ValueError(f"trial {trial.number} ran and has no stages")
    origin = trial.origin or studied_origin(attributes_of(study))
    return read.with_values(result=trial.result, origin=origin)


@through_restarts
def _stored_trial(study: Study, number: int) -> FrozenTrial:
    storage, study_id = database_of(study)
    return storage.get_trial(storage.get_trial_id_from_study_id_trial_number(study_id, number))


def _trial(cells: Mapping[str, Any], values: tuple[float, ...]) -> Trial:
    return Trial(
        knobs_of_row(cells),
        Status(cells["status"]),
        cells.get("reason", ""),
        violation=cells["constraint"] if "samples_per_s" in cells else -inf,
        started=cells["datetime_start"],
        ended=cells["datetime_complete"],
        number=cells["number"],
        values=values,
        result=NO_RESULT.with_values({name: cells[name] for name in _OF_RESULT if name in cells}),
        excess_bytes=cells.get("excess_bytes", 0),
        origin=Origin(cells[ORIGIN]) if ORIGIN in cells else None,
    )


def _utc(local: datetime | None) -> datetime | None:
    return None if local is None else local.astimezone(UTC)


def knobs_of(params: Mapping[str, Any]) -> Knobs:
    """The configuration of a trial's parameters; a KeyError if one is missing that every configuration has."""
    for name in ("n_ipu", "batch_size"):
        if name not in params:
            raise KeyError(name)
    return Knobs(session=PlainSession(), **{name: _READERS[name](value) for name, value in params.items()})


def knobs_of_row(cells: Mapping[str, Any]) -> Knobs:
    """The configuration of the cells of `trial_rows`."""
    return knobs_of({name: cells[name] for name in _READERS if name in cells})


def _attributes(trial: Trial) -> dict[str, Any]:
    """The attributes besides the status; never None."""
    attributes: dict[str, Any] = {}
    if trial.reason:
        attributes["reason"] = trial.reason
    if trial.failed:
        if trial.log:
            attributes["log"] = list(trial.log)
        return attributes
    attributes |= numbers_of(trial)
    if trial.measured is not None:
        attributes |= describe_stages(trial.measured, STAGES)
    if trial.estimate is not None:
        attributes |= describe_stages(trial.estimate, ESTIMATED_STAGES)
    plan = trial.measured or trial.estimate
    if plan is not None:
        attributes |= describe_plan(plan)
    return attributes


def _constraint(trial: Trial) -> float:
    """How far the constraints are from holding, or the excess of memory: above 0 is infeasible.

    It is 1.0 when the configuration does not run for another reason, and 0.0 when it runs and there are no constraints.

    The trial holds it as a list in the system attribute "constraints", as samplers with a `constraints_func` write it:
    the dashboard (0.21) reads it and ignores what `trial.set_constraint` of Optuna 5 writes; Optuna reads both.
    """
    if not trial.runs:
        return trial.excess if trial.excess_bytes else 1.0
    if trial.violation == -inf:
        return 0.0
    return max(-MAX_VIOLATION, min(trial.violation, MAX_VIOLATION))


STAGES, ESTIMATED_STAGES = "stages", "estimated_stages"
"""The attributes of a trial that hold the parts of its measured and of its estimated plan."""
_OTHERS = "_of_others"
"""Appended to them: those of the plans of other replicas, where they differ."""
_PLAN_OPTIONS = ("period", "host_cycles", "shared_cycles", "placement")
"""The fields of a `Plan` besides its stages and the plans of other replicas."""


def describe_stages(plan: Plan | PhasedPlan, name: str) -> dict[str, Any]:
    """Attributes with every stage, or phase, of a plan as JSON values: all fields, and the memory of all categories."""
    parts: Sequence[Stage | Phase] = plan.stages if isinstance(plan, Plan) else plan.phases
    described: dict[str, Any] = {name: [{**asdict(part), "total_bytes": part.total_bytes} for part in parts]}
    if plan.other_plans:
        described[name + _OTHERS] = [
            describe_plan(other) | describe_stages(other, STAGES) for other in plan.other_plans
        ]
    return described


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """The fields of a plan besides its stages as JSON values; those in `_PLAN_OPTIONS` where they are no defaults."""
    partition = {"partition": list(plan.partition)}
    if isinstance(plan, Plan):
        options = {name: getattr(plan, name) for name in _PLAN_OPTIONS}
        return partition | {name: value for name, value in options.items() if value and value is not Period.BARRIER}
    phased = asdict(plan)
    del phased["phases"]
    return partition | {"phased": phased}


def plan_of(attributes: Mapping[str, Any], name: str) -> Plan | PhasedPlan:
    """The plan of a trial's attributes, with the parts in the attribute `STAGES` or `ESTIMATED_STAGES`.

    Raises:
        ValueError: they are no plan; `reads` then names the study.
    """
    try:
        if "phased" not in attributes:
            return _pipeline_of(attributes, name)
        plan = from_plain(PhasedPlan, {**attributes["phased"], "phases": attributes[name]}, "a trial's phases")
    except BadInput as error:
        raise ValueError(str(error)) from error
    return plan.with_phases(plan.phases)  # the stored cycles are those of the measured phases


def _pipeline_of(attributes: Mapping[str, Any], name: str) -> Plan:
    options = {option: attributes[option] for option in _PLAN_OPTIONS if option in attributes}
    plan = from_plain(Plan, {"stages": attributes[name], **options}, "a trial's plan")
    others = tuple(_pipeline_of(other, STAGES) for other in attributes.get(name + _OTHERS, ()))
    return replace(plan, other_plans=others) if others else plan
