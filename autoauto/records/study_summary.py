"""The best of a search measured again beside others: `Repeated`, `Expected`, `Verification`."""

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
        error: half the width of the 95 % confidence interval around it; None for one measurement, which tells none.
    """

    mean: float
    error: float | None


def interval(values: Sequence[float]) -> Interval:
    """The mean of values that scatter normally, and how far it may be from the true one (Student, 1908).

    >>> interval([10.0, 11.0, 12.0])  # 4.303 x 1 / sqrt(3)
    Interval(mean=11.0, error=2.484...)
    """
    if len(values) < 2:
        return Interval(mean(values), None)
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1.0 + CONFIDENCE) / 2.0))
    return Interval(mean(values), quantile * stdev(values) / len(values) ** 0.5)


class Verdict(StrEnum):
    """What turns tell of two configurations."""

    CLEAR = "clear"
    """One is better, or there was nothing to compare."""
    TIE = "tie"
    """They are the same as far as the turns tell: the simpler one wins."""
    UNSURE = "unsure"
    """The turns scatter too much to tell: the better mean wins."""


class Repeated(NamedTuple):
    """One configuration, and what came of it turn by turn.

    Attributes:
        name: what it is, for example "runner-up".
        knobs: the configuration.
        what: how it ran, where the knobs do not tell it.
        samples_per_s: measured throughput of every turn; None where it failed or did not fit.
        scores: what the search's objective makes of it, more is better; None likewise.
        reason: why some are missing; empty when none is.
    """

    name: str
    knobs: Knobs
    what: str = ""
    samples_per_s: tuple[float | None, ...] = ()
    scores: tuple[float | None, ...] = ()
    reason: str = ""

    @property
    def speed(self) -> Interval | None:
        """Throughput over all turns; None when no turn told it."""
        return _interval(self.samples_per_s)

    @property
    def score(self) -> Interval | None:
        """The objective over all turns; None when no turn told it."""
        return _interval(self.scores)


def _interval(values: Sequence[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return interval(known) if known else None


class Expected(NamedTuple):
    """The configuration that the seed's search would end on if all came out as estimated.

    Attributes:
        knobs: the configuration.
        samples_per_s: its throughput, estimated.
        gain_percent: how much more the best of the search is worth, estimated too.
    """

    knobs: Knobs
    samples_per_s: float
    gain_percent: float


@dataclass(frozen=True, slots=True)
class Verification:
    """What measuring again told.

    Attributes:
        repeated: the best of the search, then the runner-up where there is one, then the default configuration unless
            it is one of them.
        n_repeats: turns; in each all are measured once.
        settled: which of `repeated` is the winner: 0, or 1 when the runner-up is better, or as good and simpler.
        verdict: how that was found.
        seed: the seed's answer; None when nothing fits by the estimate.
    """

    repeated: tuple[Repeated, ...]
    n_repeats: int
    settled: int
    verdict: Verdict
    seed: Expected | None

    @property
    def winner(self) -> Repeated:
        """The best of all."""
        return self.repeated[self.settled]

    def named(self, name: str) -> Repeated | None:
        """The configuration that was measured under a name."""
        return next((one for one in self.repeated if one.name == name), None)


class Tried(NamedTuple):
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
        reason: why it does not fit, or which constraint does not hold; empty when it runs as it should.
        compiled: whether stages were compiled whole; the estimate ruled it out otherwise.
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
        """Whether it was measured and runs, and all constraints hold."""
        return self.samples_per_s > 0 and not self.constrained

    @property
    def constrained(self) -> bool:
        """Whether it runs, but a constraint does not hold."""
        return self.samples_per_s > 0 and bool(self.reason)


class Failure(NamedTuple):
    """A trial that ended without an answer.

    Attributes:
        number: of the trial.
        params: its parameters, as the database has them.
        reason: what went wrong.
    """

    number: int
    params: Mapping[str, object]
    reason: str


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the best configurations, with its stages.

    Attributes:
        tried: the configuration and its numbers.
        measured: the stages, or phases, compiled whole.
        estimate: the same as estimated; None when there was no estimate.
    """

    tried: Tried
    measured: Plan | PhasedPlan
    estimate: Plan | PhasedPlan | None

    @property
    def clock_hz(self) -> float:
        """The clock that its cycles count: throughput is samples over cycles at this rate."""
        tried = self.tried
        steps = tried.knobs.n_micro_batches if tried.knobs.training else 1
        host_cycles = steps * self.measured.host_cycles if isinstance(self.measured, Plan) else 0
        cycles = max(tried.makespan_cycles or self.measured.cost_cycles, host_cycles)
        return tried.samples_per_s * cycles / tried.knobs.n_samples


@dataclass(frozen=True, slots=True)
class CellFindings:
    """What the trials tell of one cell of the grid: all knobs but the batch size.

    Attributes:
        tried: by ascending batch size, at least one.
        best: the best of them; None when none fits.
    """

    tried: tuple[Tried, ...]
    best: Tried | None

    @property
    def knobs(self) -> Knobs:
        """The cell, with the smallest batch size that was tried."""
        return self.tried[0].knobs

    @property
    def largest(self) -> Tried | None:
        """The largest batch size that fits; None when none does."""
        return next((tried for tried in reversed(self.tried) if tried.fits), None)

    @property
    def first_unfit(self) -> Tried | None:
        """The smallest batch size above `largest` that does not fit; None when no larger one was tried."""
        least = self.largest.knobs.batch_size if self.largest else 0
        return next((tried for tried in self.tried if not tried.fits and tried.knobs.batch_size > least), None)

    @property
    def n_compiled(self) -> int:
        """How many of them were compiled whole."""
        return sum(tried.compiled for tried in self.tried)


class Comparison(NamedTuple):
    """The winner against another configuration.

    Attributes:
        name: what the other one is, for example "runner-up".
        knobs: the other one; None when nothing tells it.
        speed: its throughput in samples/s, with its confidence interval where it was measured again; None likewise.
        gain_percent: how much more the winner is worth, in percent of the other; None likewise.
        note: what is compared, or why it cannot be told.
        estimated: whether speed and gain are estimated, on both sides.
    """

    name: str
    knobs: Knobs | None
    speed: Interval | None
    gain_percent: float | None
    note: str
    estimated: bool = False


@dataclass(frozen=True)  # no slots: what is derived from all trials is kept
class Findings:
    """All that a study's reports tell.

    Attributes:
        study_name, storage: where it is; the storage's URL without its password.
        objective: what is best; of several the first.
        attributes: what the study keeps about itself: model, cluster, versions, the command.
        tried: every configuration with a finished trial, in the order of their trials.
        failures: trials that ended without an answer.
        contenders: the winner first, then the next best; none when nothing fits.
        verification: the winner measured again beside others; None when it was not.
    """

    study_name: str
    storage: str
    objective: Objective
    attributes: Mapping[str, str]
    tried: tuple[Tried, ...]
    failures: tuple[Failure, ...]
    contenders: tuple[Contender, ...] = ()
    verification: Verification | None = None

    @property
    def winner(self) -> Contender | None:
        """The best configuration; None when nothing fits."""
        return self.contenders[0] if self.contenders else None

    @property
    def of_several(self) -> bool:
        """Whether the study has further objectives, so that the winner is the best by the first of them only."""
        return "," in self.attributes.get("objective", "")

    def worth(self, tried: Tried) -> float:
        """What the objective compares, more is better: samples/s, of all devices or of one, or 1 / latency."""
        if self.objective is Objective.LATENCY:
            return 1.0 / tried.latency_s
        per_ipu = self.objective is Objective.PER_IPU
        return tried.samples_per_s / (tried.knobs.n_devices if per_ipu else 1)

    def loss_percent(self, tried: Tried) -> float:
        """How far a configuration is below the winner, in percent of it; 0 for the winner."""
        assert self.winner is not None
        return 100.0 * (1.0 - self.worth(tried) / self.worth(self.winner.tried))

    @cached_property
    def ranked(self) -> tuple[Tried, ...]:
        """The configurations that fit, best first, the oldest of equals first; the winner before those it ties with."""
        fitting = sorted((tried for tried in self.tried if tried.fits), key=self.worth, reverse=True)
        winner = self.winner.tried.number if self.winner else None
        return tuple(sorted(fitting, key=lambda tried: tried.number != winner))

    @cached_property
    def cells(self) -> tuple[CellFindings, ...]:
        """Every cell that was tried, by ascending knobs."""
        cells: dict[Knobs, list[Tried]] = {}
        for tried in self.tried:
            cells.setdefault(replace(tried.knobs, batch_size=1), []).append(tried)
        places = {tried.number: place for place, tried in enumerate(self.ranked)}
        return tuple(_cell(cells[knobs], places) for knobs in sorted(cells, key=_grid_order))


def _grid_order(knobs: Knobs) -> tuple[object, ...]:
    shape = (str(knobs.strategy), knobs.n_ipu, knobs.replicas, knobs.memory_proportion)
    return (*shape, str(knobs.schedule), knobs.recompute, knobs.n_micro_batches)


def _cell(found: list[Tried], places: Mapping[int, int]) -> CellFindings:
    fitting = [tried for tried in found if tried.fits]
    ascending = sorted(found, key=lambda tried: tried.knobs.batch_size)
    return CellFindings(tuple(ascending), min(fitting, key=lambda tried: places[tried.number], default=None))
