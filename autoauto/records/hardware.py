"""Devices and the links between them: `Device`, `Link`, `StreamingMemory`, `Cluster`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

from autoauto.records.units import transfer_cycles


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a pipeline.

    Attributes:
        name: for example "bow".
        clock_hz: cycles per second.
        memory_bytes: what one device holds; a fraction where MB of Graphcore's auto_pipeline are no whole bytes.
        n_tiles: processors on the device, each with a memory of its own.
        tile_memory_bytes: memory of one tile; `memory_proportion` is a share of it.
        fp8: whether it can multiply in fp8.
    """

    name: str
    clock_hz: float
    memory_bytes: float
    n_tiles: int
    tile_memory_bytes: int
    fp8: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a connection, as one device sees it.

    A message waits `idle_cycles` of the reference clock, then moves at `bytes_per_s`.
    """

    bytes_per_s: float
    idle_cycles: int

    def cycles(self, n_bytes: int, clock_hz: float) -> int:
        """Cycles to move `n_bytes` over this link, the idle cycles included."""
        return transfer_cycles(n_bytes, self.bytes_per_s, self.idle_cycles, clock_hz)


@dataclass(frozen=True, slots=True)
class StreamingMemory:
    """Memory beside a device, from and to which a running program loads and stores whole tensors.

    Attributes:
        bytes_per_s: what one device loads or stores in a second.
        idle_cycles: of the reference clock, before a load or store begins.
        capacity_bytes: one device's part.
    """

    bytes_per_s: float
    idle_cycles: int
    capacity_bytes: int

    @property
    def link(self) -> Link:
        """The connection between a device and this memory, in either direction."""
        return Link(self.bytes_per_s, self.idle_cycles)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices in pipeline order; the host is at both ends.

    A device receives and sends at speeds of its own, as in the `connection` list of [auto-pipeline], so the two ends of
    one cable may differ.

    Attributes:
        name: for example "bow-2000".
        target: which target the devices belong to: "ipu" or "host".
        devices: in pipeline order.
        receive_links: `receive_links[d]` enters device d; the host is behind the first.
        send_links: `send_links[d]` leaves device d; the host is behind the last.
        streaming_memory: what every device has beside its own memory; None when there is none.
        overlapped_host_links: the host's links into the first and out of the last device, where they transfer while the
            devices compute. `receive_links[0]` and `send_links[-1]` are then transfers within a device.
    """

    name: str
    target: str
    devices: tuple[Device, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]
    streaming_memory: StreamingMemory | None = None
    overlapped_host_links: tuple[Link, Link] | None = None

    def __post_init__(self) -> None:
        assert len(self.devices) == len(self.receive_links) == len(self.send_links) > 0

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def speeds(self) -> tuple[Fraction, ...]:
        """Every device's clock relative to the first's, the reference clock in which a plan counts all cycles."""
        reference = Fraction(self.devices[0].clock_hz)
        return tuple(Fraction(device.clock_hz) / reference for device in self.devices)

    def first(self, n_ipu: int) -> Cluster:
        """The pipeline of the first `n_ipu` devices: the last of them sends to the host as the cluster's last does."""
        assert 1 <= n_ipu <= len(self)
        return replace(
            self,
            devices=self.devices[:n_ipu],
            receive_links=self.receive_links[:n_ipu],
            send_links=(*self.send_links[: n_ipu - 1], self.send_links[-1]),
        )

    def host_cycles(self, in_bytes: int, out_bytes: int) -> int:
        """Cycles of the first device's clock in which overlapped host links move a micro-batch in and another out."""
        if self.overlapped_host_links is None:
            return 0
        receive, send = self.overlapped_host_links
        clock_hz = self.devices[0].clock_hz
        return receive.cycles(in_bytes, clock_hz) + send.cycles(out_bytes, clock_hz)

    def with_headroom(self, share: float) -> Cluster:
        """The same devices with `share` of their memory left free: plans use the rest only."""
        smaller = (replace(device, memory_bytes=int(device.memory_bytes * (1.0 - share))) for device in self.devices)
        return replace(self, devices=tuple(smaller)) if share else self

    def with_synthetic_data(self) -> Cluster:
        """The same devices with data made on them: transfers over the host's links cost nothing."""
        free = Link(bytes_per_s=inf, idle_cycles=0)
        return replace(
            self,
            receive_links=(free, *self.receive_links[1:]),
            send_links=(*self.send_links[:-1], free),
        )
