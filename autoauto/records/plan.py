"""Where the layers go: `Stage` and `Plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoauto.records.layers import LayerRange
from autoauto.records.units import samples_per_s


@dataclass(frozen=True, slots=True)
class Stage:
    """A range of layers on one device, with the cost of one micro-batch.

    Attributes:
        layers: the half-open range.
        device: index into the cluster's devices.
        forward_cycles, backward_cycles: compute, without transfers.
        receive_cycles, send_cycles: what this device spends on its two links, host terms as in the seed's
            `transfer_cycle`.
        memory_bytes: by category.
        limit_bytes: what the stage may fill.
    """

    layers: LayerRange
    device: int
    forward_cycles: int
    backward_cycles: int
    receive_cycles: int
    send_cycles: int
    memory_bytes: Mapping[str, int]
    limit_bytes: int

    @property
    def compute_cycles(self) -> int:
        """Forward and backward together."""
        return self.forward_cycles + self.backward_cycles

    @property
    def transfer_cycles(self) -> int:
        """Receiving and sending together."""
        return self.receive_cycles + self.send_cycles

    @property
    def total_bytes(self) -> int:
        """Memory over all categories."""
        return sum(self.memory_bytes.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """Consecutive stages that cover all layers, one a device.

    A device starts to transfer only when the slowest has computed (seed 001), so a period is the largest compute plus
    the largest transfer.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        assert self.stages
        assert all(a.layers.stop == b.layers.start for a, b in zip(self.stages, self.stages[1:], strict=False))

    @property
    def partition(self) -> tuple[int, ...]:
        """The n_ipu + 1 boundaries, from 0 to the number of layers."""
        return (self.stages[0].layers.start, *(stage.layers.stop for stage in self.stages))

    @property
    def compute_cycles(self) -> int:
        """Cycles of the slowest stage, transfers aside."""
        return max(stage.compute_cycles for stage in self.stages)

    @property
    def transfer_cycles(self) -> int:
        """Cycles of the stage that transfers longest."""
        return max(stage.transfer_cycles for stage in self.stages)

    @property
    def cost_cycles(self) -> int:
        """The period: cycles between two finished micro-batches once the pipeline is full."""
        return self.compute_cycles + self.transfer_cycles

    def samples_per_s(self, batch_size: int, clock_hz: float) -> float:
        """Throughput in the steady state."""
        return samples_per_s(batch_size, self.cost_cycles, clock_hz)
