"""A study as its reports show it: `StudySummary`, with its `Verification`, `TrialSummary`s and `CellSummary`s.

A `Verification` is the best configuration of a search measured again, in turns with others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from statistics import mean, stdev
from typing import NamedTuple

from autoauto.records.knobs import Knobs, Objective
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean of measurements.

    Attributes:
        mean: of all.
        error: half the width of the 95 % confidence interval around it; None for a single measurement.
    """

    mean: float
    error: float | None


def interval(values: Sequence[float]) -> Interval:
    """The mean of normally distributed values and its confidence interval [student].

    >>> interval([10.0, 11.0, 12.0])  # 4.303 x 1 / sqrt(3)
    Interval(mean=11.0, error=2.484...)
    """
    if len(values) < 2:
        return Interval(mean(values), None)
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1.0 + CONFIDENCE) / 2.0))
    return Interval(mean(values), quantile * stdev(values) / len(values) ** 0.5)


class Verdict(StrEnum):
    """The result of comparing two configurations over all turns."""

    CLEAR = "clear"
    """One is better, or there was nothing to compare."""
    TIE = "tie"
    """The turns show no difference: the simpler one wins."""
    UNSURE = "unsure"
    """The turns scatter too much to decide: the better mean wins."""


class Repeated(NamedTuple):
    """One configuration that is measured once a turn.

    Attributes:
        name: what it is, for example "runner-up".
        knobs: the configuration.
        what: how it ran, where the knobs do not define it.
        samples_per_s: measured throughput of every turn; None where it failed or did not fit.
        scores: the search's objective of every turn, more is better; None as above.
        reason: why a turn has no measurement; empty when all have one.
    """

    name: str
    knobs: Knobs
    what: str = ""
    samples_per_s: tuple[float | None, ...] = ()
    scores: tuple[float | None, ...] = ()
    reason: str = ""

    @property
    def speed(self) -> Interval | None:
        """Throughput over all turns; None when no turn has a measurement."""
        return _interval(self.samples_per_s)

    @property
    def score(self) -> Interval | None:
        """The objective over all turns; None when no turn has a measurement."""
        return _interval(self.scores)


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return interval(known) if known else None


class AutoPipelineAnswer(NamedTuple):
    """The result of the search of [auto-pipeline], if all measurements equalled the estimates.

    Attributes:
        knobs: the configuration.
        samples_per_s: its throughput, estimated.
        gain_percent: how much better the best of our search is, estimated too.
    """

    knobs: Knobs
    samples_per_s: float
    gain_percent: float


@dataclass(frozen=True, slots=True)
class Verification:
    """The best configurations of a search, measured again in turns.

    Attributes:
        repeated: the best of the search, then the runner-up where there is one, then the default configuration unless
            it is one of them.
        n_repeats: the number of turns; in each all are measured once.
        winner_index: the position of the winner in `repeated`: 0, or 1 when the runner-up is better, or as good and
            simpler.
        verdict: how clear the result is.
        auto_pipeline: the result of the search of [auto-pipeline]; None when nothing fits by the estimate.
    """

    repeated: tuple[Repeated, ...]
    n_repeats: int
    winner_index: int
    verdict: Verdict
    auto_pipeline: AutoPipelineAnswer | None

    @property
    def winner(self) -> Repeated:
        """The best of all."""
        return self.repeated[self.winner_index]

    def named(self, name: str) -> Repeated | None:
        """The configuration that was measured under a name; None when there is none."""
        return next((row for row in self.repeated if row.name == name), None)


class TrialSummary(NamedTuple):
    """One configuration with a finished trial.

    Attributes:
        number: of the trial.
        knobs: the configuration.
        samples_per_s: measured; 0 when it does not fit.
        estimated_samples_per_s: by the estimate; 0 when there was none.
        compute_cycles, transfer_cycles: the two parts of the measured period; 0 when it does not fit.
        makespan_cycles: of a step of training, simulated; None for inference.
        bubble_fraction: of a step of training, simulated; None for inference.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        reason: why it does not fit, or which constraint does not hold; empty when `fits`.
        compiled: whether stages were compiled whole; otherwise the estimate ruled it out.
        latency_s: from a micro-batch's entry to its result; 0 when it does not fit.
    """

    number: int
    knobs: Knobs
    samples_per_s: float = 0.0
    estimated_samples_per_s: float = 0.0
    compute_cycles: int = 0
    transfer_cycles: int = 0
    makespan_cycles: float | None = None
    bubble_fraction: float | None = None
    excess_bytes: int = 0
    reason: str = ""
    compiled: bool = False
    latency_s: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether it was measured, runs, and all constraints hold."""
        return self.samples_per_s > 0 and not self.constrained

    @property
    def constrained(self) -> bool:
        """Whether it runs, but a constraint does not hold."""
        return self.samples_per_s > 0 and bool(self.reason)


class Failure(NamedTuple):
    """A trial that failed.

    Attributes:
        number: of the trial.
        params: its parameters in the database.
        reason: why it failed.
    """

    number: int
    params: Mapping[str, object]
    reason: str


@dataclass(frozen=True, slots=True)
class Finalist:
    """One of the best configurations, with its stages.

    Attributes:
        trial: the configuration and its numbers.
        measured: the stages, or phases, compiled whole.
        estimate: the same stages by the estimate; None when there was no estimate.
    """

    trial: TrialSummary
    measured: Plan | PhasedPlan
    estimate: Plan | PhasedPlan | None

    @property
    def clock_hz(self) -> float:
        """The clock of its cycles, from its throughput: samples per second x cycles per sample."""
        trial = self.trial
        steps = trial.knobs.n_micro_batches if trial.knobs.training else 1
        host_cycles = steps * self.measured.host_cycles if isinstance(self.measured, Plan) else 0
        cycles = max(trial.makespan_cycles or self.measured.cost_cycles, host_cycles)
        return trial.samples_per_s * cycles / trial.knobs.n_samples


@dataclass(frozen=True, slots=True)
class CellSummary:
    """The trials of one cell of the grid: all knobs but the batch size.

    Attributes:
        trials: by ascending batch size, at least one.
        best: the best of them; None when none fits.
    """

    trials: tuple[TrialSummary, ...]
    best: TrialSummary | None

    @property
    def knobs(self) -> Knobs:
        """The cell, with the smallest batch size that was tried."""
        return self.trials[0].knobs

    @property
    def largest(self) -> TrialSummary | None:
        """The largest batch size that fits; None when none does."""
        return next((trial for trial in reversed(self.trials) if trial.fits), None)

    @property
    def first_unfit(self) -> TrialSummary | None:
        """The smallest batch size above `largest` that does not fit; None when no larger one was tried."""
        fitting_size = self.largest.knobs.batch_size if self.largest else 0
        larger = (trial for trial in self.trials if trial.knobs.batch_size > fitting_size)
        return next((trial for trial in larger if not trial.fits), None)

    @property
    def n_compiled(self) -> int:
        """The number of trials whose stages were compiled whole."""
        return sum(trial.compiled for trial in self.trials)


class Comparison(NamedTuple):
    """The winner against another configuration.

    Attributes:
        name: what the other one is, for example "runner-up".
        knobs: the other one; None when it is not known.
        speed: its throughput in samples/s, with its confidence interval where it was measured again; None likewise.
        gain_percent: how much better the winner is, in percent of the other; None likewise.
        note: what is compared, or why it cannot be.
        estimated: whether speed and gain are estimated, on both sides.
    """

    name: str
    knobs: Knobs | None
    speed: Interval | None
    gain_percent: float | None
    note: str
    estimated: bool = False


@dataclass(frozen=True)  # no slots: `cached_property` needs a dictionary
class StudySummary:
    """Everything that the reports of a study show.

    Attributes:
        study_name, storage: the study, and the URL of its storage without a password.
        objective: what the study optimises; the first of several objectives.
        attributes: stored attributes of the study: model, cluster, versions, the command.
        trials: every configuration with a finished trial, in the order of their trials.
        failures: trials that failed.
        finalists: the winner first, then the next best; none when nothing fits.
        verification: the winner measured again, in turns with others; None when it was not.
    """

    study_name: str
    storage: str
    objective: Objective
    attributes: Mapping[str, str]
    trials: tuple[TrialSummary, ...]
    failures: tuple[Failure, ...]
    finalists: tuple[Finalist, ...] = ()
    verification: Verification | None = None

    @property
    def winner(self) -> Finalist | None:
        """The best configuration; None when nothing fits."""
        return self.finalists[0] if self.finalists else None

    @property
    def of_several(self) -> bool:
        """Whether the study has further objectives, so that the winner is the best by the first of them only."""
        return "," in self.attributes.get("objective", "")

    def worth(self, trial: TrialSummary) -> float:
        """The value of the objective, more is better: samples/s, of all devices or of one, or 1 / latency."""
        if self.objective is Objective.LATENCY:
            return 1.0 / trial.latency_s
        per_ipu = self.objective is Objective.PER_IPU
        return trial.samples_per_s / (trial.knobs.n_devices if per_ipu else 1)

    def loss_percent(self, trial: TrialSummary) -> float:
        """How far a configuration is below the winner, in percent of the winner; 0 for the winner."""
        assert self.winner is not None
        return 100.0 * (1.0 - self.worth(trial) / self.worth(self.winner.trial))

    @cached_property
    def ranked(self) -> tuple[TrialSummary, ...]:
        """The configurations that fit, the winner first, then by descending worth; the oldest of equals first."""
        fitting = sorted((trial for trial in self.trials if trial.fits), key=self.worth, reverse=True)
        winner = self.winner.trial.number if self.winner else None
        return tuple(sorted(fitting, key=lambda trial: trial.number != winner))

    @cached_property
    def cells(self) -> tuple[CellSummary, ...]:
        """Every cell that was tried, by ascending knobs."""
        cells: dict[Knobs, list[TrialSummary]] = {}
        for trial in self.trials:
            cells.setdefault(replace(trial.knobs, batch_size=1), []).append(trial)
        ranks = {trial.number: rank for rank, trial in enumerate(self.ranked)}
        return tuple(_cell(cells[knobs], ranks) for knobs in sorted(cells, key=_grid_order))


def _grid_order(knobs: Knobs) -> tuple[object, ...]:
    shape = (str(knobs.strategy), knobs.n_ipu, knobs.replicas, knobs.memory_proportion)
    return (*shape, str(knobs.schedule), knobs.recompute, knobs.n_micro_batches)


def _cell(trials: list[TrialSummary], ranks: Mapping[int, int]) -> CellSummary:
    fitting = [trial for trial in trials if trial.fits]
    ascending = sorted(trials, key=lambda trial: trial.knobs.batch_size)
    return CellSummary(tuple(ascending), min(fitting, key=lambda trial: ranks[trial.number], default=None))
