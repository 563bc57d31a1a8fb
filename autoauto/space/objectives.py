"""The objectives of searches, `Objective`, and the methods by which they choose configurations, `Method`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, Literal, NamedTuple, Self

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.space.numbers import MAX_JOULES, USD_PER_MILLION
from autoauto.space.trial import Trial

MAX_MEASURED = 100
"""Configurations of a search that are measured on engines at most, and choices of its answer."""


def _device_cycles(trial: Trial) -> float:
    """`cycles * n_ipu / batch`, the cost of [auto-pipeline, max_throughput].

    Auto-pipeline truncates its cost to an integer; here it stays a fraction, so that close configurations still differ.
    A step of training takes its makespan and trains all its micro-batches.
    """
    if trial.tokens.tokens_per_s:  # which no plan says: prompts are computed between the tokens of answers
        # A cycle of what serves text is a nanosecond.
        return 1e9 * trial.knobs.n_devices / trial.tokens.tokens_per_s
    cycles = trial.step.makespan_cycles or trial.plan.mean_cost_cycles
    return cycles * trial.knobs.n_devices / trial.knobs.n_samples


class Method(StrEnum):
    """A method by which a search chooses the configurations that it measures."""

    EXHAUSTIVE = "exhaustive"
    """Every configuration."""
    GRID_BISECT = "grid-bisect"
    """Every cell of the grid, bisected over the batch size [auto-pipeline]."""
    GUIDED = "guided"
    """The best configuration by the estimate, until no other could be better."""
    TPE = "tpe"
    """Optuna's tree-structured Parzen estimator."""
    RANDOM = "random"
    """Configurations at random."""


class _Facts(NamedTuple):
    """The attributes of an objective, and its name; see `Objective`."""

    name: str
    help: str
    metric: str
    unit: str
    maximise: bool
    of: Callable[[Trial], float]
    number: str = ""
    worth: Callable[[Trial], float] | None = None
    per_device: bool = False
    quantity: str = ""


class Objective(StrEnum):
    """The quantity that a search optimises. A new objective is one more member, and the number of a trial it reads.

    What follows from the throughput is computed by `of`: then it is that of the mean of several measurements, too.

    Attributes:
        metric, unit: its value in words, and the unit of that.
        of: the value of a trial that runs, with its plans.
        number: the number of a trial that it is, whose column tables have and whose axis charts have; empty if none is.
        per_device: whether every device counts, so that one of them is what a search compares with.
    """

    help: str
    metric: str
    unit: str
    maximise: bool
    of: Callable[[Trial], float]
    number: str
    per_device: bool
    _worth: Callable[[Trial], float] | None  # in proportion to the score, of a trial that may have no plans
    _quantity: str  # the field of `Device` that it reads, which all devices of a cluster must have; empty if none

    def __new__(cls, *facts: Any) -> Self:
        """A member, whose value is its name."""
        its = _Facts(*facts)
        member = str.__new__(cls, its.name)
        member._value_, member.help, member.metric, member.unit = its.name, its.help, its.metric, its.unit
        member.maximise, member.of, member.number, member.per_device = its.maximise, its.of, its.number, its.per_device
        member._worth, member._quantity = its.worth, its.quantity
        return member

    THROUGHPUT = _Facts(
        "throughput",
        "samples per second",
        metric="throughput",
        unit="samples/s",
        maximise=True,
        of=attrgetter("samples_per_s"),
        number="samples_per_s",
    )
    """Samples per second."""
    PER_DEVICE = _Facts(
        "per-device",
        "cycles x n_ipu / batch size, which Graphcore's auto_pipeline minimises (also a proxy for energy)",
        metric="cost",
        unit="cycles x n_ipu / sample",
        maximise=False,
        of=_device_cycles,
        worth=attrgetter("device_samples_per_s"),
        per_device=True,
    )
    """Device cycles of one sample, idle ones included: cycles x n_ipu / batch [auto-pipeline].

    It is also a proxy for energy: proportional to it when a device draws as much power idle as busy.
    """
    LATENCY = _Facts(
        "latency",
        "seconds from a micro-batch's entry to its result",
        metric="latency",
        unit="s",
        maximise=False,
        of=attrgetter("latency_s"),
        number="latency_s",
    )
    """Seconds from a micro-batch's entry to its result."""
    COST = _Facts(
        "cost",
        "US dollars of a million tokens of answers, or samples, by --price or the price_per_hour of a cluster file",
        metric="price",
        unit="USD / million",
        maximise=False,
        of=lambda trial: trial.result.derived[USD_PER_MILLION],
        worth=attrgetter("device_samples_per_s"),
        per_device=True,
        quantity="price_per_hour",
    )
    """US dollars of a million samples, of text of tokens of answers, of the devices that a configuration uses."""
    ENERGY = _Facts(
        "energy",
        "joules of a token of an answer, or of a sample, at most: if every device draws its power limit",
        metric="energy at most",
        unit="J / sample",
        maximise=False,
        of=lambda trial: trial.result.derived[MAX_JOULES],
        worth=attrgetter("device_samples_per_s"),
        per_device=True,
        quantity="power_limit_w",
    )
    """An upper bound: what devices draw between idle and their limits was not measured, so it is not modelled."""
    DEVICES = _Facts(
        "devices",
        "devices that a configuration uses: the fewest with which what must hold does",
        metric="number used",
        unit="devices",
        maximise=False,
        of=lambda trial: float(trial.knobs.n_devices),
    )
    """The fewest devices; a constraint, or a rate of requests (`--for-rate`), says what they must do."""

    def check(self, cluster: Cluster) -> None:
        """Raise BadInput for devices without the quantity that it reads, and unlike ones where it counts them."""
        if self is Objective.DEVICES and cluster.kinds:
            raise BadInput(
                f"--objective {self} counts devices of one kind, {cluster.name} has several; compare every kind as a "
                "cluster of its own (`autoauto rank`)"
            )
        quantity = self._quantity
        if not quantity:
            return
        cluster.check_quantity(quantity, f"--objective {self}")
        if cluster.of_each(quantity) is None:
            raise BadInput(
                f"--objective {self} needs devices of one {quantity}, {cluster.name} has kinds that differ; search "
                "every kind as a cluster of its own (`autoauto rank`)"
            )

    @property
    def metric_name(self) -> str:
        """The name of the value with its unit, as axes and column heads show it."""
        return f"{self.metric} ({self.unit})"

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """Optuna's word for the direction: "maximize" where more is better."""
        return "maximize" if self.maximise else "minimize"

    @property
    def follows_throughput(self) -> bool:
        """True if a bound of a configuration's throughput is a bound of its value, too."""
        return self.is_throughput or self._worth is not None

    @property
    def is_throughput(self) -> bool:
        """True if its scores are samples/s, as are bounds that a search knows sooner than forecasts."""
        return self.number == "samples_per_s"

    def value_of(self, score: float) -> float:
        """The value that has a score."""
        return score if self.maximise else 1.0 / score

    def score(self, value: float) -> float:
        """A value as a number that is larger when it is better, in proportion: half the cost is twice the score.

        >>> Objective.THROUGHPUT.score(50.0), Objective.PER_DEVICE.score(50.0)
        (50.0, 0.02)
        """
        return value if self.maximise else 1.0 / value

    def score_of(self, trial: Trial) -> float:
        """The score of a trial that runs, with its plans."""
        return self.score(self.of(trial))

    def worth(self, trial: Trial) -> float:
        """A number in proportion to the score of a trial, which may have no plans."""
        return self.score_of(trial) if self._worth is None else self._worth(trial)


Objectives = Objective | tuple[Objective, ...]
"""One objective of a search, or several of equal rank."""


def objective_tuple(objectives: Objectives) -> tuple[Objective, ...]:
    """The objectives, at least one.

    >>> objective_tuple(Objective.LATENCY)
    (<Objective.LATENCY: 'latency'>,)
    """
    return (objectives,) if isinstance(objectives, Objective) else objectives


def objectives_text(objectives: Objectives) -> str:
    """The objectives as a text that `parse_objectives` reads."""
    return ",".join(objective_tuple(objectives))


def parse_objectives(name: str) -> Objectives:
    """Read the names of objectives, separated by commas; a BadInput if there is no such one, or one is named twice."""
    words = name.split(",") if isinstance(name, str) else []
    if not words or not set(words) <= set(Objective) or len(set(words)) < len(words):
        raise BadInput(f"objectives are one or more of {', '.join(Objective)} with commas, got {name!r}")
    return _NAMED[words[0]] if len(words) == 1 else tuple(_NAMED[word] for word in words)


def values_of(objectives: Objectives, trial: Trial) -> tuple[float, ...]:
    """The value of every objective."""
    return tuple(objective.of(trial) for objective in objective_tuple(objectives))


def shown_values(objectives: Objectives, trial: Trial) -> tuple[float | None, ...]:
    """The value of every objective as far as a trial has it: its number, what a study stores, or that of its plans."""
    several = objective_tuple(objectives)
    known: Sequence[float | None] = trial.values
    if not known and trial.measured is not None:
        known = values_of(several, trial)
    shown: list[float | None] = []
    for objective, value in zip(several, known or [None] * len(several), strict=True):
        number = getattr(trial, objective.number) if objective.number else None
        shown.append(number or value)
    return tuple(shown)


def scores_of(objectives: Objectives, values: Sequence[float]) -> tuple[float, ...]:
    """The score of every objective."""
    return tuple(objective.score(value) for objective, value in zip(objective_tuple(objectives), values, strict=True))


_NAMED = {str(objective): objective for objective in Objective}
