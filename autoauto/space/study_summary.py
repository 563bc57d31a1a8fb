"""A study as its reports show it: `StudySummary`, with its trials, cells and `Verification`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from autoauto.records.costs.rate_curve import RateCurves
from autoauto.records.display import Displayed
from autoauto.records.interval import Interval, interval
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective, Objectives, objective_tuple, parse_objectives
from autoauto.space.space import SearchSpace
from autoauto.space.table import flat
from autoauto.space.trial import Cell, Trial

if TYPE_CHECKING:  # msgspec, which takes long to load
    from autoauto.space.engine_measurements import EngineMeasurements

NOTES = "notes"
"""The attribute of a study with what was assumed of its model and its numbers, as a list in JSON."""
CLOCK = "shown_clock_hz"
"""The attribute of a study with the clock of its cycles, where its numbers are made of seconds and shown as time."""
TRANSFERRED = "transferred"
"""The attribute of a study with the largest tensors that its winner transfers, as pairs of a name and bytes in JSON."""
ENGINE_MEASUREMENTS = "engine_measurements"
"""The attribute of a study with what was measured on engines, as `EngineMeasurements.text` writes it."""
USERS_FRONT = "users_front"
"""The attribute of a study that generates text with the front of its space, as `users_front_text` writes it."""
RATE_CURVES = "rate_curves"
"""The attribute of a study with the latencies of its winner over the rate of arrivals, as `RateCurves.text` writes."""
POOLS = "pools"
"""The attribute of a study with a line that says whether one pool of servers or two is better, and why."""
CHOICES = "choices"
"""The attribute of a study with what its winner's choices are worth, as `choices_text` writes it."""
SIZING = "sizing"
"""The attribute of a study of the fewest devices with how sure they are the fewest, a `Sizing` in JSON."""


class Sizing(NamedTuple):
    """Of the configurations on fewer devices than the best: why none of them is, and when they would do.

    Attributes:
        n_tried: of them; none does what must hold.
        n_ruled_out: by their forecasts.
        n_untried: of those that remain; without any, the best is proven.
        window_s: about the length of the windows of a trace; None without one.
        shares: of the windows of a trace, the devices that a window needs by itself, as whole replicas of the best, and
            the share of the windows that need so many; empty without a trace.
    """

    n_tried: int
    n_ruled_out: int
    n_untried: int
    window_s: float | None = None
    shares: tuple[tuple[int, float], ...] = ()


class UsersPoint(NamedTuple):
    """A configuration of the front, with the tokens/s of a GPU and those of a user."""

    knobs: Knobs
    of_gpu: float
    of_user: float


def users_front_text(front: Iterable[Trial]) -> str:
    """The configurations of a front and what they give, in JSON."""
    points = []
    for trial in front:
        if trial.tokens.tpot_s:
            points.append((trial.knobs.values, trial.device_samples_per_s, 1 / trial.tokens.tpot_s))
    return json.dumps(points)


class KnobChoice(NamedTuple):
    """Another value of one knob of the winner, by forecast.

    Attributes:
        knobs: the configuration, with what follows from the value; where none fits, the one that is nearest to it.
        samples_per_s: its throughput, estimated; 0 where none fits.
        ratio: what it is worth by the objective of the study, in units of the winner's forecast; None where none fits.
        is_searched: whether the space of the search had the value.
        p_worse: how likely it gives less than the winner, by the error of the ratio of two forecasts; None where that
            is not known.
        is_tie: whether the error of the ratio is too large to tell it from the winner.
    """

    name: str
    value: str | float
    knobs: Knobs
    samples_per_s: float
    ratio: float | None
    reason: str = ""
    is_searched: bool = True
    p_worse: float | None = None
    is_tie: bool = False


def choices_text(choices: Iterable[KnobChoice]) -> str:
    """Choices in JSON."""
    return json.dumps([choice._asdict() | {"knobs": choice.knobs.values} for choice in choices])


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
        samples_per_s: measured throughput of every turn; None where it failed or did not fit.
        scores: the search's objective of every turn, more is better; None as above.
        reason: why a turn has no measurement; empty when all have one.
    """

    name: str
    knobs: Knobs
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
    """The result of the search of [auto-pipeline], if all measurements equalled the estimates."""

    knobs: Knobs
    samples_per_s: float  # estimated
    gain_percent: float  # how much better the best of our search is, estimated too


class Alternative(NamedTuple):
    """The best of a simple use of the cluster, if all measurements equalled the estimates.

    Attributes:
        knobs: the configuration; where none fits, one of the smallest batch.
        samples_per_s: its throughput, estimated; 0 where none fits.
        at_most: whether the estimate only says that the throughput is no higher.
    """

    name: str
    knobs: Knobs
    samples_per_s: float
    reason: str = ""
    at_most: bool = False


SERVED = "the server's database"
"""How a database is called for readers who only have the server before it."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The best configurations of a search, measured again in turns.

    Attributes:
        repeated: the best of the search, then the next best where there are any, then, on real devices, one session
            unless it is one of them.
        n_repeats: the maximum number of turns; in each are measured once the best of the search, and those of the
            others that the turns before have not decided.
        winner_index: the position of the winner in `repeated`: 0 unless another is better, or as good and simpler.
        auto_pipeline: the result of the search of [auto-pipeline]; None until a report asks for it, or when nothing
            fits by the estimate.
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

    @property
    def n_turns(self) -> int:
        """The number of turns of the best so far: fewer than `n_repeats` where these decided."""
        return len(self.repeated[0].scores)


class Comparison(NamedTuple):
    """The winner against another configuration.

    Attributes:
        knobs: the other one; None when it is not known.
        speed: its throughput in samples/s, with its confidence interval where it was measured again; None likewise.
        gain_percent: how much better the winner is, in percent of the other; None likewise.
        estimated: whether speed and gain are estimated, on both sides.
        is_simple_use: whether the other one is a simple use of the cluster, for example one pipeline of all devices.
    """

    name: str
    knobs: Knobs | None
    speed: Interval | None
    gain_percent: float | None
    note: str
    estimated: bool = False
    is_simple_use: bool = False


class LeftOut(NamedTuple):
    """Numbers of trials of a study that its answer leaves out."""

    n_outside: int = 0  # outside of the space of its last search
    n_foreign: int = 0  # of another program, or with cells that were edited


NOTHING_LEFT_OUT = LeftOut()


@dataclass(frozen=True)  # no slots: `cached_property` needs a dictionary
class StudySummary(Displayed):
    """Everything that the reports of a study show.

    Attributes:
        study_name, storage: the study, and the URL of its storage without a password.
        attributes: stored attributes of the study: model, cluster, versions, the command.
        trials: every configuration of the space with a trial that did not fail, in the order of their trials, without
            plans.
        finalists: the winner first, then the next best, with their plans; none when nothing fits.
        verification: the winner measured again, in turns with others; None when it was not.
        space: the space of the study's last search; None when it is not known.
        alternatives: the simple uses of the cluster in that space; none where there are choices.
        front: of several objectives the configurations that no other dominates, best by the first on top.
    """

    study_name: str
    storage: str
    objective: Objective
    attributes: Mapping[str, str]
    trials: tuple[Trial, ...]
    failures: tuple[Trial, ...]
    finalists: tuple[Trial, ...] = ()
    verification: Verification | None = None
    space: SearchSpace | None = None
    alternatives: tuple[Alternative, ...] = ()
    front: tuple[Trial, ...] = ()
    left_out: LeftOut = NOTHING_LEFT_OUT

    @property
    def winner(self) -> Trial | None:
        """The best configuration; None when nothing fits."""
        return self.finalists[0] if self.finalists else None

    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions about the model and the numbers, one sentence each."""
        return tuple(json.loads(self.attributes.get(NOTES, "[]")))

    @property
    def users_front(self) -> tuple[UsersPoint, ...]:
        """The configurations of the space that none beats in what a GPU gives and a user gets, the fastest first."""
        points = json.loads(self.attributes.get(USERS_FRONT, "[]"))
        return tuple(UsersPoint(Knobs(**values), of_gpu, of_user) for values, of_gpu, of_user in points)

    @property
    def rate_curves(self) -> RateCurves | None:
        """Latencies of the winner over the rate of arrivals, by replicas; None where none were simulated."""
        text = self.attributes.get(RATE_CURVES)
        if not text or self.winner is None:
            return None
        curves = RateCurves.read(text)
        # The study may have been searched again since, with another winner.
        return curves if curves.knobs == self.winner.knobs.values else None

    @property
    def choices(self) -> tuple[KnobChoice, ...]:
        """Forecasts with other values of the winner's knobs; empty where forecasts of whole cells are not made."""
        entries = json.loads(self.attributes.get(CHOICES, "[]"))
        return tuple(KnobChoice(**{**entry, "knobs": Knobs(**entry["knobs"])}) for entry in entries)

    @property
    def sizing(self) -> Sizing | None:
        """Evidence that fewer devices do not suffice; None where a study looks for something else, or nothing fits."""
        text = self.attributes.get(SIZING)
        if text is None or self.winner is None:
            return None
        entry = json.loads(text)
        return Sizing(**entry | {"shares": tuple(map(tuple, entry["shares"]))})

    @cached_property
    def engine_measurements(self) -> EngineMeasurements | None:
        """The measurements on engines; None if there are none."""
        text = self.attributes.get(ENGINE_MEASUREMENTS)
        if text is None:
            return None
        from autoauto.space.engine_measurements import EngineMeasurements

        return EngineMeasurements.read(text)

    @property
    def transferred(self) -> tuple[tuple[str, int], ...]:
        """The largest tensors that the winner's stage with the longest transfer moves, with their bytes."""
        return tuple((name, n_bytes) for name, n_bytes in json.loads(self.attributes.get(TRANSFERRED, "[]")))

    @property
    def objectives(self) -> Objectives:
        """All objectives of the study."""
        return parse_objectives(self.attributes.get("objective", self.objective))

    @property
    def of_several(self) -> bool:
        """True if the study has several objectives; the winner is the best by the first of them."""
        return len(objective_tuple(self.objectives)) > 1

    def worth(self, trial: Trial) -> float:
        """A number in proportion to the score of the objective: samples/s, for example, or 1 / latency."""
        return self.objective.worth(trial)

    def loss_percent(self, trial: Trial) -> float:
        """Loss of a configuration against the winner, in percent of the winner; 0 for the winner."""
        assert self.winner is not None
        return 100.0 * (1.0 - self.worth(trial) / self.worth(self.winner))

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        """The configurations that fit, the winner first, then by descending worth; the oldest of equals first.

        Where engines were measured these come before those that were not: their numbers do not compare.
        """
        fitting = sorted((trial for trial in self.trials if trial.fits), key=self.worth, reverse=True)
        winner = self.winner.number if self.winner else None
        return tuple(sorted(fitting, key=lambda trial: (trial.number != winner, trial.origin is None)))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every cell that was tried, by ascending knobs."""
        ranks = {trial.number: rank for rank, trial in enumerate(self.ranked)}
        cells = cells_of(self.trials, lambda trial: -ranks[trial.number])

        def grid_order(cell: Cell) -> list[tuple[bool, object]]:
            # Numbers before words: whether stages recompute is one or the other.
            values = cell.knobs.mode.strategy, *flat(cell.knobs).values()
            return [(isinstance(value, str), value) for value in values]

        return tuple(sorted(cells, key=grid_order))


def cells_of(trials: Iterable[Trial], worth: Callable[[Trial], float]) -> list[Cell]:
    """The trials by cells of the grid, in the order of their first trials; `worth` is larger for the better of two."""
    by_cell: dict[Knobs, list[Trial]] = {}
    for trial in trials:
        by_cell.setdefault(replace(trial.knobs, batch_size=1), []).append(trial)
    cells = []
    for alike in by_cell.values():
        best = max((trial for trial in alike if trial.fits), key=worth, default=None)
        cells.append(Cell(tuple(sorted(alike, key=lambda trial: trial.knobs.batch_size)), best))
    return cells
