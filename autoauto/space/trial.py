"""The outcomes of configurations: `Trial`, the trials of one `Cell` of the grid, and the `Counts` of a search.

A trial begins in `evaluate` (`measured_trial`, `unfit_trial`) or where a measurement fails (`failed_trial`). The
executor adds its times, the database its number and the values of the objectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from autoauto.records.display import Displayed
from autoauto.records.errors import DoesNotFit, Unsupported
from autoauto.records.hardware import Cluster, Device
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run, Timeline
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import (
    NO_RESULT,
    OF_PLANS,
    OF_RESULTS,
    QUANTITIES,
    DeviceTotals,
    Result,
    StepResult,
    TokenResult,
)
from autoauto.space.table import numbers

USABLE = Constraint("output_error <= 0.5")
"""Must hold of every trial in another format than fp32: where fp16 overflows, outputs are no numbers, or those that are
too large are its largest number."""


class Status(StrEnum):
    """The outcome of a trial."""

    OK = "ok"
    CONSTRAINED = "constrained"
    """It runs, but a constraint does not hold."""
    ENDED_EARLY = "ended early"
    """It runs, and its run ended once it was sure to be slower than the best so far: its numbers are those so far."""
    OUT_OF_MEMORY = "out of memory"
    """It was measured, and a device has too little memory."""
    INFEASIBLE = "infeasible"
    """No plan respects the limits by the estimate; nothing was measured."""
    UNSUPPORTED = "unsupported"
    """The runtime does not read or run the model."""
    PROCESS_OUT_OF_MEMORY = "process out of memory"
    """The measuring process had too little memory."""
    TIME_OUT = "time-out"
    CRASH = "crash"
    """The measuring process died."""
    BUG = "bug"
    """An exception that no target raises on purpose."""


class MadeFor(NamedTuple):
    """The model, cluster or precision (`what`) of a trial, by a name and a digest."""

    what: str
    name: str
    digest: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Trial(Displayed):
    """The outcome of one configuration.

    Attributes:
        reason: why it does not fit, which constraint does not hold, or what failed; empty when `fits`.
        estimate: the plan with estimated costs; None when no plan fits by the estimate. Trials that are read by the
            thousand have no plans; `with_plans` reads those of one.
        measured: the same stages with measured costs: the stages compiled whole, or run on real devices. None when they
            do not fit, and as above. `Flow.expect` puts the estimate here.
        timeline: the measured stages in the order of the schedule; None when it does not fit, for phases, and when read
            from a database.
        result: its numbers, which it also has by their names.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        excess: the same as a share of what a device holds; when it fits, minus the share that stays free there. It is
            not stored: 0 when read from a database.
        violation: the largest `Constraint.violation`, above 0 when a constraint does not hold; -inf without any, and 0
            when such a trial is read from a database.
        log: the last lines that a failed measurement printed or raised.
        started: `ended` minus the duration by a monotonic clock, so that setting the machine's clock does not change
            the duration; None before a measurement has ended, as is `ended`.
        ended: in UTC, by the clock of the machine.
        number: in its study; -1 outside of a study.
        values: of the study's objectives; empty outside of a study, and unless `fits`.
        origin: of the measured numbers; None when it does not run, and when read from a database without its plans.
        made_for: its model, cluster and precision; empty when read from a database, whose study has them.
    """

    knobs: Knobs
    status: Status
    reason: str = ""
    estimate: Plan | PhasedPlan | None = None
    measured: Plan | PhasedPlan | None = None
    timeline: Timeline | None = None
    result: Result = NO_RESULT
    excess_bytes: int = 0
    excess: float = 0.0
    violation: float = -inf
    log: tuple[str, ...] = ()
    started: datetime | None = None
    ended: datetime | None = None
    number: int = -1
    values: tuple[float, ...] = ()
    origin: Origin | None = field(default=None, compare=False)
    made_for: tuple[MadeFor, ...] = field(default=(), compare=False, repr=False)

    def __init__(
        self,
        knobs: Knobs,
        status: Status,
        reason: str = "",
        estimate: Plan | PhasedPlan | None = None,
        measured: Plan | PhasedPlan | None = None,
        timeline: Timeline | None = None,
        **values: Any,
    ) -> None:
        set_field = object.__setattr__
        set_field(self, "knobs", knobs)
        set_field(self, "status", status)
        set_field(self, "reason", reason)
        set_field(self, "estimate", estimate)
        set_field(self, "measured", measured)
        set_field(self, "timeline", timeline)
        if not values.keys() <= _DEFAULTS.keys():  # numbers of its result, by their names
            numbers = {name: values.pop(name) for name in values.keys() & _OF_RESULT}
            if unknown := values.keys() - _DEFAULTS.keys():
                raise TypeError(f"a trial has no {min(unknown)}")
            values["result"] = values.get("result", NO_RESULT).with_values(numbers)
        for name, value in (_DEFAULTS | values).items():
            set_field(self, name, value)

    if not TYPE_CHECKING:  # our own code says whose number it reads

        def __getattr__(self, name: str) -> Any:
            """A number of its result; None where its mode has none of this name."""
            if name not in _OF_RESULT:
                raise AttributeError(f"a trial has no {name}")
            return self.result.value(name)

    def with_values(self, **values: Any) -> Self:
        """The trial with other values of fields, and other numbers, by their names."""
        return replace(self, **values)

    @property
    def step(self) -> StepResult:
        """The numbers of its training step; the defaults, without numbers, where it has none."""
        return self.result.of_mode if isinstance(self.result.of_mode, StepResult) else StepResult()

    @property
    def tokens(self) -> TokenResult:
        """The numbers of its generation of text; all 0 where it generates none."""
        return self.result.of_mode if isinstance(self.result.of_mode, TokenResult) else TokenResult()

    @property
    def samples_per_s(self) -> float:
        """Measured throughput."""
        return self.result.samples_per_s

    @property
    def estimated_samples_per_s(self) -> float:
        """Throughput by the estimate; 0 when there is none."""
        return self.result.estimated_samples_per_s

    @property
    def latency_s(self) -> float:
        """Seconds from the entry of a micro-batch, or of a request, to its result; see `Result`."""
        return self.result.latency_s

    @property
    def fits(self) -> bool:
        """True if the configuration runs and all constraints hold."""
        return self.status is Status.OK

    @property
    def runs(self) -> bool:
        """True if the configuration runs, even if a constraint does not hold."""
        return self.status in (Status.OK, Status.CONSTRAINED, Status.ENDED_EARLY)

    @property
    def ended_early(self) -> bool:
        """True if its run was ended early, so that its numbers are those until then."""
        return self.status is Status.ENDED_EARLY

    @property
    def state(self) -> str:
        """Optuna's word for how it ended: COMPLETE when it fits, FAIL when the measurement failed, else PRUNED."""
        if self.fits:
            return "COMPLETE"
        return "FAIL" if self.failed else "PRUNED"

    @property
    def value(self) -> float | None:
        """Of the study's first objective; None without one."""
        return self.values[0] if self.values else None

    @property
    def unit(self) -> str:
        """Of its throughput: samples/s, or tokens/s where text is generated."""
        return f"{self.knobs.mode.sample}s/s"

    @property
    def device_samples_per_s(self) -> float:
        """Measured throughput of one device of the cluster, if all do the same."""
        return self.samples_per_s / self.knobs.n_devices

    @property
    def replica_samples_per_s(self) -> float:
        """Measured throughput of one pipeline, or of one device that runs all phases."""
        return self.samples_per_s / (self.knobs.n_ipu if self.knobs.is_phased else self.knobs.replicas)

    @property
    def plan(self) -> Plan | PhasedPlan:
        """The measured plan of a configuration that runs."""
        assert self.measured is not None
        return self.measured

    @property
    def was_measured(self) -> bool:
        """True if stages were compiled or run, even if they did not fit; False if the estimate ruled them out."""
        return self.runs or self.status is Status.OUT_OF_MEMORY

    @property
    def failed(self) -> bool:
        """True if the measurement itself failed, so that nothing is known of the configuration."""
        return not self.was_measured and self.status not in (Status.INFEASIBLE, Status.UNSUPPORTED)


_DEFAULTS = {each.name: each.default for each in fields(Trial)[6:]}
_OF_RESULT = frozenset(number.name for number in OF_RESULTS)


def numbers_of(trial: Trial) -> dict[str, float]:
    """The numbers that a trial has, by name; of one that does not run the missing bytes alone."""
    if not trial.runs:
        return {"excess_bytes": trial.excess_bytes}
    values = trial.result.values
    if not trial.estimated_samples_per_s:  # there is no estimate
        del values["estimated_samples_per_s"]
    names = [number.name for number in OF_RESULTS]
    return {name: values[name] for name in names if values.get(name) is not None}


def used_devices(knobs: Knobs, plan: Plan | PhasedPlan | None) -> dict[str, int]:
    """The numbers of devices of a configuration's pipelines, by the names of their kinds; "" where a plan has none."""
    used: dict[str, int] = {}
    for each in plan.plans if isinstance(plan, Plan) else ():
        for stage in each.stages:
            n_devices = max(1, len(each.placement)) * stage.n_replicas * knobs.session.group_size
            used[stage.device_kind] = used.get(stage.device_kind, 0) + n_devices
    n_devices = knobs.n_devices - knobs.session.n_beside
    return used if sum(used.values()) == n_devices else {"": n_devices}


def with_devices(result: Result, knobs: Knobs, plan: Plan | PhasedPlan, cluster: Cluster) -> Result:
    """A result with what the devices cost and draw at most that its plan uses, of a cluster of single devices."""
    used = used_devices(knobs, plan)
    if knobs.session.n_beside:
        kind = knobs.session.kind_beside(cluster)
        used[kind] = used.get(kind, 0) + knobs.session.n_beside
    return replace(result, devices=DeviceTotals.of(lambda quantity: cluster.total(quantity, used)))


def measured_trial(
    knobs: Knobs,
    estimate: Plan | PhasedPlan | None,
    measured: Plan | PhasedPlan,
    result: Result,
    *,
    device: Device,
    timeline: Timeline | None = None,
    origin: Origin | None = None,
    constraints: Sequence[Constraint] = (),
) -> Trial:
    """The trial of a configuration that runs; its status and reason tell whether all constraints hold.

    Args:
        knobs, estimate, measured, timeline, origin: as in `Trial`.
        result: its numbers, but those that follow from its plans and from the timeline of a step.
        constraints: on knobs and results; with an `output_error` also `USABLE`.
    """
    result = replace(
        result,
        compute_cycles=_largest(measured, "compute_cycles"),
        transfer_cycles=_largest(measured, "transfer_cycles"),
    )
    if knobs.training and timeline:
        result = replace(result, of_mode=StepResult(timeline.makespan_cycles, timeline.bubble_fraction))
    excess = measured.excess_bytes / int(device.memory_bytes)
    trial = Trial(knobs, Status.OK, "", estimate, measured, timeline, result=result, excess=excess, origin=origin)
    if result.output_error is not None:
        constraints = (*constraints, USABLE)
    return apply_constraints(trial, constraints)


def ended_early(trial: Trial) -> Trial:
    """The trial of a run that ended since it is slower than the best so far."""
    ends = trial.result.ends
    assert ends is not None
    reason = (
        f"slower than the best so far: {format_number(trial.samples_per_s)} {trial.unit} until then, between "
        f"{format_number(ends.low_per_s)} and {format_number(ends.high_per_s)}; its run ended early"
    )
    return replace(trial, status=Status.ENDED_EARLY, reason=reason)


def _largest(plan: Plan | PhasedPlan, name: str) -> int:
    numbers: list[int] = [getattr(each, name) for each in plan.plans]
    return max(numbers)


def unfit_trial(
    knobs: Knobs, failure: DoesNotFit, device_bytes: int, estimate: Plan | PhasedPlan | None = None
) -> Trial:
    """The trial of a configuration that does not fit: by the estimate, or with an `estimate` when it was measured."""
    status = Status.INFEASIBLE if estimate is None else Status.OUT_OF_MEMORY
    if isinstance(failure, Unsupported):
        status = Status.UNSUPPORTED
    return Trial(
        knobs,
        status,
        str(failure),
        estimate,
        excess_bytes=failure.excess_bytes,
        excess=failure.excess_bytes / device_bytes,
    )


def latency_s(knobs: Knobs, plan: Plan | PhasedPlan, clock_hz: float, step_cycles: float | None = None) -> float:
    """Seconds from the entry of a micro-batch to its result, by the cycles of `plan`.

    For inference by pipelines it is the longest `Plan.latency_cycles`. For a step of training, whose result is there
    when all its micro-batches are finished, it takes `step_cycles`. For phases it ends with the last phase.
    """
    if knobs.training and not knobs.is_phased:
        assert step_cycles is not None
        return max(step_cycles, knobs.mode.n_micro_batches * plan.host_bound_cycles) / clock_hz
    return max(each.latency_cycles for each in plan.plans) / clock_hz


def run_latency_s(knobs: Knobs, run: Run, clock_hz: float) -> float:
    """`latency_s` of a measured plan: read from a clock if real devices ran it, else from the cycles of its stages."""
    if run.origin is Origin.SIMULATED:
        return latency_s(knobs, run.plan, clock_hz, run.timelines[0].makespan_cycles)
    return run.latency_cycles / clock_hz


def apply_constraints(trial: Trial, constraints: Sequence[Constraint]) -> Trial:
    """A trial with its largest violation; its reason names the first constraint that does not hold.

    One that does not run has no results, so it stays as it is.
    """
    if not trial.runs or not constraints:
        return trial
    known: dict[str, float] = {name: _largest(trial.plan, name) for name in OF_PLANS}
    values = trial.result.values
    for number in OF_RESULTS:
        value = values.get(number.name)
        # Numbers that the mode does not give are 0; a quantity that devices do not have was refused before.
        if number.in_constraints and (value is not None or number.name not in QUANTITIES):
            known[number.name] = value or 0
    known |= {**numbers(trial.knobs), **trial.result.derived}
    violations = [constraint.violation(known) for constraint in constraints]
    trial = replace(trial, violation=max(violations))
    for constraint, violation in zip(constraints, violations, strict=True):
        if violation > 0:
            return replace(trial, status=Status.CONSTRAINED, reason=constraint.reason(known))
    return trial


@dataclass(frozen=True, slots=True)
class Cell:
    """The trials of a cell of the grid: all knobs but the batch size are equal."""

    trials: tuple[Trial, ...]  # by ascending batch size, at least one
    best: Trial | None  # None when none fits

    @property
    def knobs(self) -> Knobs:
        """The cell, with the smallest batch size that was tried."""
        return self.trials[0].knobs

    @property
    def largest(self) -> Trial | None:
        """The largest batch size that fits, also one whose run ended early; None when none does."""
        return next((trial for trial in reversed(self.trials) if trial.fits or trial.ended_early), None)

    @property
    def first_unfit(self) -> Trial | None:
        """The smallest batch size above `largest` that does not fit; None when no larger one was tried."""
        fitting_size = self.largest.knobs.batch_size if self.largest else 0
        larger = (trial for trial in self.trials if trial.knobs.batch_size > fitting_size)
        return next((trial for trial in larger if not trial.fits), None)

    @property
    def n_measured(self) -> int:
        """The number of trials that were measured."""
        return sum(trial.was_measured for trial in self.trials)


class ExpectedCell(NamedTuple):
    """The estimate for one cell of the grid, and how many of its configurations a search would try."""

    cell: Cell
    n_tries: int


class Counts(NamedTuple):
    """The progress of a search."""

    n_tried: int  # configurations with a finished trial
    n_measured: int  # those of them that were measured; the estimate ruled the others out
    n_configurations: int | None = None  # the size of the space; None when it is not known


class SearchActivity(StrEnum):
    """The current activity of a search."""

    PREDICTING = "predicting"
    """Every cell is estimated; nothing is measured."""
    MEASURING = "measuring"
    VERIFYING = "verifying"
    """The winner is measured again."""
