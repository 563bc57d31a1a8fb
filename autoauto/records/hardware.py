"""Devices, the links between them, and how they take turns: `Device`, `DeviceKind`, `Link`, `Cluster`, `Period`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import chain, groupby
from math import inf
from typing import NamedTuple, TypedDict

import numpy as np

from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.units import MAX_EXACT, Amount

MAX_DEVICES = 65_536
"""Of a cluster; a Bow Pod1024 has 1,024, and every device is a value in memory."""


class Period(StrEnum):
    """The operations of devices that overlap, which decide the period of a pipeline; a maximum is over the devices."""

    BARRIER = "barrier"
    """max compute + max (receive + send): all exchange at once when the slowest has computed [auto-pipeline]."""
    OVERLAP = "overlap"
    """max (compute, receive + send): a device moves one micro-batch while it computes another [pipedream]."""
    SERIAL = "serial"
    """max (receive + compute + send): a device does one thing at a time [dnn-partitioning]."""
    DUPLEX = "duplex"
    """max (receive, compute, send): a device receives, computes and sends three micro-batches at once."""

    def cycles(self, compute: Collection[int], receive: Collection[int], send: Collection[int]) -> int:
        """The period of devices that spend so many cycles on each; one entry a device."""
        transfers = list(map(sum, zip(receive, send, strict=True)))
        if self is Period.BARRIER:
            return max(compute) + max(transfers)
        if self is Period.OVERLAP:
            return max(chain(compute, transfers))
        if self is Period.DUPLEX:
            return max(chain(compute, receive, send))
        return max(map(sum, zip(compute, transfers, strict=True)))


class Topology(StrEnum):
    """The devices with which a device exchanges tensors."""

    LINE = "line"
    """Its two neighbours, which pass on what is for others [auto-pipeline]."""
    ALL_TO_ALL = "all-to-all"
    """Any other, over its own links: a tensor is charged at its two ends only [dnn-partitioning]."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a pipeline.

    Attributes:
        memory_bytes: what one device holds; a fraction where MB of Graphcore's auto_pipeline are no whole bytes.
        n_tiles: processors on the device, each with a memory of its own.
        tile_memory_bytes: memory of one tile; `memory_proportion` is a share of it.
        price_per_hour: US dollars of an hour, as the user says; None where nobody does.
        power_limit_w: the most that it draws in watts; None where that is not known.
    """

    name: str
    clock_hz: float
    memory_bytes: float
    n_tiles: int
    tile_memory_bytes: int
    fp8: bool = False  # it can multiply in fp8
    price_per_hour: float | None = None
    power_limit_w: float | None = None


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
        alike. Raises BadInput if a transfer takes too many cycles to be added exactly.
        """
        with np.errstate(all="ignore"):  # what is not finite is refused
            cycles = self.idle_cycles + np.asarray(n_bytes, dtype=np.float64) / (self.bytes_per_s / clock_hz)
        longest = np.max(cycles, initial=0.0)
        if not longest <= MAX_EXACT:
            raise BadInput(f"a transfer must take at most 2**53 cycles, got {longest:.3g}; check bytes and GBps")
        return cycles.astype(np.int64) if isinstance(n_bytes, np.ndarray) else int(cycles)

    def load_cycles(self, n_bytes: Amount, clock_hz: float) -> Amount:
        """Cycles to load or store bytes; 0 for 0 bytes, without the latency of the link."""
        return (n_bytes > 0) * self.cycles(n_bytes, clock_hz)  # as 0 or 1, of numbers and of arrays


@dataclass(frozen=True, slots=True)
class StreamingMemory:
    """Memory beside a device, from and to which a running program loads and stores whole tensors.

    Attributes:
        bytes_per_s: what one device loads or stores in a second.
        idle_cycles: of the reference clock, before a load or store begins.
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


class MachineDevice(NamedTuple):
    """A device of a machine, by the index of the machine in its cluster and of the device in the machine."""

    machine: int
    device: int


@dataclass(frozen=True, slots=True)
class LinkedMachine:
    """Machines of one kind of devices.

    Attributes:
        machine: each of them; the last may have fewer devices.
        link: between two devices of one machine.
    """

    machine: Machine
    link: Link


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """Devices that are alike, in a cluster of several kinds of devices in any order.

    Attributes:
        device_link: from and to any other device.
        host_link: from and to the host.
        speed: how many times as fast as the profiled device these devices run layers, where a profile of one kind is
            planned (`autoauto/profile/importers/recorded.py`); None where nothing is known.
        linked: the machines of the devices. Pipelines of this kind alone use the links within machines; None where
            `device_link` joins any two devices.
    """

    device: Device
    n_devices: int
    device_link: Link
    host_link: Link
    speed: float | None = field(default=None, repr=False)
    linked: LinkedMachine | None = field(default=None, repr=False)


class _Line(TypedDict):
    devices: tuple[Device, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]


def _line(kinds: Sequence[DeviceKind]) -> _Line:
    """All devices, kind by kind, with the host at both ends."""
    devices: list[Device] = []
    links: list[Link] = []
    for kind in kinds:
        devices += [kind.device] * kind.n_devices
        links += [kind.device_link] * kind.n_devices
    return {
        "devices": tuple(devices),
        "receive_links": (kinds[0].host_link, *links[1:]),
        "send_links": (*links[:-1], kinds[-1].host_link),
    }


def _alone(kind: DeviceKind) -> tuple[_Line, Machine | None]:
    """The devices of a kind, machine after machine, with the host at both ends."""
    if kind.linked is None:
        return _line([kind]), None
    machine = kind.linked.machine
    between = []  # the link between every device and the next one
    for device in range(1, kind.n_devices):
        is_first = device % machine.n_devices == 0
        between.append(kind.device_link if is_first else kind.linked.link)
    line: _Line = {
        "devices": (kind.device,) * kind.n_devices,
        "receive_links": (kind.host_link, *between),
        "send_links": (*between, kind.host_link),
    }
    return line, machine


def joined(group: Sequence[Device]) -> Device:
    """A group of devices as one device, with the memory, the price and the power of all of them."""
    return replace(
        group[0],
        memory_bytes=sum(device.memory_bytes for device in group),
        tile_memory_bytes=sum(device.tile_memory_bytes for device in group),
        price_per_hour=_sum([device.price_per_hour for device in group]),
        power_limit_w=_sum([device.power_limit_w for device in group]),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    """The sum; None if any of the values is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _grouped(kind: DeviceKind, n_each: int) -> DeviceKind:
    """The kind with groups of `n_each` devices of one machine as its devices; the groups themselves have no machine."""
    size = kind.n_devices
    if kind.linked is not None:
        size = kind.linked.machine.n_devices
    n_full, rest = divmod(kind.n_devices, size)
    n_groups = n_full * (size // n_each) + rest // n_each
    return replace(kind, device=joined((kind.device,) * n_each), n_devices=n_groups, linked=None)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices in pipeline order, or of several kinds in any order; the host is at both ends.

    A device receives and sends at speeds of its own, as in the `connection` list of [auto-pipeline], so the two ends of
    one cable may differ.

    Attributes:
        target: the name of the target that the devices belong to, for example "ipu".
        receive_links: `receive_links[d]` enters device d; the host is behind the first.
        send_links: `send_links[d]` leaves device d; the host is behind the last.
        streaming_memory: what every device has beside its own memory; None when there is none.
        overlapped_host_links: the host's links into the first and out of the last device, where they transfer while the
            devices compute. `receive_links[0]` and `send_links[-1]` are then transfers within a device.
        machine: which devices share a connection to the host; None where every pipeline has its own.
        reference_hz: the reference clock, in which a plan counts all cycles; None is that of the first device.
        kinds: the kinds of devices that stand in any order in a pipeline; `devices` and their links list them kind by
            kind (`of_kinds`). Empty where the order is given.
    """

    name: str
    target: str
    devices: tuple[Device, ...]
    receive_links: tuple[Link, ...]
    send_links: tuple[Link, ...]
    streaming_memory: StreamingMemory | None = None
    overlapped_host_links: tuple[Link, Link] | None = None
    topology: Topology = Topology.LINE  # which devices exchange tensors
    machine: Machine | None = None
    reference_hz: float | None = field(default=None, repr=False)
    kinds: tuple[DeviceKind, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        assert len(self.devices) == len(self.receive_links) == len(self.send_links) > 0
        if self.kinds:
            line = _line(self.kinds)
            assert (self.devices, self.receive_links, self.send_links) == tuple(line.values())

    @staticmethod
    def of_kinds(name: str, target: str, kinds: Sequence[DeviceKind], topology: Topology = Topology.LINE) -> Cluster:
        """Devices of several kinds, of which any may receive from and send to any other, and the host."""
        return Cluster(name, target, **_line(kinds), topology=topology, kinds=tuple(kinds))

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def clock_hz(self) -> float:
        """The reference clock."""
        if self.reference_hz is None:
            return self.devices[0].clock_hz
        return self.reference_hz

    @property
    def speeds(self) -> tuple[Fraction, ...]:
        """Every device's clock relative to the reference clock."""
        reference = Fraction(self.clock_hz)
        return tuple(Fraction(device.clock_hz) / reference for device in self.devices)

    @property
    def by_kind(self) -> tuple[Cluster, ...]:
        """The devices of every kind alone, in a line; none where the order is given."""
        clusters = []
        for kind in self.kinds:
            line, machine = _alone(kind)
            clusters.append(replace(self, kinds=(), machine=machine, **line))
        return tuple(clusters)

    @property
    def machine_size(self) -> int:
        """Devices of a machine."""
        if self.machine is None:
            return len(self)
        return self.machine.n_devices

    def machine_device(self, device: int) -> MachineDevice:
        """A device by its machine."""
        return MachineDevice(*divmod(device, self.machine_size))

    def index(self, device: MachineDevice) -> int:
        """A device of a machine in the order of the cluster."""
        return device.machine * self.machine_size + device.device

    def first(self, n_ipu: int) -> Cluster:
        """The pipeline of the first `n_ipu` devices."""
        return self.part(0, n_ipu)

    def part(self, first: int, n_ipu: int) -> Cluster:
        """The pipeline of `n_ipu` neighbours; its ends have the host links of the ends of the cluster."""
        stop = first + n_ipu
        assert 0 <= first < stop <= len(self)
        assert not self.kinds
        devices = self.devices[first:stop]
        return replace(
            self,
            devices=devices,
            receive_links=(self.receive_links[0], *self.receive_links[first + 1 : stop]),
            send_links=(*self.send_links[first : stop - 1], self.send_links[-1]),
            reference_hz=None if devices[0].clock_hz == self.clock_hz else self.clock_hz,
        )

    def grouped(self, n_each: int) -> Cluster:
        """The cluster with groups of `n_each` neighbours of one machine as devices; each has the memory of its group.

        A larger number is of whole machines. Of several kinds they are of one kind each. Raises Infeasible if no
        machine, or no kind, has so many.
        """
        if n_each == 1:
            return self
        if self.kinds:
            kinds = tuple(_grouped(kind, n_each) for kind in self.kinds)
            if not any(kind.n_devices for kind in kinds):
                raise Infeasible(
                    f"a device of {n_each} must be of one kind, {self.name} has fewer of each; try fewer", 0
                )
            return replace(self, kinds=kinds, **_line(kinds))
        size = n_each if n_each % self.machine_size == 0 else self.machine_size
        firsts: list[int] = []  # the first device of every group
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            firsts += range(start, stop - n_each + 1, n_each)
        if not firsts:
            raise Infeasible(
                f"a device of {n_each} must lie in a machine, of which {self.name} has {size} at most; try fewer", 0
            )
        # A group receives over the link of its first device, and sends over the link before the next group.
        send_links = [self.send_links[first - 1] for first in firsts[1:]]
        machine = self.machine
        if machine is not None:
            machine = replace(machine, n_devices=max(1, machine.n_devices // n_each))
        return replace(
            self,
            devices=tuple(joined(self.devices[first : first + n_each]) for first in firsts),
            receive_links=tuple(self.receive_links[first] for first in firsts),
            send_links=(*send_links, self.send_links[-1]),
            machine=machine,
        )

    def host_cycles(self, in_bytes: int, out_bytes: int) -> int:
        """Cycles of the reference clock in which overlapped host links move a micro-batch in and another out."""
        if self.overlapped_host_links is None:
            return 0
        receive, send = self.overlapped_host_links
        return receive.cycles(in_bytes, self.clock_hz) + send.cycles(out_bytes, self.clock_hz)

    def with_headroom(self, share: float) -> Cluster:
        """This cluster with `share` of the memory of every device left free."""
        if not share:
            return self
        return self.with_each(lambda device: replace(device, memory_bytes=int(device.memory_bytes * (1.0 - share))))

    def with_each(self, change: Callable[[Device], Device]) -> Cluster:
        """This cluster with every device changed."""
        if self.kinds:
            return self._with_kinds([replace(kind, device=change(kind.device)) for kind in self.kinds])
        return replace(self, devices=tuple(map(change, self.devices)))

    def of_each(self, quantity: str) -> float | None:
        """The value of a field of `Device` if all devices have the same value; None if they differ or have none."""
        values = {getattr(device, quantity) for device in self.devices}
        return values.pop() if len(values) == 1 else None

    def check_quantity(self, quantity: str, what: str) -> None:
        """Refuse devices without a quantity that something needs, and a line of devices that differ in it.

        Raises BadInput if a device has none, or nobody can tell which of them a configuration uses.
        """
        lacking = sorted({device.name for device in self.devices if not getattr(device, quantity)})
        if lacking:
            option = " (of GPUs also --price)" if quantity == "price_per_hour" else ""
            raise BadInput(
                f"{what} needs {quantity} of every device, {self.name} has none of {', '.join(lacking)}; write it into "
                f"a cluster file{option}, or leave it out"
            )
        if self.of_each(quantity) is None and not self.kinds:
            raise BadInput(
                f"{what} needs devices of one {quantity}, or [[kinds]] of devices, {self.name} has a line of unlike "
                "ones; leave it out"
            )

    def total(self, quantity: str, used: Mapping[str, int]) -> float | None:
        """The sum of a quantity over the devices that a configuration uses; None where one of them has none.

        `used` has numbers of devices by the name of their kind, which makes no difference where all have the same.
        """
        each = self.of_each(quantity)
        if each is not None:
            return each * sum(used.values())
        by_name = {kind.device.name: getattr(kind.device, quantity) for kind in self.kinds}
        total = 0.0
        for name, n_devices in used.items():
            of_kind = by_name.get(name)
            if of_kind is None:
                return None
            total += of_kind * n_devices
        return total

    def with_synthetic_data(self) -> Cluster:
        """This cluster with data that is made on the devices: transfers over the links of the host cost nothing."""
        free = Link(bytes_per_s=inf, idle_cycles=0)
        if self.kinds:
            return self._with_kinds([replace(kind, host_link=free) for kind in self.kinds])
        return replace(
            self,
            receive_links=(free, *self.receive_links[1:]),
            send_links=(*self.send_links[:-1], free),
            machine=None,
        )

    def _with_kinds(self, kinds: Sequence[DeviceKind]) -> Cluster:
        return replace(self, kinds=tuple(kinds), **_line(kinds))


def content_of(part: object) -> object:
    """A cluster, or a part of it, as a dictionary of the fields that are not their defaults, for a digest.

    So a new field changes the digest of a cluster that sets the field only. Equal neighbours are counted.

    >>> content_of((Link(1.0, 3), Link(1.0, 3)))
    [({'bytes_per_s': 1.0, 'idle_cycles': 3}, 2)]
    """
    if isinstance(part, tuple):
        return [(content_of(first), sum(1 for _ in alike)) for first, alike in groupby(part)]
    if not is_dataclass(part):
        return part
    content = {}
    for each in fields(part):
        value = getattr(part, each.name)
        if value != each.default:
            content[each.name] = content_of(value)
    return content
