"""What is searched and what came of it: `Knobs`, `SearchSpace`, `Outcome`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan

DEFAULT_PLANNING_PROPORTION = 0.85  # the seed's memoryProportion (seed 001, "Minimal example")
MOST_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers


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
    """

    n_ipu: int
    memory_proportion: float
    batch_size: int

    def __post_init__(self) -> None:
        if self.n_ipu < 1:
            raise BadInput(f"n_ipu must be at least 1, got {self.n_ipu}")
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not 1 <= self.batch_size <= MOST_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MOST_SAMPLES}, got {self.batch_size}")


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over `n_ipu` and `memory_proportion`; in every cell all batch sizes, ascending."""

    n_ipu: tuple[int, ...] = (1, 2, 4)
    memory_proportion: tuple[float, ...] = (0.3, 0.6, 1.0)
    batch_size: tuple[int, ...] = tuple(range(1, 129))

    def __post_init__(self) -> None:
        for name, values in (
            ("n_ipu", self.n_ipu),
            ("memory_proportion", self.memory_proportion),
            ("batch_size", self.batch_size),
        ):
            if not values or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {list(values)}")
        for n_ipu in self.n_ipu:
            Knobs(n_ipu, self.memory_proportion[0], self.batch_size[0])
        for proportion in self.memory_proportion:
            Knobs(self.n_ipu[0], proportion, self.batch_size[0])
        for batch_size in self.batch_size:
            Knobs(self.n_ipu[0], self.memory_proportion[0], batch_size)
        if list(self.batch_size) != sorted(self.batch_size):
            raise BadInput(f"batch_size must ascend, got {list(self.batch_size)}")

    @property
    def n_configurations(self) -> int:
        """How many configurations the space holds."""
        return len(self.n_ipu) * len(self.memory_proportion) * len(self.batch_size)


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
class Outcome:
    """What came of one configuration.

    Attributes:
        knobs: the configuration.
        estimate: the plan by costs estimated from layer profiles; None when there is none, so nothing was measured.
        measured: the same stages with the costs of the stages compiled whole; None when the configuration does not fit.
        samples_per_s: measured throughput; 0 when it does not fit.
        excess_bytes: bytes missing on the tightest device; 0 when it fits or when memory is not the reason.
        memory_bytes: what one device holds.
        reason: why it does not fit; empty when it does.
    """

    knobs: Knobs
    estimate: Plan | None
    measured: Plan | None
    samples_per_s: float
    excess_bytes: int
    memory_bytes: int
    reason: str

    @property
    def fits(self) -> bool:
        """Whether the configuration runs."""
        return self.measured is not None
