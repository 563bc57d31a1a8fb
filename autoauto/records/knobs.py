"""Configurations, and the space, objective and method of a search: `Knobs`, `SearchSpace`, `Objective`, `Method`."""

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

DEFAULT_PLANNING_PROPORTION = 0.85
"""Share of a device's memory that a planned stage may fill by plain sums: memoryProportion of [auto-pipeline]."""
DEFAULT_NOISE = 0.01  # relative noise of a throughput measured on real devices
MAX_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers
TRAINING_ORDERS = (Order.POPART, Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P, Order.ZB2P)
"""The orders in which a plan with one stage a device can train."""


class Strategy(StrEnum):
    """How a model runs that may be too large for the memory of one device."""

    PIPELINE = "pipeline"
    """Stages, one a device."""
    PHASED = "phased"
    """Phases, one after the other on every device, from streaming memory [popxl-phased]."""


class Method(StrEnum):
    """How a search chooses the configurations that it measures."""

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


class Objective(StrEnum):
    """What a search optimises."""

    THROUGHPUT = "throughput"
    """Samples per second."""
    PER_IPU = "per-ipu"
    """Device cycles of one sample, idle ones included: cycles x n_ipu / batch [auto-pipeline].

    It is also a proxy for energy: proportional to it when a device draws as much power idle as busy.
    """
    LATENCY = "latency"
    """Seconds from a micro-batch's entry to its result."""


Objectives = Objective | tuple[Objective, ...]
"""One objective of a search, or several of equal rank."""


def objective_tuple(objectives: Objectives) -> tuple[Objective, ...]:
    """The objectives, at least one.

    >>> objective_tuple(Objective.LATENCY)
    (<Objective.LATENCY: 'latency'>,)
    """
    return (objectives,) if isinstance(objectives, Objective) else objectives


def objectives_text(objectives: Objectives) -> str:
    """The objectives as a text that `parse_objectives` reads.

    >>> objectives_text((Objective.THROUGHPUT, Objective.LATENCY))
    'throughput,latency'
    """
    return ",".join(objective_tuple(objectives))


def parse_objectives(name: str) -> Objectives:
    """Read the names of objectives, separated by commas.

    Raises:
        BadInput: there is no such objective, or one is named twice.

    >>> parse_objectives("latency"), len(parse_objectives("throughput,per-ipu"))
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
        n_ipu: devices of one pipeline, of whichever target; for phases the number of devices that run the same phases
            on different data.
        memory_proportion: Poplar's `availableMemoryProportion`, a bound on temporary memory [poplar-docs]; on the host
            the share of a device's memory that may be used.
        batch_size: samples in one micro-batch.
        schedule: the order of forward and backward passes in training; `Order.INFERENCE` means no training, and phases
            train in `Order.SEQUENTIAL`.
        recompute: whether a stage stashes only its inputs for the backward pass and computes the rest again.
        n_micro_batches: micro-batches of one step of training, after which weights change; for phases the micro-batches
            that go through a phase before the next phase begins; 1 for inference by a pipeline.
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
        if not 1 <= self.batch_size <= MAX_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MAX_SAMPLES}, got {self.batch_size}")
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
        if self.n_micro_batches < self._min_micro_batches:
            raise BadInput(
                f"{self.schedule} on {self.n_ipu} devices needs n_micro_batches of at least "
                f"{self._min_micro_batches}, got {self.n_micro_batches}"
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
        """The values to which a constraint may refer, by `KNOB_NAMES`."""
        return {name: float(getattr(self, name)) for name in KNOB_NAMES}

    @property
    def _min_micro_batches(self) -> int:
        """The fewest micro-batches of a step; with PopART some must lie between fill and flush [popart-pipelining]."""
        return 2 * self.n_ipu - 1 if self.schedule is Order.POPART else 1


_INTEGERS: tuple[str, Callable[[Any], Any]] = "whole numbers", index
_READERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "n_ipu": _INTEGERS,
    "memory_proportion": ("numbers", float),
    "batch_size": _INTEGERS,
    "schedule": (f"the words {', '.join(Order)}", Order),
    "recompute": ("False and True", lambda value: bool(index(value))),
    "n_micro_batches": _INTEGERS,
    "strategy": (f"the words {', '.join(Strategy)}", Strategy),
    "steps": _INTEGERS,
    "replicas": _INTEGERS,
    "constraints": ("expressions", lambda given: given if isinstance(given, Constraint) else Constraint(given)),
}
"""For every field of `SearchSpace`: the kind of its values, for error messages, and a function that reads a value."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over all knobs but the batch size; every cell of the grid has all batch sizes, ascending.

    Configurations that violate one of the `constraints`, which name knobs only, are not part of the space.

    Cells of phases have no `schedule`, and `steps` are their values of `Knobs.n_micro_batches`.
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
        for name, (kind, read) in _READERS.items():
            given = getattr(self, name)
            try:
                object.__setattr__(self, name, tuple(map(read, given)))
            except BadInput:
                raise
            except (TypeError, ValueError):
                raise BadInput(f"{name} takes a tuple of {kind}, got {reprlib.repr(given)}") from None
        for constraint in self.constraints:
            if not constraint.over_knobs:
                raise BadInput(
                    f"a constraint of a space names knobs only, got {constraint.text!r}; give it to search or load_flow"
                )
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
            list(self._grid(batch_size))  # `Knobs` raises BadInput for a configuration that cannot exist
        if self.constraints and not self.cells:
            texts = ", ".join(constraint.text for constraint in self.constraints)
            raise BadInput(f"no configuration of the space meets {texts}; try a wider space")

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule != (Order.INFERENCE,)

    @property
    def n_configurations(self) -> int:
        """The number of configurations in the space."""
        return sum(map(len, self.cells))

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        cells = (list(filter(self._allows, cell)) for cell in zip(*map(self._grid, self.batch_size), strict=True))
        return [cell for cell in cells if cell]

    def __contains__(self, knobs: Knobs) -> bool:
        return knobs.batch_size in self.batch_size and self._allows(knobs) and knobs in self._grid(knobs.batch_size)

    def _allows(self, knobs: Knobs) -> bool:
        return all(constraint.violation(knobs.numbers) <= 0 for constraint in self.constraints)

    def _grid(self, batch_size: int) -> Iterator[Knobs]:
        """The configuration of every cell at one batch size."""
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
