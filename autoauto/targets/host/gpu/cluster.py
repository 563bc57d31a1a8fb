"""GPUs of this machine as a cluster of devices, one process each: `gpu_cluster`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from autoauto.processes.channel import Channel
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.units import MIB, Array
from autoauto.targets.host.gpu.driver import cuda_driver
from autoauto.targets.host.gpu.gpus import Gpu
from autoauto.targets.host.machine import CLOCK_HZ, MachineCache, core_beside_gpu
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.transport.shared_memory import Ring

VERSION = 1
MESSAGE_BYTES = 16 * MIB
"""Long enough that the start of a copy hardly counts."""
N_COPIES, N_ROUNDS = 15, 5


@dataclass(frozen=True, slots=True)
class GpuLinkTimes:
    """Times of copies between a ring of the host and a GPU.

    Attributes:
        to_s, from_s: time of a copy of a few bytes to the GPU, or from it.
        to_bytes_per_s, from_bytes_per_s: rates of long copies.
        pinned: 1 where the ring's memory is pinned, 0 where the system does not allow that.
    """

    to_s: float
    from_s: float
    to_bytes_per_s: float
    from_bytes_per_s: float
    pinned: float

    def __post_init__(self) -> None:
        if not min(self.to_s, self.from_s) >= 0 or not min(self.to_bytes_per_s, self.from_bytes_per_s) > 0:
            raise ValueError(f"times of a link must be 0 or more and its speeds above 0, got {self}")

    @property
    def receive_link(self) -> Link:
        """The link as the device that receives sees it."""
        return Link(self.to_bytes_per_s, round(self.to_s * CLOCK_HZ))

    @property
    def send_link(self) -> Link:
        """The link as the device that sends sees it."""
        return Link(self.from_bytes_per_s, round(self.from_s * CLOCK_HZ))


def _measure(gpu: Gpu) -> GpuLinkTimes:
    ring = Ring.create(1, MESSAGE_BYTES)
    with closing(ring), Workers() as workers:
        workers.start("the copies of a link", _copy_in_worker, gpu.uuid, core_beside_gpu(0), ring)
        times: GpuLinkTimes = workers.receive(0)
    return times


def _copy_in_worker(connection: Channel, uuid: str, cores: tuple[int, ...], ring: Ring) -> None:
    os.sched_setaffinity(0, cores)
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    driver = cuda_driver()
    try:
        driver.pin(ring.memory)
        pinned = True
    except BadInput:
        pinned = False
    address = driver.allocate(MESSAGE_BYTES)  # freed with the process
    message = np.frombuffer(ring.reserve(), np.uint8)
    to_s, to_rate = time_and_rate(lambda array: driver.to_gpu(address, array), message)
    from_s, from_rate = time_and_rate(lambda array: driver.from_gpu(array, address), message)
    connection.send(GpuLinkTimes(to_s, from_s, to_rate, from_rate, float(pinned)))


def time_and_rate(copy: Callable[[Array], None], message: Array) -> tuple[float, float]:
    """Seconds of a copy of the first bytes of a message, and bytes a second of the others."""
    few = message[:64]
    few_s, all_s = _shortest(copy, few), _shortest(copy, message)
    return few_s, (len(message) - len(few)) / max(all_s - few_s, 1e-9)


def _shortest(copy: Callable[[Array], None], message: Array) -> float:
    """The shortest of the medians of a few rounds: other processes only make times longer."""
    medians = []
    for _ in range(N_ROUNDS):
        times = []
        for _ in range(N_COPIES):
            start = perf_counter()
            copy(message)
            times.append(perf_counter() - start)
        medians.append(median(times))
    return min(medians)


def gpu_cluster(gpus: Sequence[Gpu], memory_bytes: int | None = None, links: GpuLinkTimes | None = None) -> Cluster:
    """Describe like GPUs as devices in a line. A cycle is a nanosecond.

    A GPU that occurs several times is as many devices, that is processes, which have equal parts of its memory; the
    estimate knows nothing of the time that they take from each other. What the runtime itself needs of the memory is
    part of a device's budget, as in a stage. Every device has a bus of its own to the memory of the host, through which
    all tensors between devices go.

    Args:
        memory_bytes: memory of one device; its part of a GPU's when None.

    Raises:
        BadInput: the memory is less than one byte, or more than the part of a GPU.
    """
    part_bytes = gpus[0].memory_bytes // max(Counter(gpu.uuid for gpu in gpus).values())
    if memory_bytes is None:
        memory_bytes = part_bytes
    if not 1 <= memory_bytes <= part_bytes:
        raise BadInput(f"the memory of a device must be 1 to {part_bytes} bytes here, got {memory_bytes}")
    first, n = gpus[0], len(gpus)
    cache = MachineCache("gpu-links", VERSION, first.name, first.driver)
    times = links or cache.times(GpuLinkTimes, lambda: _measure(first))
    return Cluster(
        name="cuda" if n == 1 else f"cuda-x{n}",
        target="host",
        devices=(Device(first.name, CLOCK_HZ, memory_bytes, 1, memory_bytes),) * n,
        receive_links=(times.receive_link,) * n,
        send_links=(times.send_link,) * n,
    )
