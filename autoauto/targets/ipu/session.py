"""The knobs of the target "ipu": `IpuSession`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf
from typing import ClassVar, Self

from typing_extensions import override

from autoauto.records.costs.options import CompileOptions, DeviceType, Session
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.knob import FRACTION_BY_DEVICE, Knob, numbers_by_device, text_by_device, whole

POPLAR_MEMORY_PROPORTION = 0.6
"""Poplar's default of availableMemoryProportion [poplar-docs]."""
MAX_IO_TILES = 2**16  # far more tiles than any IPU has

MEMORY_PROPORTION = Knob(
    "memory_proportion",
    FRACTION_BY_DEVICE,
    POPLAR_MEMORY_PROPORTION,
    "bound on the temporary memory of a matmul or convolution, as a share of a tile; one for each device of a pipeline "
    "with colons, 0.15:0.25",
    "0.3,0.6,1.0",
    (f"{POPLAR_MEMORY_PROPORTION}", "0.3,0.6,1.0"),
    absent=1.0,
    label="memory",
    searched=(0.3, 0.6, 1.0),
    is_shown=True,
)
IO_TILES = Knob(
    "io_tiles",
    whole(MAX_IO_TILES, minimum=0),
    0,
    "tiles of every device that exchange with the host while the others compute; 0: all tiles do both in turn",
    "0,32",
    ("0", "0"),
    label="io tiles",
    breaks_ties=True,
)


@dataclass(frozen=True, slots=True)
class IpuSession(Session):
    """The way in which the compiler of IPUs lays out layers.

    Attributes:
        memory_proportion: Poplar's `availableMemoryProportion`, a bound on temporary memory [poplar-docs]; those of all
            devices of a pipeline, as "0.15:0.25:0.25:0.25", where they differ.
        io_tiles: PopART's `numIOTiles` [popart], PopRT's `num_io_tiles` [poprt]: tiles of every device that do nothing
            but exchange with the host, while the others compute; 0 where all tiles do both in turn.
    """

    device_type: ClassVar[DeviceType] = DeviceType.ACCELERATOR
    knobs: ClassVar[tuple[Knob, ...]] = (MEMORY_PROPORTION, IO_TILES)
    memory_proportion: float | str = POPLAR_MEMORY_PROPORTION
    io_tiles: int = IO_TILES.default

    def __post_init__(self) -> None:
        if not all(0.0 < proportion <= 1.0 for proportion in self.proportions):
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not IO_TILES.domain.allows(self.io_tiles):
            raise BadInput(f"io_tiles must be {IO_TILES.domain.text}, got {self.io_tiles}")

    @property
    def proportions(self) -> tuple[float, ...]:
        """The proportion of every device, or the one of all."""
        return numbers_by_device(self.memory_proportion)

    @override
    def hardware(self, cluster: Cluster) -> Cluster:
        """The cluster without the io tiles, whose host links transfer while the other tiles compute."""
        return with_io_tiles(cluster, self.io_tiles) if self.io_tiles else cluster

    @property
    @override
    def differs_by_device(self) -> bool:
        return isinstance(self.memory_proportion, str)

    @override
    def on_device(self, device: int) -> Self:
        if not self.differs_by_device:
            return self
        return replace(self, memory_proportion=self.proportions[device])

    @override
    def of_devices(self, sessions: Sequence[Self]) -> Self:
        if len(set(sessions)) == 1:
            return sessions[0]
        proportions = text_by_device(session.proportions[0] for session in sessions)
        return replace(sessions[0], memory_proportion=proportions)

    @override
    def check_devices(self, n_devices: int, *, in_phases: bool) -> None:
        if in_phases and self.io_tiles:
            raise Mismatch(f"phases exchange with the host in turn, got io_tiles {self.io_tiles}; try --io-tiles 0")
        if not self.differs_by_device:
            return
        if in_phases:
            raise Mismatch(f"phases have one memory_proportion, got {self.memory_proportion}; try one number")
        if (n := len(self.proportions)) != n_devices:
            raise Mismatch(
                f"memory_proportion {self.memory_proportion} is for {n} devices, got n_ipu {n_devices}; "
                f"try --n-ipu {n}, or one number"
            )

    @property
    def common(self) -> IpuSession:
        """The session with Poplar's default bound, with which ranges are sampled whatever bound is asked for."""
        return replace(self, memory_proportion=POPLAR_MEMORY_PROPORTION)

    @override
    def bound_bytes(self, device: Device) -> float:
        [proportion] = self.proportions
        return device.tile_memory_bytes * proportion


def memory_proportion(options: CompileOptions) -> float:
    """The share of a tile's memory that temporaries of a matmul or convolution may take."""
    [proportion] = options.session.proportions if isinstance(options.session, IpuSession) else IpuSession().proportions
    return proportion


def with_io_tiles(cluster: Cluster, n_io_tiles: int) -> Cluster:
    """`cluster` with `n_io_tiles` of every device given to the host's transfers.

    The other tiles compute while io tiles load the next micro-batch and store the last; then one exchange within the
    device hands them over, at the rate of the io tiles. A period lasts at least as long as the host takes.

    Raises:
        BadInput: no tile is left to compute, there are no transfers with the host, or the devices are of several kinds:
            then only a plan says which of them exchange with the host.
    """
    from autoauto.targets.ipu.kernels import EXCHANGE_BYTES_PER_CYCLE, SHORTEST_EXCHANGE_CYCLES, SYNC_CYCLES

    if cluster.kinds:
        raise BadInput(
            f"io_tiles {n_io_tiles} needs devices in a given order, {cluster.name} has kinds of them; try --io-tiles 0"
        )
    first, last = cluster.devices[0], cluster.devices[-1]
    fewest = min(cluster.devices, key=lambda device: device.n_tiles)
    if n_io_tiles >= fewest.n_tiles:
        raise BadInput(f"io_tiles must be below {fewest.n_tiles}, the tiles of a {fewest.name}, got {n_io_tiles}")
    host_links = cluster.receive_links[0], cluster.send_links[-1]
    if all(isinf(link.bytes_per_s) for link in host_links):
        raise BadInput(f"io_tiles {n_io_tiles} exchange with the host, got synthetic data; leave one of them out")
    devices: list[Device] = []
    for device in cluster.devices:
        memory_bytes = device.memory_bytes * (1 - n_io_tiles / device.n_tiles)
        devices.append(replace(device, n_tiles=device.n_tiles - n_io_tiles, memory_bytes=memory_bytes))
    idle_cycles = SYNC_CYCLES + SHORTEST_EXCHANGE_CYCLES
    rate = n_io_tiles * EXCHANGE_BYTES_PER_CYCLE
    return replace(
        cluster,
        devices=tuple(devices),
        receive_links=(Link(rate * first.clock_hz, idle_cycles), *cluster.receive_links[1:]),
        send_links=(*cluster.send_links[:-1], Link(rate * last.clock_hz, idle_cycles)),
        overlapped_host_links=host_links,
    )
