"""The knobs of the target "ipu": `IpuSession`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autoauto.records.costs.options import CompileOptions, DeviceType, Session
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.knob import FRACTION, Knob

POPLAR_MEMORY_PROPORTION = 0.6
"""Poplar's default of availableMemoryProportion [poplar-docs]."""

MEMORY_PROPORTION = Knob(
    "memory_proportion",
    FRACTION,
    POPLAR_MEMORY_PROPORTION,
    "bound on the temporary memory of a matmul or convolution, as a share of a tile",
    "0.3,0.6,1.0",
    (f"{POPLAR_MEMORY_PROPORTION}", "0.3,0.6,1.0"),
    absent=1.0,
    label="memory",
    searched=(0.3, 0.6, 1.0),
    is_shown=True,
)


@dataclass(frozen=True, slots=True)
class IpuSession(Session):
    """How the compiler of IPUs lays out layers.

    Attributes:
        memory_proportion: Poplar's `availableMemoryProportion`, a bound on temporary memory [poplar-docs].
    """

    device_type: ClassVar[DeviceType] = DeviceType.ACCELERATOR
    knobs: ClassVar[tuple[Knob, ...]] = (MEMORY_PROPORTION,)
    memory_proportion: float = POPLAR_MEMORY_PROPORTION

    def __post_init__(self) -> None:
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")

    @property
    def common(self) -> IpuSession:
        """Poplar's default: whatever bound is asked for, ranges are sampled with that one."""
        return IpuSession()

    def bound_bytes(self, device: Device) -> float:
        """See `Session`."""
        return device.tile_memory_bytes * self.memory_proportion


def memory_proportion(options: CompileOptions) -> float:
    """The share of a tile's memory that temporaries of a matmul or convolution may take."""
    return options.session.memory_proportion if isinstance(options.session, IpuSession) else POPLAR_MEMORY_PROPORTION
