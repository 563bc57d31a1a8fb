"""The results of configurations: `Outcome`, `Attempt`, `FinishedTrial`; and of a search as a whole: `Cell`, `Counts`.

An `Outcome` is the result of an evaluation. An `Attempt` is an evaluation that has ended, with or without an outcome.
A `FinishedTrial` is what the database stores of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import NamedTuple

from autoauto.records.constraint import RESULT_NAMES, Constraint
from autoauto.records.knobs import Knobs
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.timeline import Run, Timeline


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of evaluating one configuration.

    Attributes:
        knobs: the configuration.
        estimate: the plan with estimated costs; None when no plan fits by the estimate, so that nothing was measured.
        measured: the same stages with measured costs: the stages compiled whole, or run on real devices. None when they
            do not fit. `Flow.expect` puts the estimate here.
        samples_per_s: measured throughput; 0 when it does not fit.
        estimated_samples_per_s: throughput by the estimate; 0 when there is none.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        memory_bytes: the memory of one device; of all devices for a model that runs in one session on all of them.
        reason: why it does not fit, or which constraint does not hold; empty when `fits`.
        timeline: the measured stages in the order of the schedule; None when it does not fit, and for phases.
        latency_s: from a micro-batch's entry to its result; for training of a whole step, for phases of all
            micro-batches. 0 when it does not fit.
        violation: the largest `Constraint.violation`; above 0 when a constraint does not hold.
    """

    knobs: Knobs
    estimate: Plan | PhasedPlan | None
    measured: Plan | PhasedPlan | None
    samples_per_s: float
    estimated_samples_per_s: float
    excess_bytes: int
    memory_bytes: int
    reason: str
    timeline: Timeline | None = None
    latency_s: float = 0.0
    violation: float = -inf

    @property
    def fits(self) -> bool:
        """Whether the configuration runs and all constraints hold."""
        return self.measured is not None and self.violation <= 0


def latency_s(knobs: Knobs, plan: Plan | PhasedPlan, clock_hz: float, timeline: Timeline | None = None) -> float:
    """Seconds from the entry of a micro-batch to its result, by the cycles of `plan`.

    For inference by a pipeline it is `Plan.latency_cycles`. For a step of training, whose result is there when all its
    micro-batches are finished, it is the makespan of `timeline`. For phases it ends with the last phase.
    """
    if isinstance(plan, PhasedPlan):
        return plan.cost_cycles / clock_hz
    if knobs.training:
        assert timeline is not None
        return max(timeline.makespan_cycles, knobs.n_micro_batches * plan.host_cycles) / clock_hz
    return plan.latency_cycles / clock_hz


def run_latency_s(knobs: Knobs, run: Run, clock_hz: float) -> float:
    """`latency_s` of a measured plan: read from a clock if real devices ran it, else from the cycles of its stages."""
    if run.timelines[0].source == "simulated":
        return latency_s(knobs, run.plan, clock_hz, run.timelines[0])
    return run.latency_cycles / clock_hz


def apply_constraints(outcome: Outcome, constraints: Sequence[Constraint]) -> Outcome:
    """The same outcome with the largest violation of `constraints`; its reason names the first violated constraint."""
    if outcome.measured is None or not constraints:
        return outcome
    numbers = _numbers(outcome)
    violations = [constraint.violation(numbers) for constraint in constraints]
    violated = next((c for c, violation in zip(constraints, violations, strict=True) if violation > 0), None)
    return replace(outcome, violation=max(violations), reason=violated.reason(numbers) if violated else outcome.reason)


def _numbers(outcome: Outcome) -> dict[str, float]:
    """The values to which a constraint may refer, by `KNOB_NAMES` and `RESULT_NAMES`."""
    plan = outcome.measured
    assert plan is not None
    parts = plan.stages if isinstance(plan, Plan) else plan.phases
    results = {
        "samples_per_s": outcome.samples_per_s,
        "latency_s": outcome.latency_s,
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "cost_cycles": plan.cost_cycles,
        "peak_memory_bytes": max(part.total_bytes for part in parts),
    }
    assert tuple(results) == RESULT_NAMES
    return {**outcome.knobs.numbers, **results}


class Status(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    """A device had too little memory; when the attempt has no outcome, the measuring process had too little."""
    INFEASIBLE = "infeasible"
    """No plan respects the limits; nothing was compiled whole."""
    CONSTRAINED = "constrained"
    """It runs, but a constraint does not hold."""
    TIME_OUT = "time-out"
    CRASH = "crash"
    """The measuring process died."""
    BUG = "bug"
    """An exception that no target raises on purpose."""


def status_of(outcome: Outcome) -> Status:
    """The status of an attempt that has an outcome.

    An outcome with an estimated plan but no measured one ran out of memory; one without either has no feasible plan.
    """
    if outcome.fits:
        return Status.OK
    if outcome.measured is not None:
        return Status.CONSTRAINED
    return Status.INFEASIBLE if outcome.estimate is None else Status.OUT_OF_MEMORY


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt to evaluate a configuration.

    Attributes:
        knobs: the configuration.
        status: how it ended.
        outcome: what was measured, or why it does not fit; None when the attempt failed.
        reason: why it failed, in one line; empty when there is an outcome.
        log: the last lines that a failed attempt printed or raised.
        started: `ended` minus the duration by a monotonic clock, so that setting the machine's clock during an attempt
            does not change its duration.
        ended: by the clock of the machine.
    """

    knobs: Knobs
    status: Status
    outcome: Outcome | None
    reason: str
    log: tuple[str, ...]
    started: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A finished trial in the database.

    Attributes:
        number: in its study.
        knobs: the configuration.
        state: COMPLETE when it was measured, PRUNED when it does not fit, FAIL when the measurement itself failed.
        value: of the objective, the first of several; None unless it is COMPLETE.
        samples_per_s: measured throughput; None unless it is COMPLETE.
        reason: why it does not fit, or what failed; empty when it is COMPLETE.
        measured: whether a plan was measured; otherwise the estimate ruled the configuration out.
        started, ended: of the measurement, in UTC.
        others: the values of the second and later objectives.
    """

    number: int
    knobs: Knobs
    state: str
    value: float | None
    samples_per_s: float | None
    reason: str
    measured: bool
    started: datetime
    ended: datetime
    others: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """The results of one cell of the grid: all knobs but the batch size.

    Attributes:
        knobs: the cell, with the smallest batch size that was tried.
        batch_size: the largest that was tried and fits; None when none does.
        samples_per_s: the best measured throughput; 0 when none fits.
        reason: why the smallest batch size does not fit; empty when it does.
        too_large: the smallest batch size above `batch_size` that was tried and does not fit; None when none was tried.
    """

    knobs: Knobs
    batch_size: int | None
    samples_per_s: float
    reason: str
    too_large: int | None = None


class ExpectedCell(NamedTuple):
    """The estimate for one cell of the grid.

    Attributes:
        knobs: the configuration that is expected to be best; the smallest batch size when none fits.
        samples_per_s: its throughput; 0 when none fits.
        n_tries: the number of configurations of the cell that a search would try.
        reason: why none fits; empty when one does.
    """

    knobs: Knobs
    samples_per_s: float
    n_tries: int
    reason: str


class Counts(NamedTuple):
    """The progress of a search.

    Attributes:
        n_tried: configurations with a finished trial.
        n_measured: configurations among them that were measured; the estimate ruled the others out.
        n_configurations: the size of the space; None when it is not known.
    """

    n_tried: int
    n_measured: int
    n_configurations: int | None = None


class SearchActivity(StrEnum):
    """What a search is doing."""

    PREDICTING = "predicting"
    """Every cell is estimated; nothing is measured."""
    MEASURING = "measuring"
    VERIFYING = "verifying"
    """The winner is measured again."""
