"""The cores or GPUs of this machine that the devices of a cluster are: `HostDevices`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import NamedTuple

from autoauto.records.costs.options import CompileOptions, SessionOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link
from autoauto.records.units import Precision
from autoauto.targets.host.detect import device_links, device_memory_bytes, total_bytes, usable_cores
from autoauto.targets.host.gpu.cluster import gpu_cluster
from autoauto.targets.host.gpu.gpus import GPU_PREFIX, Gpu, gpus_named
from autoauto.targets.host.gpu.gpus import gpus as gpus_here
from autoauto.targets.host.machine import CLOCK_HZ, core_beside_gpu, cores_from, cores_of
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.registry import check_cuda_installed, computes_on_gpus
from autoauto.targets.host.runtimes.session import CORES_PER_DEVICE

CORES = "cpu"
"""The word of --device for cores; "cpu:4" is a device of four."""


class NamedDevice(NamedTuple):
    """A device that --device names.

    Attributes:
        n_cores: cores that compute; 0 where a GPU computes.
    """

    n_cores: int
    gpu: Gpu | None = None

    @property
    def name(self) -> str:
        """The name of its kind: like devices have the same."""
        if self.gpu is not None:
            return self.gpu.name
        if self.n_cores == 1:
            return "core"
        return f"{self.n_cores} cores"


def devices_named(text: str | None) -> tuple[NamedDevice, ...]:
    """The devices of a text like "cpu:2,cuda:0": those with the most cores first, the GPUs last; none without a text.

    Raises:
        BadInput: a word names no device of this machine, GPUs differ, or all devices are like groups of cores.
        MissingExtra: there is no runtime for GPUs.
    """
    if text is None:
        return ()
    named = _each_named([word.strip() for word in text.split(",")])
    if len(set(named)) == 1 and not named[0].gpu:
        _check_cores("--device names", sum(device.n_cores for device in named), 0)
        raise BadInput(
            f"--device is for GPUs and for unlike devices, got {text!r}; leave it out, and join cores by "
            f"--cores-per-device {named[0].n_cores}"
        )
    return tuple(sorted(named, key=lambda device: -device.n_cores))


def _each_named(words: Sequence[str]) -> list[NamedDevice]:
    is_gpu = [word.partition(":")[0] != CORES for word in words]
    gpus: Iterator[Gpu] = iter(())
    if any(is_gpu):
        check_cuda_installed(f"--device {','.join(words)}")
        # All in one call, which also checks that they are alike.
        gpus = iter(gpus_named(",".join(compress(words, is_gpu))))
    devices = []
    for word, on_gpu in zip(words, is_gpu, strict=True):
        if on_gpu:
            devices.append(NamedDevice(0, next(gpus)))
            continue
        number = word.partition(":")[2] or "1"
        if not (number.isascii() and number.isdigit() and int(number)):
            raise BadInput(
                f"--device takes {CORES} or {CORES}:N with N cores, 1 or more, and {GPU_PREFIX}0, got {word!r}"
            )
        devices.append(NamedDevice(int(number)))
    return devices


@cache
def like_gpus() -> str:
    """The names in --device of the GPUs of this machine that are like the first, with commas; empty without GPUs."""
    try:
        here = gpus_here()
    except BadInput:  # CPUs work without the driver
        return ""
    return ",".join(f"{GPU_PREFIX}{gpu.number}" for gpu in here if gpu.name == here[0].name)


def gpus_of(named: Sequence[NamedDevice]) -> tuple[str, ...]:
    """The UUID of the GPU of every device, empty for cores; no entries if all devices are cores."""
    if not any(device.gpu for device in named):
        return ()
    return tuple(device.gpu.uuid if device.gpu else "" for device in named)


def unlike_cluster(named: Sequence[NamedDevice]) -> Cluster:
    """Describe devices of several kinds, which may stand in any order. A cycle is a nanosecond.

    Every core has an equal part of the machine's memory, as in `host_cluster`, and so has the process beside a GPU. A
    device sends and receives at the mean of the two speeds that are measured for a device of its kind.

    Raises:
        BadInput: there are fewer cores, or too little memory.
    """
    gpus = [device.gpu for device in named if device.gpu]
    n_cores = sum(device.n_cores for device in named)
    _check_cores("--device names", n_cores, len(gpus))
    part_bytes = device_memory_bytes(total_bytes(), n_cores + len(gpus))
    times = device_links(usable_cores())
    kinds = []
    for named_device, n_devices in Counter(device for device in named if not device.gpu).items():
        n = named_device.n_cores
        device = Device(named_device.name, CLOCK_HZ, n * part_bytes, n, part_bytes)
        kinds.append(_kind(device, n_devices, times.receive_link, times.send_link))
    if gpus:
        alone = gpu_cluster(gpus)
        kinds.append(_kind(alone.devices[0], len(gpus), alone.receive_links[0], alone.send_links[0]))
    return Cluster.of_kinds("host-unlike", "host", kinds)


def check_named(given: Cluster, named: Sequence[NamedDevice]) -> None:
    """Raise BadInput for a described cluster of other devices than --device names, or with more cores than are here."""
    # Kinds as their number of devices, the cores of each (1 beside a GPU), and their name.
    described = [(kind.n_devices, kind.device.n_tiles, kind.device.name) for kind in given.kinds]
    if not described:
        described = [(len(given), 1, given.devices[0].name)]
    if not named:
        _check_cores(f"{given.name} has", sum(n_devices * n_cores for n_devices, n_cores, _ in described), 0)
        return
    counts = Counter((device.n_cores, device.name) for device in named)
    asked = [(n_devices, n_cores or 1, name) for (n_cores, name), n_devices in counts.items()]
    # Names may differ: a file may have been written on another machine.
    if [kind[:2] for kind in described] != [kind[:2] for kind in asked]:
        raise BadInput(
            f"{given.name} has {_in_words(described)}, --device names {_in_words(asked)}; "
            "`autoauto clusters --detect --device ...` writes a file that fits"
        )
    n_gpus = sum(device.gpu is not None for device in named)
    _check_cores(f"{given.name} has", sum(device.n_cores for device in named), n_gpus)


def _in_words(kinds: Sequence[tuple[int, int, str]]) -> str:
    return ", ".join(f"{n_devices} x {name}" for n_devices, _, name in kinds)


def _check_cores(has: str, n_cores: int, n_gpus: int) -> None:
    """Refuse more cores than there are; what starts the kernels of a GPU would wait for threads on the same core."""
    if n_cores and n_cores + n_gpus > usable_cores():
        gpus = f", and one more for each GPU of {n_gpus}" if n_gpus else ""
        raise BadInput(f"{has} {n_cores} cores{gpus}, this process may use {usable_cores()}; try fewer")


def _kind(device: Device, n_devices: int, receive: Link, send: Link) -> DeviceKind:
    """A kind whose link takes the mean time of the two."""
    rate = 2 / (1 / receive.bytes_per_s + 1 / send.bytes_per_s)
    link = Link(rate, (receive.idle_cycles + send.idle_cycles) // 2)
    return DeviceKind(device, n_devices, link, link)


@dataclass(frozen=True, slots=True)
class HostDevices:
    """The cores and GPUs of the devices of a cluster; by default all devices are single cores.

    Attributes:
        gpus: the UUID of the GPU of every device, empty for cores; no entries if all devices are cores.
        unlike: every device, if they are of several kinds; `Device.n_tiles` is then its number of cores.
    """

    gpus: tuple[str, ...] = ()
    unlike: tuple[Device, ...] = ()

    @classmethod
    def listed(cls, names: Sequence[str]) -> HostDevices:
        """The devices with these `names`, in this order.

        Raises:
            BadInput: this machine has no such device.
            MissingExtra: there is no runtime for GPUs.
        """
        named = _each_named(names)
        if all(device.gpu for device in named):
            return cls(gpus_of(named))
        kinds = (Device(device.name, CLOCK_HZ, 1, max(device.n_cores, 1), 1) for device in named)
        return cls(gpus_of(named), tuple(kinds))

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every device in --device; no names if all are single cores.

        Raises BadInput if nvidia-smi fails.
        """
        numbers = {gpu.uuid: gpu.number for gpu in gpus_here()} if self.has_gpus else {}
        names = []
        for device in range(len(self.unlike or self.gpus)):
            gpu = self.gpu(device)
            names.append(f"{GPU_PREFIX}{numbers[gpu]}" if gpu else f"{CORES}:{self._n_cores(device)}")
        return tuple(names)

    @property
    def has_cores(self) -> bool:
        """True if some device is cores of the CPU."""
        return not self.gpus or "" in self.gpus

    @property
    def has_gpus(self) -> bool:
        """True if some device is a GPU."""
        return any(self.gpus)

    def number(self, device: Device) -> int:
        """The number of the first device like `device`."""
        return next((n for n, other in enumerate(self.unlike) if other.name == device.name), 0)

    def session(self, number: int, options: CompileOptions) -> SessionOptions:
        """The session of a device; a GPU beside cores takes the knobs that its runtime shares with theirs."""
        if self.gpu(number) and self.has_cores:
            own = {knob.field for knob in CudaSession.knobs if knob is not CORES_PER_DEVICE}
            shared = {name: value for name, value in options.session.values.items() if name in own}
            return SessionOptions(1, CudaSession(**shared), self.gpu(number))
        return SessionOptions(self._n_cores(number) * options.group_size, options.session, self.gpu(number))

    def cores(self, number: int, n_threads: int, among: Sequence[tuple[int, ...]] = ()) -> tuple[int, ...]:
        """The hardware threads of the cores of a device, or of the core beside its GPU.

        Args:
            n_threads: threads of its session, hence its cores if it has no GPU.
        """
        if not self.unlike:
            return core_beside_gpu(number) if self.gpus else cores_of(number, n_threads, among)
        # Cores of the devices before this one; a GPU counts as the core beside it.
        first = sum(device.n_tiles for device in self.unlike[:number])
        return core_beside_gpu(first) if self.gpu(number) else cores_from(first, n_threads)

    def n_cores_through(self, number: int, n_threads: int) -> int:
        """The cores of a device and of all before it; 0 for a GPU, since the core beside it may be shared."""
        if self.gpu(number):
            return 0
        if self.unlike:
            return sum(device.n_tiles for device in self.unlike[: number + 1])
        return (number + 1) * n_threads

    def check(self, options: CompileOptions) -> None:
        """Raise BadInput for options with which these devices do not compute."""
        session = options.session
        if computes_on_gpus(str(session.runtime)) == self.has_cores:
            given = "cores" if self.has_cores else "--device with GPUs"
            raise BadInput(f"--runtime cuda and --device cuda:0 go together, got {session.runtime} and {given}")
        if self.has_cores and self.has_gpus and session.computes_in is not Precision.FP32:
            raise BadInput(f"cores and GPUs both compute in fp32 only, got --precision {session.computes_in}; try fp32")

    def gpu(self, number: int) -> str:
        """The UUID of the GPU of a device; empty for cores."""
        return self.gpus[number] if self.gpus else ""

    def _n_cores(self, number: int) -> int:
        return self.unlike[number].n_tiles if self.unlike else 1


ALIKE = HostDevices()
"""Devices that are all single cores."""
