"""GPUs of this machine as a cluster of devices, one process each: `gpu_cluster`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device
from autoauto.targets.host.gpu.detect import Gpu
from autoauto.targets.host.gpu.links import GpuLinkTimes, gpu_link_times
from autoauto.targets.host.machine.machine import CLOCK_HZ


def gpu_cluster(gpus: Sequence[Gpu], memory_bytes: int | None = None, links: GpuLinkTimes | None = None) -> Cluster:
    """Describe like GPUs as devices in a line. A cycle is a nanosecond.

    A GPU that occurs several times is as many devices, that is processes, which have equal parts of its memory; the
    estimate knows nothing of the time that they take from each other. What the runtime itself needs of the memory is
    part of a device's budget, as in a stage. Every device has a bus of its own to the memory of the host, through which
    all tensors between devices go.

    Args:
        gpus: in pipeline order.
        memory_bytes: memory of one device; its part of a GPU's when None.
        links: cost of a copy; measured when None.

    Raises:
        BadInput: the memory is less than one byte, or more than the part of a GPU.
    """
    part_bytes = gpus[0].memory_bytes // max(Counter(gpu.uuid for gpu in gpus).values())
    if memory_bytes is None:
        memory_bytes = part_bytes
    if not 1 <= memory_bytes <= part_bytes:
        raise BadInput(f"the memory of a device must be 1 to {part_bytes} bytes here, got {memory_bytes}")
    times, n = links or gpu_link_times(gpus[0]), len(gpus)
    return Cluster(
        name="cuda" if n == 1 else f"cuda-x{n}",
        target="host",
        devices=(Device(gpus[0].name, CLOCK_HZ, memory_bytes, 1, memory_bytes),) * n,
        receive_links=(times.receive_link,) * n,
        send_links=(times.send_link,) * n,
    )
