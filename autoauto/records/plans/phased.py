"""Phased execution [popxl-phased]: `PhasedOptions`, `BufferLayout`, `Phase`, `PhasedPlan`.

A phase is a range of layers that has the device for itself: its variables and activations are loaded from streaming
memory, `steps` micro-batches are computed, what later phases need is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from autoauto.records.display import Displayed
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange
from autoauto.records.units import IntArray, samples_per_s

MAX_STEPS = 2**20  # so that cycles of all steps stay exact integers
DEFAULT_IO_TILES = 32  # as in the example of [popxl-phased]


class IoMode(StrEnum):
    """The way in which tensors are loaded and stored in the loop over micro-batches."""

    COMPUTE = "compute"
    """By the compute tiles."""
    IO = "io"
    """By io tiles, which then do not compute."""
    IO_OVERLAPPED = "io_overlapped"
    """By io tiles, while the compute tiles compute another micro-batch."""


def check_loop(io_mode: str, steps: int, io_tiles: int, rows: int = 1) -> tuple[IoMode, str]:
    """The mode in which a loop moves its tensors, and a warning where it is not `io_mode`: one step overlaps nothing.

    Raises BadInput if there is no such mode, no step or row, or no io tiles for a mode that needs them.
    """
    if io_mode not in tuple(IoMode):
        raise BadInput(f"Unknown 'io_mode': it is one of {', '.join(IoMode)}, got {io_mode!r}")
    if rows < 1:
        raise BadInput(f"rows must be >0, got {rows}; try 1")
    if not 1 <= steps <= MAX_STEPS:
        raise BadInput(f"steps must be 1 to {MAX_STEPS}, got {steps}")
    if io_mode != IoMode.COMPUTE and io_tiles < 1:
        raise BadInput(
            f"io_mode {io_mode} must have IO tiles, got {io_tiles}; try {DEFAULT_IO_TILES}, or io_mode compute"
        )
    if io_mode == IoMode.IO_OVERLAPPED and steps == 1:
        return IoMode.IO, "io_overlapped needs steps of at least 2, got 1: io is used"
    return IoMode(io_mode), ""


def loop_cycles(io_mode: IoMode, steps: int, load: IntArray, compute: IntArray, store: IntArray) -> IntArray:
    """Cycles of loops over all steps, without variables; `load`, `compute` and `store` are the cycles of one step.

    With one step nothing overlaps. Overlapped, with a column for every slot in time [popxl-phased]:

        io tiles        load 0 | load 1    | load 2, store 0 | load 3, store 1 | store 2 | store 3
        compute tiles          | compute 0 | compute 1       | compute 2       | compute 3
    """
    if io_mode is not IoMode.IO_OVERLAPPED or steps == 1:
        return steps * (load + compute + store)
    ends = load + np.maximum(load, compute) + np.maximum(store, compute) + store
    cycles: IntArray = ends + (steps - 2) * np.maximum(load + store, compute)
    return cycles


@dataclass(frozen=True, slots=True)
class PhasedOptions:
    """The options of a run in phases.

    Attributes:
        steps: micro-batches that go through a phase before the next phase begins.
        io_mode: how tensors move, as requested.
        io_tiles: tiles that load and store and do not compute; 0 where the compute tiles do it.
        n_replicas: devices that run the same phases on other data and share the variables' streaming memory.
        recompute: whether a backward phase computes its forward pass again instead of loading stashed activations.
    """

    steps: int
    io_mode: IoMode = IoMode.IO
    io_tiles: int = DEFAULT_IO_TILES
    n_replicas: int = 1
    recompute: bool = False

    def __post_init__(self) -> None:
        check_loop(self.io_mode, self.steps, self.io_tiles)
        if self.n_replicas < 1:
            raise BadInput(f"replicas must be at least 1, got {self.n_replicas}")

    @property
    def effective_mode(self) -> IoMode:
        """The io mode that is used, which `warning` explains if it is not `io_mode`."""
        return check_loop(self.io_mode, self.steps, self.io_tiles)[0]

    @property
    def warning(self) -> str:
        """Why `effective_mode` is not `io_mode`; empty when it is."""
        return check_loop(self.io_mode, self.steps, self.io_tiles)[1]

    @property
    def n_io_tiles(self) -> int:
        """Tiles that do not compute."""
        return 0 if self.io_mode == IoMode.COMPUTE else self.io_tiles


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A buffer in streaming memory, as a matrix: a row for every phase that shares it, a column for every micro-batch.

    Attributes:
        name: for example "x" (activations) or "dx" (their gradients).
        rows: phases of equal graph that share the buffer.
        steps: micro-batches.
    """

    name: str
    rows: int
    steps: int
    entry_bytes: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or self.steps < 1:
            raise BadInput(f"a buffer needs rows and steps of at least 1, got rows {self.rows} and steps {self.steps}")

    @property
    def n_entries(self) -> int:
        """Number of entries."""
        return self.rows * self.steps

    @property
    def n_bytes(self) -> int:
        """Streaming memory of all entries."""
        return self.n_entries * self.entry_bytes

    def flat_index(self, row: int, step: int) -> int:
        """The entry of a micro-batch in a row. Raises BadInput if there is no such row or step."""
        if not (0 <= row < self.rows and 0 <= step < self.steps):
            raise BadInput(
                f"buffer {self.name} has rows 0 to {self.rows - 1} and steps 0 to {self.steps - 1}, "
                f"got row {row} and step {step}"
            )
        return row * self.steps + step


class PhaseKind(StrEnum):
    """The passes that a phase makes over its layers."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "forward and backward"
    """The last layers in training: their forward, the loss, and their backward at once."""


class BufferRow(NamedTuple):
    """One row of a buffer."""

    buffer: str
    row: int

    def __str__(self) -> str:
        return f"{self.buffer}[{self.row}]"


@dataclass(frozen=True, slots=True)
class Phase:
    """A range of layers on the device alone, with the cost of its parts.

    Attributes:
        graph: phases of equal number and kind run the same program; their variables and activations share buffers.
        row: its number among the phases of its graph.
        variable_cycles: to load the variables, once a phase when batches are serialised; in a backward phase also to
            store the updated variables.
        load_cycles, compute_cycles, store_cycles: of one micro-batch.
        memory_bytes: on the device, by category, with the buffers through which loads and stores go.
        limit_bytes: what the phase may fill.
        kind: which passes it makes.
        variable_bytes, load_bytes, store_bytes: what those cycles move; variables for all replicas.
        loads, stores: the rows that hold the activations; empty for the host, or where nothing is stored.
    """

    layers: LayerRange
    graph: int
    row: int
    variable_cycles: int
    load_cycles: int
    compute_cycles: int
    store_cycles: int
    memory_bytes: Mapping[str, int]
    limit_bytes: int
    kind: PhaseKind = PhaseKind.FORWARD
    variable_bytes: int = 0
    load_bytes: int = 0
    store_bytes: int = 0
    loads: tuple[BufferRow, ...] = ()
    stores: tuple[BufferRow, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())

    @property
    def step_cycles(self) -> int:
        """One micro-batch without overlap and without the variables."""
        return self.load_cycles + self.compute_cycles + self.store_cycles

    def cycles(self, io_mode: IoMode, steps: int) -> int:
        """All steps: the variables once, then the loop."""
        load, compute, store = np.array([[self.load_cycles], [self.compute_cycles], [self.store_cycles]])
        return self.variable_cycles + int(loop_cycles(io_mode, steps, load, compute, store)[0])


@dataclass(frozen=True, slots=True)
class PhasedPlan(Displayed):
    """Phases one after the other, each run for `steps` micro-batches before the next.

    Attributes:
        part_name, cost_name: words for one of its `parts`, and for what takes `cost_cycles`.
        phases: in the order in which they run: forward over consecutive layers; in training then backward again.
        steps: micro-batches.
        buffers: the activations and variables in streaming memory.
        phase_cycles: what each phase takes for all steps, variables included.
        naive_cycles: what all phases take when every step loads the variables again.
        n_replicas: devices that run the same phases on other data.
        shared_cycles: as of a `Plan`: cycles in which the machine's connection to the host, which its devices share,
            moves a micro-batch of every replica.
        warning: why tensors do not move as requested; empty when they do.
    """

    part_name: ClassVar[str] = "phase"
    cost_name: ClassVar[str] = "all phases"
    phases: tuple[Phase, ...]
    steps: int
    io_mode: IoMode
    buffers: tuple[BufferLayout, ...]
    phase_cycles: tuple[int, ...]
    naive_cycles: int
    n_replicas: int = 1
    warning: str = ""
    shared_cycles: int = 0

    def __post_init__(self) -> None:
        assert len(self.phases) == len(self.phase_cycles) > 0
        forward = self.forward_phases
        assert all(a.layers.stop == b.layers.start for a, b in pairwise(forward))

    @property
    def plans(self) -> tuple[PhasedPlan, ...]:
        """The different plans of replicas: this one, since all replicas run the same phases."""
        return (self,)

    @property
    def other_plans(self) -> tuple[PhasedPlan, ...]:
        """Empty: all replicas have this plan."""
        return ()

    @property
    def host_bound_cycles(self) -> int:
        """0: the cost of phases contains the transfers of the host."""
        return 0

    @property
    def balance(self) -> float:
        """1: all devices compute the same."""
        return 1.0

    @property
    def latency_cycles(self) -> int:
        """Cycles from the start of the first phase to the end of the last."""
        return self.cost_cycles

    @property
    def parts(self) -> tuple[Phase, ...]:
        """The parts with memory of their own: the phases, as the stages are of a `Plan`."""
        return self.phases

    @property
    def forward_phases(self) -> tuple[Phase, ...]:
        """The phases that cover all layers, in the order of the layers."""
        return tuple(phase for phase in self.phases if phase.kind is not PhaseKind.BACKWARD)

    @property
    def compute_cycles(self) -> int:
        """Compute of all phases in all steps."""
        return self.steps * sum(phase.compute_cycles for phase in self.phases)

    @property
    def transfer_cycles(self) -> int:
        """Loads and stores of all phases in all steps, variables once."""
        cycles = 0
        for phase in self.phases:
            cycles += phase.variable_cycles + self.steps * (phase.load_cycles + phase.store_cycles)
        return cycles

    @property
    def cost_cycles(self) -> int:
        """Cycles of one pass of all micro-batches through all phases, or in which the host's connection moves them."""
        return max(sum(self.phase_cycles), self.steps * self.shared_cycles)

    @property
    def partition(self) -> tuple[int, ...]:
        """The boundaries of the phases, from 0 to the number of layers."""
        forward = self.forward_phases
        return (forward[0].layers.start, *(phase.layers.stop for phase in forward))

    def with_phases(self, phases: tuple[Phase, ...]) -> PhasedPlan:
        """This plan with other costs of its phases."""
        naive_cycles = self.steps * sum(phase.variable_cycles + phase.step_cycles for phase in phases)
        phase_cycles = tuple(phase.cycles(self.io_mode, self.steps) for phase in phases)
        return replace(self, phases=phases, phase_cycles=phase_cycles, naive_cycles=naive_cycles)

    @property
    def peak_memory_bytes(self) -> int:
        """Bytes of the phase that needs most."""
        return max(phase.total_bytes for phase in self.phases)

    @property
    def excess_bytes(self) -> int:
        """Bytes by which the tightest phase exceeds the device; negative if bytes are free."""
        return max(phase.total_bytes - phase.limit_bytes for phase in self.phases)

    @property
    def mean_cost_cycles(self) -> float:
        """Mean cycles per micro-batch of a replica; all replicas run the same phases."""
        return self.cost_cycles

    def samples_per_s(self, batch_size: int, clock_hz: float, *, naive: bool = False) -> float:
        """Throughput of all replicas."""
        cycles = self.cost_cycles
        if naive:
            cycles = max(cycles, self.naive_cycles)
        return samples_per_s(batch_size * self.steps * self.n_replicas, cycles, clock_hz)
