"""What is searched, what for, and what came of it: `Knobs`, `SearchSpace`, `Objective`, `Outcome`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product
from operator import index
from typing import Any

from autoauto.records.constraint import KNOB_NAMES, Constraint
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order

DEFAULT_PLANNING_PROPORTION = 0.85  # the seed's memoryProportion (seed 001, "Minimal example")
DEFAULT_NOISE = 0.01  # share of a throughput on real devices that is chance
MOST_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers
TRAINING_ORDERS = (Order.POPART, Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P, Order.ZB2P)
"""The orders in which a plan of one stage a device can train."""


class Strategy(StrEnum):
    """How a model that one device may not hold runs on several, or on one after all."""

    PIPELINE = "pipeline"
    """Stages, one a device."""
    PHASED = "phased"
    """Phases, one after the other on every device, from streaming memory (seed 002)."""


class Method(StrEnum):
    """How a search chooses what to try."""

    EXHAUSTIVE = "exhaustive"
    """Every configuration."""
    GRID_BISECT = "grid-bisect"
    """Every cell of the grid, bisected over the batch size (seed 001)."""
    GUIDED = "guided"
    """What the estimate finds best, as long as anything could be better."""
    TPE = "tpe"
    """Optuna's tree-structured Parzen estimator."""
    RANDOM = "random"
    """Configurations at random."""


class Objective(StrEnum):
    """What a search makes best."""

    THROUGHPUT = "throughput"
    """Samples per second."""
    PER_IPU = "per-ipu"
    """The seed's cycles x n_ipu / batch: what a sample takes of all devices together, waiting included.

    It is also the proxy for energy: where a device draws as much power idle as busy, energy goes with it.
    """
    LATENCY = "latency"
    """Seconds from a micro-batch's entry to its result."""


Aim = Objective | tuple[Objective, ...]
"""What a search is for: one objective, or several of equal rank."""


def objectives_of(aim: Aim) -> tuple[Objective, ...]:
    """The objectives, at least one.

    >>> objectives_of(Objective.LATENCY)
    (<Objective.LATENCY: 'latency'>,)
    """
    return (aim,) if isinstance(aim, Objective) else aim


def aim_name(aim: Aim) -> str:
    """The objectives in one word, as `aim_of` reads it.

    >>> aim_name((Objective.THROUGHPUT, Objective.LATENCY))
    'throughput,latency'
    """
    return ",".join(objectives_of(aim))


def aim_of(name: str) -> Aim:
    """The objectives that are named with commas.

    Raises:
        BadInput: there is no such objective, or one is named twice.

    >>> aim_of("latency"), len(aim_of("throughput,per-ipu"))
    (<Objective.LATENCY: 'latency'>, 2)
    """
    words = name.split(",") if isinstance(name, str) else []
    if not words or not set(words) <= set(Objective) or len(set(words)) < len(words):
        raise BadInput(f"objectives are one or more of {', '.join(Objective)} with commas, got {name!r}")
    return Objective(words[0]) if len(words) == 1 else tuple(map(Objective, words))


@dataclass(frozen=True, slots=True)
class Knobs:
    """One configuration.

    Attributes:
        n_ipu: devices in the pipeline; in phases the devices that do the same on other data.
        memory_proportion: Poplar's available memory proportion, a bound on temporary memory (the seed's `mem_portion`).
        batch_size: samples in one micro-batch.
        schedule: the order in which the devices train, or inference; phases train sequentially.
        recompute: whether a stage keeps only its inputs for the backward pass and computes the rest again.
        n_micro_batches: how many make one step of training, after which weights change, or go through a phase before
            the next begins; 1 for inference by a pipeline.
        strategy: pipeline or phases.
        replicas: pipelines of `n_ipu` devices each, side by side, each with micro-batches of its own.
    """

    n_ipu: int
    memory_proportion: float
    batch_size: int
    schedule: Order = Order.INFERENCE
    recompute: bool = False
    n_micro_batches: int = 1
    strategy: Strategy = Strategy.PIPELINE
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.n_ipu < 1:
            raise BadInput(f"n_ipu must be at least 1, got {self.n_ipu}")
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not 1 <= self.batch_size <= MOST_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MOST_SAMPLES}, got {self.batch_size}")
        if self.replicas < 1:
            raise BadInput(f"replicas must be at least 1, got {self.replicas}")
        if self.replicas > 1 and (self.training or self.strategy is Strategy.PHASED):
            raise BadInput("replicas are pipelines for inference; try --mode inference --strategy pipeline")
        if self.strategy is Strategy.PHASED:
            return
        if self.training and self.schedule not in TRAINING_ORDERS:
            known = ", ".join(TRAINING_ORDERS)
            raise BadInput(f"a plan of one stage a device trains as one of {known}, got schedule {self.schedule}")
        if not self.training and (self.recompute or self.n_micro_batches != 1):
            raise BadInput("recompute and n_micro_batches are for training; try --mode training")
        if self.n_micro_batches < self._least_micro_batches:
            raise BadInput(
                f"{self.schedule} on {self.n_ipu} devices needs n_micro_batches of at least "
                f"{self._least_micro_batches}, got {self.n_micro_batches}"
            )

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule is not Order.INFERENCE

    @property
    def n_devices(self) -> int:
        """Devices of all replicas."""
        return self.n_ipu * self.replicas

    @property
    def n_samples(self) -> int:
        """Samples of one step of training, of all phases, or of one micro-batch of inference by every pipeline."""
        replicas = self.n_ipu if self.strategy is Strategy.PHASED else self.replicas
        return self.batch_size * self.n_micro_batches * replicas

    @property
    def numbers(self) -> dict[str, float]:
        """What a constraint may say of it, by `KNOB_NAMES`."""
        return {name: float(getattr(self, name)) for name in KNOB_NAMES}

    @property
    def _least_micro_batches(self) -> int:
        """PopART's main phase must not be empty (seed 000)."""
        return 2 * self.n_ipu - 1 if self.schedule is Order.POPART else 1


_WHOLE: tuple[str, Callable[[Any], Any]] = "whole numbers", index
_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "n_ipu": _WHOLE,
    "memory_proportion": ("numbers", float),
    "batch_size": _WHOLE,
    "schedule": (f"the words {', '.join(Order)}", Order),
    "recompute": ("False and True", lambda value: bool(index(value))),
    "n_micro_batches": _WHOLE,
    "strategy": (f"the words {', '.join(Strategy)}", Strategy),
    "steps": _WHOLE,
    "replicas": _WHOLE,
    "constraints": ("expressions", lambda told: told if isinstance(told, Constraint) else Constraint(told)),
}
"""What a space holds of everything, in words, and what reads one: a list, a range or an array does for a tuple."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over all knobs but the batch size; in every cell of it all batch sizes, ascending.

    Where `constraints`, which speak of knobs alone, do not hold, there is no configuration.

    Phases have no `schedule`; what goes through a phase before the next begins are `steps` micro-batches.
    """

    n_ipu: tuple[int, ...] = (1, 2, 4)
    memory_proportion: tuple[float, ...] = (0.3, 0.6, 1.0)
    batch_size: tuple[int, ...] = tuple(range(1, 129))
    schedule: tuple[Order, ...] = (Order.INFERENCE,)
    recompute: tuple[bool, ...] = (False,)
    n_micro_batches: tuple[int, ...] = (1,)
    strategy: tuple[Strategy, ...] = (Strategy.PIPELINE,)
    steps: tuple[int, ...] = (16,)
    replicas: tuple[int, ...] = (1,)
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        for name, (kind, read) in _READ.items():
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, tuple(map(read, given)))
            except BadInput:
                raise
            except (TypeError, ValueError):
                raise BadInput(f"{name} takes a tuple of {kind}, got {reprlib.repr(given)}") from None
        for constraint in self.constraints:
            if not constraint.over_knobs:
                raise BadInput(f"a space is bound over knobs, got {constraint.text!r}; give it to search or load_flow")
        for name in (field.name for field in fields(self) if field.name != "constraints"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {', '.join(map(str, values))}")
        if min(self.steps) < 1:
            raise BadInput(f"steps must be at least 1, got {min(self.steps)}")
        if list(self.batch_size) != sorted(self.batch_size):
            raise BadInput(f"batch_size must ascend, got {list(self.batch_size)}")
        if self.training and Order.INFERENCE in self.schedule:
            raise BadInput("a search is for training or for inference, got both among its schedules")
        for batch_size in (self.batch_size[0], self.batch_size[-1]):
            list(self._grid(batch_size))
        if self.constraints and not self.cells:
            told = ", ".join(constraint.text for constraint in self.constraints)
            raise BadInput(f"no configuration of the space keeps to {told}; try a wider space")

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule != (Order.INFERENCE,)

    @property
    def n_configurations(self) -> int:
        """How many configurations the space holds."""
        return sum(map(len, self.cells))

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        cells = (list(filter(self._allows, cell)) for cell in zip(*map(self._grid, self.batch_size), strict=True))
        return [cell for cell in cells if cell]

    def __contains__(self, knobs: Knobs) -> bool:
        return knobs.batch_size in self.batch_size and self._allows(knobs) and knobs in self._grid(knobs.batch_size)

    def _allows(self, knobs: Knobs) -> bool:
        return all(constraint.miss(knobs.numbers) <= 0 for constraint in self.constraints)

    def _grid(self, batch_size: int) -> Iterator[Knobs]:
        """A configuration of every cell."""
        if Strategy.PIPELINE in self.strategy:
            rest = (self.schedule, self.recompute, self.n_micro_batches, self.replicas)
            pipelines = product(self.n_ipu, self.memory_proportion, *rest)
            for n_ipu, proportion, schedule, recompute, n, replicas in pipelines:
                yield Knobs(n_ipu, proportion, batch_size, schedule, recompute, n, replicas=replicas)
        if Strategy.PHASED in self.strategy:
            order = Order.SEQUENTIAL if self.training else Order.INFERENCE
            grid = product(self.n_ipu, self.memory_proportion, self.recompute, self.steps)
            for n_ipu, proportion, recompute, n in grid:
                yield Knobs(n_ipu, proportion, batch_size, order, recompute, n, Strategy.PHASED)
