"""What the devices of a cluster are on this machine, cores or GPUs: `HostDevices`.

Devices that differ: `devices_named` in --device, and `unlike_cluster`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
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
        n_cores: that compute; 0 where the GPU does.
        gpu: the GPU, if it is one.
    """

    n_cores: int
    gpu: Gpu | None = None

    @property
    def name(self) -> str:
        """That of devices like it."""
        if self.gpu is not None:
            return self.gpu.name
        return "core" if self.n_cores == 1 else f"{self.n_cores} cores"


def devices_named(text: str) -> tuple[NamedDevice, ...]:
    """The devices of a text like "cpu:2,cuda:0": first those with cores, the most cores first, then the GPUs.

    Raises:
        BadInput: a word names no device of this machine, GPUs are not alike, or all devices are cores and alike.
        MissingExtra: there is no runtime for GPUs.
    """
    named = _each_named([word.strip() for word in text.split(",")])
    if len(set(named)) == 1 and not named[0].gpu:
        _check_cores("--device names", sum(device.n_cores for device in named), 0)
        raise BadInput(
            f"--device is for GPUs and for unlike devices, got {text!r}; leave it out, and join cores by "
            f"--cores-per-device {named[0].n_cores}"
        )
    return tuple(sorted(named, key=lambda device: -device.n_cores))


def _each_named(words: Sequence[str]) -> list[NamedDevice]:
    """The device of every word."""
    on_gpus = [word for word in words if word.partition(":")[0] != CORES]
    if on_gpus:
        check_cuda_installed(f"--device {','.join(words)}")
    gpus = iter(gpus_named(",".join(on_gpus)) if on_gpus else ())
    return [NamedDevice(0, next(gpus)) if word in on_gpus else NamedDevice(_n_cores(word)) for word in words]


@cache
def like_gpus() -> str:
    """What --device calls the GPUs of this machine that are like the first; nothing if there are none."""
    with suppress(BadInput):  # CPUs work without the driver
        here = gpus_here()
        return ",".join(f"{GPU_PREFIX}{gpu.number}" for gpu in here if gpu.name == here[0].name)
    return ""


def gpus_of(named: Sequence[NamedDevice]) -> tuple[str, ...]:
    """The UUID of the GPU of every device, empty for one of cores; nothing where all are cores."""
    gpus = tuple(device.gpu.uuid if device.gpu else "" for device in named)
    return gpus if any(gpus) else ()


def _n_cores(word: str) -> int:
    number = word.partition(":")[2] or "1"
    if not (number.isascii() and number.isdigit() and int(number)):
        raise BadInput(f"--device takes {CORES} or {CORES}:N with N cores, 1 or more, and {GPU_PREFIX}0, got {word!r}")
    return int(number)


def unlike_cluster(named: Sequence[NamedDevice]) -> Cluster:
    """Describe devices of several kinds, which may stand in any order. A cycle is a nanosecond.

    Every core has an equal part of the machine's memory, as in `host_cluster`, and so has the process beside a GPU. A
    device sends and receives at the mean of the two speeds that are measured for one like it.

    Args:
        named: as `devices_named` returns them.

    Raises:
        BadInput: there are fewer cores, or too little memory.
    """
    gpus = [device.gpu for device in named if device.gpu]
    n_cores = sum(device.n_cores for device in named)
    _check_cores("--device names", n_cores, len(gpus))
    part_bytes, times = device_memory_bytes(total_bytes(), n_cores + len(gpus)), device_links(usable_cores())
    kinds = [
        _kind(
            Device(device.name, CLOCK_HZ, device.n_cores * part_bytes, device.n_cores, part_bytes),
            n_devices,
            times.receive_link,
            times.send_link,
        )
        for device, n_devices in Counter(device for device in named if not device.gpu).items()
    ]
    if gpus:
        alone = gpu_cluster(gpus)
        kinds.append(_kind(alone.devices[0], len(gpus), alone.receive_links[0], alone.send_links[0]))
    return Cluster.of_kinds("host-unlike", "host", kinds)


def check_named(given: Cluster, named: Sequence[NamedDevice]) -> None:
    """Refuse a described cluster of other devices than --device names, or with more cores than there are.

    Raises:
        BadInput: it is one.
    """
    described = [(kind.n_devices, kind.device.n_tiles, kind.device.name) for kind in given.kinds]
    described = described or [(len(given), 1, given.devices[0].name)]
    counts = Counter((device.n_cores, device.name) for device in named)
    asked = [(n_devices, n_cores or 1, name) for (n_cores, name), n_devices in counts.items()]
    if named and [kind[:2] for kind in described] != [kind[:2] for kind in asked]:
        here, wanted = (", ".join(f"{n} x {name}" for n, _, name in kinds) for kinds in (described, asked))
        raise BadInput(
            f"{given.name} has {here}, --device names {wanted}; `autoauto clusters --detect --device ...` writes a "
            "file that fits"
        )
    n_cores = sum(device.n_cores for device in named) if named else sum(n * each for n, each, _ in described)
    _check_cores(f"{given.name} has", n_cores, sum(device.gpu is not None for device in named))


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
    """The cores and GPUs of the devices of a cluster; by default cores of which all are alike.

    Attributes:
        gpus: the UUID of the GPU of every device, empty for one of cores; no entry where all are cores.
        unlike: every device, where they are of several kinds; `Device.n_tiles` is then how many cores one has.
    """

    gpus: tuple[str, ...] = ()
    unlike: tuple[Device, ...] = ()

    @classmethod
    def listed(cls, names: Sequence[str]) -> HostDevices:
        """The GPUs with these `names`, in this order.

        Raises:
            BadInput: this machine has no such device.
            MissingExtra: there is no runtime for GPUs.
        """
        named = _each_named(names)
        kinds = (Device(device.name, CLOCK_HZ, 1, max(device.n_cores, 1), 1) for device in named)
        return cls(gpus_of(named), () if all(device.gpu for device in named) else tuple(kinds))

    @property
    def names(self) -> tuple[str, ...]:
        """What --device calls every device; nothing where all are cores and alike.

        Raises:
            BadInput: nvidia-smi fails.
        """
        numbers = {gpu.uuid: gpu.number for gpu in gpus_here()} if self.has_gpus else {}
        return tuple(
            f"{GPU_PREFIX}{numbers[self.gpu(number)]}" if self.gpu(number) else f"{CORES}:{self._n_cores(number)}"
            for number in range(len(self.unlike or self.gpus))
        )

    @property
    def has_cores(self) -> bool:
        """True if the device is cores of the CPU."""
        return not self.gpus or "" in self.gpus

    @property
    def has_gpus(self) -> bool:
        """Whether GPUs compute."""
        return any(self.gpus)

    def number(self, device: Device) -> int:
        """The first device of a kind."""
        return next((n for n, other in enumerate(self.unlike) if other.name == device.name), 0)

    def session(self, number: int, options: CompileOptions) -> SessionOptions:
        """How a session on a device computes; beside cores a GPU has the knobs that both runtimes have."""
        if self.gpu(number) and self.has_cores:
            own = {knob.field for knob in CudaSession.knobs if knob is not CORES_PER_DEVICE}
            shared = {name: value for name, value in options.session.values.items() if name in own}
            return SessionOptions(1, CudaSession(**shared), self.gpu(number))
        return SessionOptions(self._n_cores(number) * options.group_size, options.session, self.gpu(number))

    def cores(self, number: int, n_threads: int, among: Sequence[tuple[int, ...]] = ()) -> tuple[int, ...]:
        """The hardware threads of a device that has so many cores, or of the core beside its GPU.

        Args:
            number: of the device.
            n_threads: of its session.
            among: the cores of another machine.
        """
        if not self.unlike:
            return core_beside_gpu(number) if self.gpus else cores_of(number, n_threads, among)
        first = sum(device.n_tiles for device in self.unlike[:number])  # a GPU counts as the core beside it
        return core_beside_gpu(first) if self.gpu(number) else cores_from(first, n_threads)

    def n_cores_through(self, number: int, n_threads: int) -> int:
        """How many cores a device and those before it have; 0 for a GPU, since the core beside it may be shared."""
        if self.gpu(number):
            return 0
        return sum(device.n_tiles for device in self.unlike[: number + 1]) or (number + 1) * n_threads

    def check(self, options: CompileOptions) -> None:
        """Refuse options with which these devices do not compute.

        Raises:
            BadInput: the runtime computes elsewhere, or cores and GPUs have no such format in common.
        """
        session = options.session
        if computes_on_gpus(str(session.runtime)) == self.has_cores:
            given = "cores" if self.has_cores else "--device with GPUs"
            raise BadInput(f"--runtime cuda and --device cuda:0 go together, got {session.runtime} and {given}")
        if self.has_cores and self.has_gpus and session.computes_in is not Precision.FP32:
            raise BadInput(f"cores and GPUs both compute in fp32 only, got --precision {session.computes_in}; try fp32")

    def gpu(self, number: int) -> str:
        """The UUID of the GPU of a device; empty for one of cores."""
        return self.gpus[number] if self.gpus else ""

    def _n_cores(self, number: int) -> int:
        """Cores of a device before any are joined."""
        return self.unlike[number].n_tiles if self.unlike else 1


ALIKE = HostDevices()
"""Cores of which all are alike."""
