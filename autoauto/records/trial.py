"""What is searched, what for, and what came of it: `Knobs`, `SearchSpace`, `Objective`, `Outcome`."""

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


class Counts(NamedTuple):
    """How far a search went.

    Attributes:
        n_tried: configurations with a finished trial.
        n_measured: those of them that were compiled whole; the estimate ruled the others out.
        n_configurations: how many the space holds; None when it is not known.
    """

    n_tried: int
    n_measured: int
    n_configurations: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of one cell of the grid: all knobs but the batch size.

    Attributes:
        knobs: the cell, with the smallest batch size that was tried.
        batch_size: the largest that was tried and fits; None when none does.
        samples_per_s: the best measured throughput; 0 when none fits.
        reason: why the smallest batch size does not fit; empty when it does.
        too_large: the smallest that was tried above `batch_size`, and does not fit; None when none was tried.
    """

    knobs: Knobs
    batch_size: int | None
    samples_per_s: float
    reason: str
    too_large: int | None = None


class ExpectedCell(NamedTuple):
    """What the estimate says of one cell of the grid, where it was asked.

    Attributes:
        knobs: the configuration that is expected to be best; the smallest batch size when none fits.
        samples_per_s: its throughput; 0 when none fits.
        n_tries: configurations of the cell that a search would try.
        reason: why none fits; empty when one does.
    """

    knobs: Knobs
    samples_per_s: float
    n_tries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one configuration.

    Attributes:
        knobs: the configuration.
        estimate: the plan by costs estimated from layer profiles; None when there is none, so nothing was measured.
        measured: the same stages with the costs of the stages compiled whole; None when they do not fit.
        samples_per_s: measured throughput; 0 when it does not fit.
        estimated_samples_per_s: throughput by the estimate; 0 when there is none.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        memory_bytes: what one device holds.
        reason: why it does not fit, or which constraint does not hold; empty when it runs as it should.
        timeline: the measured stages in the order of the schedule; None when it does not fit, and for phases.
        latency_s: from a micro-batch's entry to its result; of training a step, of phases all of them. 0 when it does
            not fit.
        miss: how far the constraint that is nearest to break is from holding (`Constraint.miss`); above 0 when one does
            not hold.
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
    miss: float = -inf

    @property
    def fits(self) -> bool:
        """Whether the configuration runs, and all constraints hold."""
        return self.measured is not None and self.miss <= 0


class Status(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out of memory"
    """A device's memory did not suffice; without an outcome it was the memory of the measuring process."""
    INFEASIBLE = "infeasible"
    """No plan respects the limits; nothing was compiled whole."""
    CONSTRAINED = "constrained"
    """It runs, but a constraint does not hold."""
    TIME_OUT = "time-out"
    CRASH = "crash"
    """The measuring process died."""
    BUG = "bug"
    """An exception that no target raises on purpose."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One finished attempt.

    Attributes:
        knobs: the configuration.
        status: how it ended.
        outcome: what was measured, or why it does not fit; None when the attempt failed.
        reason: of a failure, in one line; empty when there is an outcome.
        log: the last lines of what a failed attempt printed or raised.
        started: by the clock of the machine when the attempt ended, less its duration: a clock that is set meanwhile
            changes no duration.
        ended: the same clock.
    """

    knobs: Knobs
    status: Status
    outcome: Outcome | None
    reason: str
    log: tuple[str, ...]
    started: datetime
    ended: datetime


def status_of(outcome: Outcome) -> Status:
    """The status of an attempt that has an outcome.

    A plan that was made but not measured ran out of memory; without a plan the limits stood against it.
    """
    if outcome.fits:
        return Status.OK
    if outcome.measured is not None:
        return Status.CONSTRAINED
    return Status.INFEASIBLE if outcome.estimate is None else Status.OUT_OF_MEMORY


def latency_s(knobs: Knobs, plan: Plan | PhasedPlan, clock_hz: float, timeline: Timeline | None = None) -> float:
    """Seconds from the entry of a micro-batch to its result, by the cycles of `plan`.

    A pipeline's is `Plan.latency_cycles`. A step of training has its result when all its micro-batches are through:
    that is the makespan of its `timeline`. Phases have theirs after the last phase.
    """
    if isinstance(plan, PhasedPlan):
        return plan.cost_cycles / clock_hz
    if knobs.training:
        assert timeline is not None
        return max(timeline.makespan_cycles, knobs.n_micro_batches * plan.host_cycles) / clock_hz
    return plan.latency_cycles / clock_hz


def run_latency_s(knobs: Knobs, run: Run, clock_hz: float) -> float:
    """The same of a plan that was measured: by the clock where devices ran it, else by the cycles of its stages."""
    if run.timelines[0].source == "simulated":
        return latency_s(knobs, run.plan, clock_hz, run.timelines[0])
    return run.latency_cycles / clock_hz


def held_to(outcome: Outcome, constraints: Sequence[Constraint]) -> Outcome:
    """The same outcome, with how far it is from the constraints, and the first that does not hold as its reason."""
    if outcome.measured is None or not constraints:
        return outcome
    numbers = _numbers(outcome)
    misses = [constraint.miss(numbers) for constraint in constraints]
    broken = next((c for c, miss in zip(constraints, misses, strict=True) if miss > 0), None)
    return replace(outcome, miss=max(misses), reason=broken.reason(numbers) if broken else outcome.reason)


def _numbers(outcome: Outcome) -> dict[str, float]:
    """The knobs and `RESULT_NAMES`."""
    plan = outcome.measured
    assert plan is not None
    parts = plan.stages if isinstance(plan, Plan) else plan.phases
    told = {
        "samples_per_s": outcome.samples_per_s,
        "latency_s": outcome.latency_s,
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "cost_cycles": plan.cost_cycles,
        "peak_memory_bytes": max(part.total_bytes for part in parts),
    }
    assert tuple(told) == RESULT_NAMES
    return {**outcome.knobs.numbers, **told}


class Phase(StrEnum):
    """What a search is at."""

    PREDICTING = "predicting"
    """The estimate is asked of every cell; nothing is measured."""
    MEASURING = "measuring"
    VERIFYING = "verifying"
    """The winner is measured again."""


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that is finished and in the database.

    Attributes:
        number: in its study.
        knobs: the configuration.
        state: COMPLETE when it was measured, PRUNED when it does not fit, FAIL when the measurement itself failed.
        value: of the objective, the first of several; None unless it is COMPLETE.
        samples_per_s: measured throughput; None unless it is COMPLETE.
        reason: why it does not fit, or what failed; empty when it is COMPLETE.
        measured: whether there was a plan to measure; the estimate ruled it out otherwise.
        started, ended: of the measurement, in UTC.
        others: values of the other objectives.
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
