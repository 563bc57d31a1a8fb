"""Phased execution (seed 002): `IoMode`, `BufferLayout`, `Phase`, `PhasedPlan`.

A phase is a range of layers that has the device for itself: its variables and activations are loaded from streaming
memory, `steps` micro-batches are computed, what later phases need is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerRange


class IoMode(StrEnum):
    """How tensors are loaded and stored in the loop over micro-batches."""

    COMPUTE = "compute"
    """By the compute tiles."""
    IO = "io"
    """By io tiles, taken from compute."""
    IO_OVERLAPPED = "io_overlapped"
    """By io tiles, while the compute tiles compute another micro-batch."""


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """A buffer in streaming memory, as a matrix: a row for every phase that shares it, a column for every micro-batch.

    Attributes:
        name: for example "x" (activations) or "dx" (their gradients).
        rows: phases of equal graph that share the buffer.
        steps: micro-batches.
        entry_bytes: of one entry.
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
        """How many entries there are."""
        return self.rows * self.steps

    @property
    def n_bytes(self) -> int:
        """Streaming memory of all entries."""
        return self.n_entries * self.entry_bytes

    def flat_index(self, row: int, step: int) -> int:
        """The entry of a micro-batch in a row.

        Raises:
            BadInput: there is no such row or step.

        >>> BufferLayout("x", rows=3, steps=4).flat_index(2, 1)
        9
        """
        if not (0 <= row < self.rows and 0 <= step < self.steps):
            raise BadInput(
                f"buffer {self.name} has rows 0 to {self.rows - 1} and steps 0 to {self.steps - 1}, "
                f"got row {row} and step {step}"
            )
        return row * self.steps + step


@dataclass(frozen=True, slots=True)
class Phase:
    """A range of layers on the device alone, with the cost of its parts.

    Attributes:
        layers: the half-open range.
        graph: phases of equal number run the same program; their variables and activations share buffers.
        row: which of the phases of its graph it is.
        variable_cycles: to load the variables, once a phase when batches are serialised.
        load_cycles, compute_cycles, store_cycles: of one micro-batch.
        memory_bytes: on the device, by category, with the buffers that loads and stores pass through.
        limit_bytes: what the phase may fill.
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

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())


@dataclass(frozen=True, slots=True)
class PhasedPlan:
    """Consecutive phases that cover all layers, each run for `steps` micro-batches before the next.

    Attributes:
        phases: in the order of the layers.
        steps: micro-batches.
        io_mode: how tensors move.
        buffers: the activations and variables in streaming memory.
        phase_cycles: what each phase takes for all steps, variables included (the schedule room's sum).
        naive_cycles: what all phases take when every step loads the variables again.
    """

    phases: tuple[Phase, ...]
    steps: int
    io_mode: IoMode
    buffers: tuple[BufferLayout, ...]
    phase_cycles: tuple[int, ...]
    naive_cycles: int

    def __post_init__(self) -> None:
        assert len(self.phases) == len(self.phase_cycles) > 0
        assert all(a.layers.stop == b.layers.start for a, b in zip(self.phases, self.phases[1:], strict=False))

    @property
    def cost_cycles(self) -> int:
        """Cycles of one pass of all micro-batches through all phases."""
        return sum(self.phase_cycles)

    @property
    def partition(self) -> tuple[int, ...]:
        """The boundaries of the phases, from 0 to the number of layers."""
        return (self.phases[0].layers.start, *(phase.layers.stop for phase in self.phases))
