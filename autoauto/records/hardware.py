"""Devices, the links between them, and how they take turns: `Device`, `Link`, `Machine`, `Cluster`, `Period`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from math import inf

import numpy as np

from autoauto.records.arrays import Amount
from autoauto.records.errors import BadInput
from autoauto.records.units import MAX_EXACT


class Period(StrEnum):
    """What devices do at the same time, hence what the period of a pipeline is; a maximum is over the devices."""

    BARRIER = "barrier"
    """max compute + max (receive + send): all exchange at once when the slowest has computed [auto-pipeline]."""
    OVERLAP = "overlap"
    """max (compute, receive + send): a device moves one micro-batch while it computes another [pipedream]."""
    SERIAL = "serial"
    """max (receive + compute + send): a device does one thing at a time [dnn-partitioning]."""
    DUPLEX = "duplex"
    """max (receive, compute, send): a device receives, computes and sends three micro-batches at once."""

    def cycles(self, compute: Collection[int], receive: Collection[int], send: Collection[int]) -> int:
        """The period of devices that spend so many cycles on each; one entry a device.

        >>> [period.cycles((5, 3), (1, 4), (2, 0)) for period in Period]
        [9, 5, 8, 5]
        """
        slowest, transfers = max(compute), tuple(map(sum, zip(receive, send, strict=True)))
        if self is Period.BARRIER:
            return slowest + max(transfers)
        if self is Period.OVERLAP:
            return max(slowest, *transfers)
        if self is Period.DUPLEX:
            return max(slowest, *receive, *send)
        return max(map(sum, zip(compute, transfers, strict=True)))


class Topology(StrEnum):
    """Which devices a device exchanges tensors with."""

    LINE = "line"
    """Its two neighbours, which pass on what is for others [auto-pipeline]."""
    ALL_TO_ALL = "all-to-all"
    """Any other, over its own links: a tensor is charged at its two ends only [dnn-partitioning]."""


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

    def cycles(self, n_bytes: Amount, clock_hz: float) -> Amount:
        """Cycles to move a number of bytes, or each of an array, the idle cycles included; rounded down.

        The order of operations is that of [auto-pipeline], `int(idle + bytes / (rate / clock))`, so that both round
        alike.

        Raises:
            BadInput: a transfer takes too many cycles to be added exactly.

        >>> link = Link(bytes_per_s=1024**3, idle_cycles=1_000_000)
        >>> link.cycles(2000, 1024**3), link.cycles(np.array([0, 2000]), 1024**3).tolist()
        (1002000, [1000000, 1002000])
        """
        with np.errstate(all="ignore"):  # what is not finite is refused
            cycles = self.idle_cycles + np.asarray(n_bytes, dtype=np.float64) / (self.bytes_per_s / clock_hz)
        longest = np.max(cycles, initial=0.0)
        if not longest <= MAX_EXACT:
            raise BadInput(f"a transfer must take at most 2**53 cycles, got {longest:.3g}; check bytes and GBps")
        return cycles.astype(np.int64) if isinstance(n_bytes, np.ndarray) else int(cycles)

    def load_cycles(self, n_bytes: Amount, clock_hz: float) -> Amount:
        """As `cycles`, but 0 for 0 bytes: where there is nothing to load or store, nothing waits.

        >>> Link(bytes_per_s=1.0, idle_cycles=3).load_cycles(np.array([0, 2]), 1.0).tolist()
        [0, 5]
        """
        return (n_bytes > 0) * self.cycles(n_bytes, clock_hz)


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
class Machine:
    """Neighbouring devices that share one connection to the host.

    Attributes:
        n_devices: how many devices make a machine; the last machine of a cluster may have fewer.
        host_bytes_per_s: what all of them together receive from the host in a second, and as much again is sent to it
            at the same time.
    """

    n_devices: int
    host_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices in pipeline order; the host is at both ends.

    A device receives and sends at speeds of its own, as in the `connection` list of [auto-pipeline], so the two ends of
    one cable may differ.

    Attributes:
        name: for example "bow-2000".
        target: the name of the target that the devices belong to, for example "ipu".
        devices: in pipeline order.
        receive_links: `receive_links[d]` enters device d; the host is behind the first.
        send_links: `send_links[d]` leaves device d; the host is behind the last.
        streaming_memory: what every device has beside its own memory; None when there is none.
        overlapped_host_links: the host's links into the first and out of the last device, where they transfer while the
            devices compute. `receive_links[0]` and `send_links[-1]` are then transfers within a device.
        topology: which devices exchange tensors.
        machine: which devices share a connection to the host; None where every pipeline has its own.
    """

    name: str
    target: str
    devices: tuple[Device, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]
    streaming_memory: StreamingMemory | None = None
    overlapped_host_links: tuple[Link, Link] | None = None
    topology: Topology = Topology.LINE
    machine: Machine | None = None

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

    def grouped(self, n_each: int) -> Cluster:
        """Devices that are `n_each` neighbours each, with the memory of all of them; what is left over is not used."""
        if n_each == 1:
            return self
        n_devices = len(self) // n_each
        assert n_devices > 0
        groups = [self.devices[first * n_each : (first + 1) * n_each] for first in range(n_devices)]
        return replace(
            self,
            devices=tuple(
                replace(
                    group[0],
                    memory_bytes=sum(device.memory_bytes for device in group),
                    tile_memory_bytes=sum(device.tile_memory_bytes for device in group),
                )
                for group in groups
            ),
            receive_links=self.receive_links[::n_each][:n_devices],
            send_links=(*self.send_links[n_each - 1 :: n_each][: n_devices - 1], self.send_links[-1]),
        )

    def host_cycles(self, in_bytes: int, out_bytes: int) -> int:
        """Cycles of the first device's clock in which overlapped host links move a micro-batch in and another out."""
        if self.overlapped_host_links is None:
            return 0
        receive, send = self.overlapped_host_links
        clock_hz = self.devices[0].clock_hz
        return receive.cycles(in_bytes, clock_hz) + send.cycles(out_bytes, clock_hz)

    def shared_cycles(self, n_devices: int, replicas: int, in_bytes: int, out_bytes: int) -> int:
        """Cycles of the first device's clock in which machines move a micro-batch in and another out for every replica.

        Both directions transfer at once, and the slowest machine counts. Replicas take neighbouring devices, in order:

            machine   |   0   |   1   |      3 replicas of 2 devices, 4 devices a machine:
            device    |0 1 2 3|4 5 6 7|      two replicas enter and leave machine 0, one machine 1
            replica   |a a b b|c c    |
        """
        if self.machine is None:
            return 0
        each, link = self.machine.n_devices, Link(self.machine.host_bytes_per_s, 0)
        starts = Counter(first // each for first in range(0, replicas * n_devices, n_devices))
        ends = Counter((first + n_devices - 1) // each for first in range(0, replicas * n_devices, n_devices))
        moved_bytes = max(max(starts.values()) * in_bytes, max(ends.values()) * out_bytes)
        return int(link.cycles(moved_bytes, self.devices[0].clock_hz))

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
            machine=None,
        )
