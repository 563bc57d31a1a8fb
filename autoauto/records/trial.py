"""What is searched and what came of it: `Knobs`, `SearchSpace`, `Outcome`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan
from autoauto.records.schedule import Order
from autoauto.records.timeline import Timeline

DEFAULT_PLANNING_PROPORTION = 0.85  # the seed's memoryProportion (seed 001, "Minimal example")
MOST_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers
TRAINING_ORDERS = (Order.POPART, Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P, Order.ZB2P)
"""The orders in which a plan of one stage a device can train."""


class Objective(StrEnum):
    """What a search makes best."""

    THROUGHPUT = "throughput"
    PER_IPU = "per-ipu"


@dataclass(frozen=True, slots=True)
class Knobs:
    """One configuration.

    Attributes:
        n_ipu: devices in the pipeline.
        memory_proportion: Poplar's available memory proportion, a bound on temporary memory (the seed's `mem_portion`).
        batch_size: samples in one micro-batch.
        schedule: the order in which the devices train, or inference.
        recompute: whether a stage keeps only its inputs for the backward pass and computes the rest again.
        n_micro_batches: how many make one step of training, after which weights change; 1 for inference.
    """

    n_ipu: int
    memory_proportion: float
    batch_size: int
    schedule: Order = Order.INFERENCE
    recompute: bool = False
    n_micro_batches: int = 1

    def __post_init__(self) -> None:
        if self.n_ipu < 1:
            raise BadInput(f"n_ipu must be at least 1, got {self.n_ipu}")
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not 1 <= self.batch_size <= MOST_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MOST_SAMPLES}, got {self.batch_size}")
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
        """Samples of one step of training, or of one micro-batch of inference."""
        return self.batch_size * self.n_micro_batches

    @property
    def _least_micro_batches(self) -> int:
        """PopART's main phase must not be empty (seed 000)."""
        return 2 * self.n_ipu - 1 if self.schedule is Order.POPART else 1


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over all knobs but the batch size; in every cell of it all batch sizes, ascending."""

    n_ipu: tuple[int, ...] = (1, 2, 4)
    memory_proportion: tuple[float, ...] = (0.3, 0.6, 1.0)
    batch_size: tuple[int, ...] = tuple(range(1, 129))
    schedule: tuple[Order, ...] = (Order.INFERENCE,)
    recompute: tuple[bool, ...] = (False,)
    n_micro_batches: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in ("n_ipu", "memory_proportion", "batch_size", "schedule", "recompute", "n_micro_batches"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {', '.join(map(str, values))}")
        if list(self.batch_size) != sorted(self.batch_size):
            raise BadInput(f"batch_size must ascend, got {list(self.batch_size)}")
        if self.training and Order.INFERENCE in self.schedule:
            raise BadInput("a search is for training or for inference, got both among its schedules")
        for batch_size in (self.batch_size[0], self.batch_size[-1]):
            for cell in self._grid():
                self._knobs(batch_size, cell)

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule != (Order.INFERENCE,)

    @property
    def n_configurations(self) -> int:
        """How many configurations the space holds."""
        return sum(1 for _ in self._grid()) * len(self.batch_size)

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        return [[self._knobs(batch_size, cell) for batch_size in self.batch_size] for cell in self._grid()]

    def __contains__(self, knobs: Knobs) -> bool:
        return (
            knobs.n_ipu in self.n_ipu
            and knobs.memory_proportion in self.memory_proportion
            and knobs.batch_size in self.batch_size
            and knobs.schedule in self.schedule
            and knobs.recompute in self.recompute
            and knobs.n_micro_batches in self.n_micro_batches
        )

    def _grid(self) -> Iterator[tuple[int, float, Order, bool, int]]:
        return product(self.n_ipu, self.memory_proportion, self.schedule, self.recompute, self.n_micro_batches)

    @staticmethod
    def _knobs(batch_size: int, cell: tuple[int, float, Order, bool, int]) -> Knobs:
        n_ipu, memory_proportion, schedule, recompute, n_micro_batches = cell
        return Knobs(n_ipu, memory_proportion, batch_size, schedule, recompute, n_micro_batches)


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
        timeline: the measured stages in the order of the schedule; None when it does not fit.
    """

    knobs: Knobs
    estimate: Plan | None
    measured: Plan | None
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
