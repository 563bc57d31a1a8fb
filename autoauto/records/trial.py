"""What is searched and what came of it: `Knobs`, `SearchSpace`, `Outcome`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.phased import PhasedPlan
from autoauto.records.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.timeline import Timeline

DEFAULT_PLANNING_PROPORTION = 0.85  # the seed's memoryProportion (seed 001, "Minimal example")
MOST_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers
TRAINING_ORDERS = (Order.POPART, Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P, Order.ZB2P)
"""The orders in which a plan of one stage a device can train."""


class Strategy(StrEnum):
    """How a model that one device may not hold runs on several, or on one after all."""

    PIPELINE = "pipeline"
    """Stages, one a device."""
    PHASED = "phased"
    """Phases, one after the other on every device, from streaming memory (seed 002)."""


class Objective(StrEnum):
    """What a search makes best."""

    THROUGHPUT = "throughput"
    PER_IPU = "per-ipu"


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
    """

    n_ipu: int
    memory_proportion: float
    batch_size: int
    schedule: Order = Order.INFERENCE
    recompute: bool = False
    n_micro_batches: int = 1
    strategy: Strategy = Strategy.PIPELINE

    def __post_init__(self) -> None:
        if self.n_ipu < 1:
            raise BadInput(f"n_ipu must be at least 1, got {self.n_ipu}")
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not 1 <= self.batch_size <= MOST_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MOST_SAMPLES}, got {self.batch_size}")
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
    def n_samples(self) -> int:
        """Samples of one step of training, of all phases, or of one micro-batch of inference by a pipeline."""
        replicas = self.n_ipu if self.strategy is Strategy.PHASED else 1
        return self.batch_size * self.n_micro_batches * replicas

    @property
    def _least_micro_batches(self) -> int:
        """PopART's main phase must not be empty (seed 000)."""
        return 2 * self.n_ipu - 1 if self.schedule is Order.POPART else 1


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over all knobs but the batch size; in every cell of it all batch sizes, ascending.

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

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {', '.join(map(str, values))}")
        if list(self.batch_size) != sorted(self.batch_size):
            raise BadInput(f"batch_size must ascend, got {list(self.batch_size)}")
        if self.training and Order.INFERENCE in self.schedule:
            raise BadInput("a search is for training or for inference, got both among its schedules")
        for batch_size in (self.batch_size[0], self.batch_size[-1]):
            list(self._grid(batch_size))

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule != (Order.INFERENCE,)

    @property
    def n_configurations(self) -> int:
        """How many configurations the space holds."""
        return len(self.cells) * len(self.batch_size)

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        return [list(cell) for cell in zip(*map(self._grid, self.batch_size), strict=True)]

    def __contains__(self, knobs: Knobs) -> bool:
        return knobs.batch_size in self.batch_size and knobs in self._grid(knobs.batch_size)

    def _grid(self, batch_size: int) -> Iterator[Knobs]:
        """A configuration of every cell."""
        if Strategy.PIPELINE in self.strategy:
            rest = (self.schedule, self.recompute, self.n_micro_batches)
            for n_ipu, proportion, schedule, recompute, n in product(self.n_ipu, self.memory_proportion, *rest):
                yield Knobs(n_ipu, proportion, batch_size, schedule, recompute, n)
        if Strategy.PHASED in self.strategy:
            order = Order.SEQUENTIAL if self.training else Order.INFERENCE
            grid = product(self.n_ipu, self.memory_proportion, self.recompute, self.steps)
            for n_ipu, proportion, recompute, n in grid:
                yield Knobs(n_ipu, proportion, batch_size, order, recompute, n, Strategy.PHASED)


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
        batch_size: the largest that fits; None when none does.
        samples_per_s: the best measured throughput; 0 when none fits.
        reason: why the smallest batch size does not fit; empty when it does.
    """

    knobs: Knobs
    batch_size: int | None
    samples_per_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one configuration.

    Attributes:
        knobs: the configuration.
        estimate: the plan by costs estimated from layer profiles; None when there is none, so nothing was measured.
        measured: the same stages with the costs of the stages compiled whole; None when the configuration does not fit.
        samples_per_s: measured throughput; 0 when it does not fit.
        estimated_samples_per_s: throughput by the estimate; 0 when there is none.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        memory_bytes: what one device holds.
        reason: why it does not fit; empty when it does.
        timeline: the measured stages in the order of the schedule; None when it does not fit, and for phases.
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

    @property
    def fits(self) -> bool:
        """Whether the configuration runs."""
        return self.measured is not None
