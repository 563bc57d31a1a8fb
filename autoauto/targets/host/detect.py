"""This machine as a cluster of devices, `host_cluster`, within the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from autoauto.processes.channel import Channel
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, Machine
from autoauto.records.units import MIB, format_bytes
from autoauto.targets.host.gpu.gpus import GPU_PREFIX, gpu_links, gpus
from autoauto.targets.host.machine import CLOCK_HZ, MachineCache, cores, cores_of, cpu_clock_hz, cpu_model, kernel_bytes
from autoauto.targets.host.processes import WorkerGroup, Workers
from autoauto.targets.host.transport.shared_memory import Ring

LINKS_VERSION = 4

MESSAGE_BYTES = 4 * MIB
"""Larger than the caches of one core, as the activations of large models are."""

COPIED_BYTES, N_COPIES = 64 * MIB, 20
"""Larger than the part of a shared cache that a core can have; and the number of copies."""
MAX_COPYING = 8
"""With more devices each copies less, so that all arrays together are as large as for so many devices."""

N_SLOTS = 2
N_EMPTY, N_LARGE, N_ROUNDS = 100, 15, 5
"""Empty messages and long messages of a round, and the number of rounds."""


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """Times of a message from one process to another through a ring.

    Attributes:
        send_s: time that the writer spends on an empty message.
        latency_s: time from then until a sleeping reader has the message.
        write_bytes_per_s: rate at which the writer copies a message into the ring.
        read_bytes_per_s: rate at which the reader reads the message for the first time, from another core's caches.
        memory_bytes_per_s: rate at which all cores together write to memory, when all of them copy at the same time.
    """

    send_s: float
    latency_s: float
    write_bytes_per_s: float
    read_bytes_per_s: float
    memory_bytes_per_s: float

    def __post_init__(self) -> None:
        rates = self.write_bytes_per_s, self.read_bytes_per_s, self.memory_bytes_per_s
        if not min(self.send_s, self.latency_s) >= 0 or not min(rates) > 0:
            raise ValueError(f"times of a link must be 0 or more and its speeds above 0, got {self}")

    @property
    def send_link(self) -> Link:
        """The link as the process that sends sees it."""
        return Link(self.write_bytes_per_s, round(self.send_s * CLOCK_HZ))

    @property
    def receive_link(self) -> Link:
        """The link as the process that receives sees it."""
        return Link(self.read_bytes_per_s, round(self.latency_s * CLOCK_HZ))


def device_links(n_devices: int) -> LinkTimes:
    """The times between the first two devices, or from the only one to itself, and the memory of all."""
    return measured_links([cores_of(device, 1) for device in range(n_devices)])


def measured_links(devices: Sequence[tuple[int, ...]]) -> LinkTimes:
    """The times of devices with these cores, from the cache folder where this machine has measured them before."""
    return MachineCache("links", LINKS_VERSION, *devices).times(LinkTimes, lambda: measure(devices))


def measure(devices: Sequence[tuple[int, ...]]) -> LinkTimes:
    """Send messages from a process on the first device's cores to one on the second's, then copy on those of all.

    It takes about two seconds.
    """
    first, second = devices[0], devices[min(1, len(devices) - 1)]
    messages, replies = Ring.create(N_SLOTS, MESSAGE_BYTES), Ring.create(N_SLOTS, 1)
    with closing(messages), closing(replies), Workers() as workers:
        times = message_times((workers, first), (workers, second), (messages, messages), (replies, replies))
    return LinkTimes(*times, memory_bytes_per_s(devices))


def message_times(
    sender: tuple[WorkerGroup, tuple[int, ...]],
    receiver: tuple[WorkerGroup, tuple[int, ...]],
    messages: tuple[Any, Any],
    replies: tuple[Any, Any],
) -> tuple[float, float, float, float]:
    """The times of messages from one process to another, as the first fields of `LinkTimes`.

    Args:
        sender, receiver: where each process is started, and on which cores.
        messages, replies: both ends of the channels from the sender to the receiver and back, that which writes first.
    """
    (writers, first), (readers, second) = sender, receiver
    writer = writers.start("the writer of a link", _write, first, messages[0], replies[1])
    reader = readers.start("the reader of a link", _read_all, second, messages[1], replies[0])
    trip_s, send_s, write_s = writers.receive(writer)
    read_s = readers.receive(reader)
    return send_s, max(0.0, trip_s / 2 - send_s), MESSAGE_BYTES / write_s, MESSAGE_BYTES / read_s


def memory_bytes_per_s(devices: Sequence[tuple[int, ...]]) -> float:
    """The rate at which processes on the cores of all devices together copy arrays that no cache holds.

    Copies of a round are made at about the same time. The fastest round counts: other processes only make it slower.
    """
    n_bytes = COPIED_BYTES * MAX_COPYING // max(MAX_COPYING, len(devices))
    with ExitStack() as stack:
        begin = [stack.enter_context(closing(Ring.create(1, 1))) for _ in devices]
        workers = stack.enter_context(Workers())
        for number, cores in enumerate(devices):
            workers.start(f"copy {number}", _copy, cores, n_bytes, begin[number])
        for number in range(len(devices)):
            workers.receive(number)  # all have their arrays before the first starts to copy
        for ring in begin:
            ring.finish()
        seconds = np.array([workers.receive(number) for number in range(len(devices))])  # by device and copy
        return float((n_bytes / seconds).sum(axis=0).max())


def _copy(connection: Channel, cores: tuple[int, ...], n_bytes: int, begin: Ring) -> None:
    """In every process: when all are ready, report the seconds of each of several copies."""
    os.sched_setaffinity(0, cores)
    source, target = np.ones((2, n_bytes), np.uint8)
    connection.send(None)
    begin.peek()
    times = []
    for _ in range(N_COPIES):
        start = perf_counter()
        np.copyto(target, source)
        times.append(perf_counter() - start)
    connection.send(times)


def _write(connection: Channel, cores: tuple[int, ...], messages: Any, replies: Any) -> None:
    """In the first process: report seconds of a round trip, of sending an empty message and of writing a long one."""
    os.sched_setaffinity(0, cores)
    message = np.ones(MESSAGE_BYTES, np.uint8)

    def empty() -> tuple[float, float]:
        start = perf_counter()
        messages.reserve()
        messages.commit(0)
        sent = perf_counter()
        replies.peek()
        replies.release()
        return perf_counter() - start, sent - start

    def long() -> float:
        slot = np.frombuffer(messages.reserve(), np.uint8)
        start = perf_counter()
        np.copyto(slot, message)
        messages.commit(MESSAGE_BYTES)
        stop = perf_counter()
        replies.peek()
        replies.release()
        return stop - start

    rounds = []
    for _ in range(N_ROUNDS):
        trip_s, sent_s = np.median([empty() for _ in range(N_EMPTY)], axis=0)
        rounds.append((trip_s, sent_s, np.median([long() for _ in range(N_LARGE)])))
    messages.finish()
    connection.send(np.min(rounds, axis=0).tolist())  # other processes only make times longer


def _read_all(connection: Channel, cores: tuple[int, ...], messages: Any, replies: Any) -> None:
    """In the second process: reply to every message, and report the seconds of reading a long one."""
    os.sched_setaffinity(0, cores)
    times = []
    while messages.wait():
        start = perf_counter()
        view = messages.peek()
        assert view is not None
        if len(view):
            np.frombuffer(view, np.float32).max()
            times.append(perf_counter() - start)
        messages.release()
        replies.reserve()
        replies.commit(0)
    connection.send(min(median(times[n::N_ROUNDS]) for n in range(N_ROUNDS)))


RESERVED_DIVISOR = 4
"""1/4 of the memory is reserved for the system and for the parent process with the model and the rings."""

RUNTIME_BYTES = 128 * MIB
"""Memory of a worker outside its budget: interpreter, NumPy and ONNX Runtime without a model."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def host_cluster(memory_bytes: int | None = None, links: LinkTimes | None = None) -> Cluster:
    """Describe this machine as devices of one core each, as many as this process may use.

    A core is a physical core with all its hardware threads, so that no two devices share one. Devices share the memory
    equally: first 1/4 is reserved, then 128 MiB a device for the runtime. Memory that is in use now is not subtracted,
    so that the cluster is the same every time. A cycle is a nanosecond. The host has no tiles: `n_tiles` is 1 and
    `tile_memory_bytes` the memory of the device. The links to and from the parent process use rings of the same kind
    as those between devices and count the same.

    Args:
        memory_bytes: memory of one device; its share of the machine's memory when None.

    Raises BadInput if the memory does not suffice for the devices.
    """
    n_devices = usable_cores()
    if memory_bytes is None:
        memory_bytes = device_memory_bytes(total_bytes(), n_devices)
    if memory_bytes < 1:
        raise BadInput(f"the memory of a device must be 1 byte or more, got {memory_bytes}")
    times = links or device_links(n_devices)
    return Cluster(
        name="host",
        target="host",
        devices=(Device("core", CLOCK_HZ, memory_bytes, 1, memory_bytes),) * n_devices,
        receive_links=(times.receive_link,) * n_devices,
        send_links=(times.send_link,) * n_devices,
        machine=Machine(n_devices, times.memory_bytes_per_s),
    )


def usable_cores() -> int:
    """The cores this process may use, at most what the quotas of its control groups allow, at least 1."""
    quota = cpu_quota()
    return len(cores()) if quota is None else max(1, min(len(cores()), int(quota)))


def cpu_quota() -> float | None:
    """The CPUs that the control groups of this process allow in the mean; None without a quota."""
    quotas = []
    for group in control_groups():
        limit, *period = _words(group / "cpu.max") or ["max"]  # quota and period in microseconds
        if limit != "max":
            quotas.append(int(limit) / int(period[0]))
    return min(quotas, default=None)


def total_bytes() -> int:
    """The machine's memory, at most what the limits of the control groups allow."""
    limits = [kernel_bytes("/proc/meminfo", "MemTotal")]
    for group in control_groups():
        words = _words(group / "memory.max")
        if words and words != ["max"]:
            limits.append(int(words[0]))
    return min(limits)


def device_memory_bytes(total: int, n_devices: int) -> int:
    """A device's share of the memory.

    >>> device_memory_bytes(16 * 1024**3, 2) // MIB  # (16384 - 4096) / 2 - 128
    6016

    Raises:
        BadInput: less than 1 MiB is left for a device.
    """
    share_bytes = (total - total // RESERVED_DIVISOR) // n_devices - RUNTIME_BYTES
    if share_bytes < MIB:
        raise BadInput(
            f"{n_devices} devices need {format_bytes(RUNTIME_BYTES)} each and more, there are {format_bytes(total)}; "
            "try more cores per device"
        )
    return share_bytes


def control_groups(root: Path = _CONTROL_GROUPS, membership: Path = Path("/proc/self/cgroup")) -> Iterator[Path]:
    """Folders of this process's control group (version 2) and of all its ancestors, innermost first; maybe none."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            group = Path(os.path.normpath(line.removeprefix("0::")))
            yield from (root / str(folder).lstrip("/") for folder in (group, *group.parents))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []


def machine_source(*, has_cores: bool, has_gpus: bool) -> str:
    """The sources of the figures of the machine's cores and GPUs, in words."""
    memory, links = [], []
    if has_cores:
        memory.append("/proc, /sys and the control groups")
        links.append("messages between two cores")
    if has_gpus:
        memory.append("nvidia-smi")
        links.append("copies between pinned memory of the host and a GPU")
    return (
        f"detected on {datetime.now(UTC):%Y-%m-%d} by `autoauto clusters --detect`; memory: {', '.join(memory)}; "
        f"links: {', '.join(links)}, measured; a cycle is a nanosecond whatever the clock is"
    )


def machine_comments() -> tuple[str, ...]:
    """CPU and GPUs, one a line: names, memory, clocks, and what connects the GPUs."""
    clock_hz = cpu_clock_hz()
    clock = "" if clock_hz is None else f" at {clock_hz / 1e9:.2f} GHz"
    cpu = f"{cpu_model()}: {usable_cores()} usable cores{clock}, {format_bytes(total_bytes())} of memory"
    return (cpu, *_gpu_lines())


def _gpu_lines() -> Iterator[str]:
    try:
        detected, links = gpus(), {}
        if len(detected) > 1:
            links = gpu_links()
    except BadInput as error:
        yield f"GPUs: {error}"
        return
    if not detected:
        yield "GPUs: none that nvidia-smi finds"
    for gpu in detected:
        clock = f" at {gpu.clock_hz / 1e9:.2f} GHz" if gpu.clock_hz else ""
        name = f"{GPU_PREFIX}{gpu.number}: {gpu.name}{clock}"
        yield f"{name}, {format_bytes(gpu.memory_bytes)} of memory, driver {gpu.driver}"
    for (first, second), words in sorted(links.items()):
        if first < second:
            yield f"GPU {first} and GPU {second} of nvidia-smi: {words}"
