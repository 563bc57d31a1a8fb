"""This machine as a cluster of devices, `host_cluster`, within the limits of its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Machine
from autoauto.records.units import MIB, format_bytes
from autoauto.targets.host.machine.link_times import LinkTimes, device_links
from autoauto.targets.host.machine.machine import CLOCK_HZ, cores

RESERVED_DIVISOR = 4
"""1/4 of the memory is reserved for the system and for the parent process with the model and the rings."""

RUNTIME_BYTES = 128 * MIB
"""Memory of a worker outside its budget: interpreter, NumPy and ONNX Runtime without a model."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def host_cluster(memory_bytes: int | None = None, links: LinkTimes | None = None) -> Cluster:
    """Describe this machine as devices of one core each, as many as this process may use.

    A core is a physical core with all its hardware threads, so that no two devices share one (`cores_of`). A CPU quota
    of the control group reduces the number of cores. Devices share the memory of the machine, or of its control groups,
    equally: first 1/4 is reserved, then 128 MiB a device for the runtime. Memory that is in use now is not subtracted,
    so that the cluster is the same every time. A cycle is a nanosecond. The host has no tiles: `n_tiles` is 1 and
    `tile_memory_bytes` the memory of the device. The links between devices are measured once and cached
    (`link_times`); the links to and from the parent process use rings of the same kind and count the same. All share
    the memory's bandwidth, measured too.

    Args:
        memory_bytes: memory of one device; its share of the machine's memory when None.
        links: cost of a message; measured when None.

    Raises:
        BadInput: the memory does not suffice for the devices.
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
    quotas = [quota for group in control_groups() if (quota := _cpu_quota(group)) is not None]
    return max(1, min([len(cores()), *(int(quota) for quota in quotas)]))


def total_bytes() -> int:
    """The machine's memory, at most what the limits of the control groups allow."""
    limits = [limit for group in control_groups() if (limit := _memory_limit(group)) is not None]
    return min([_machine_bytes(), *limits])


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


def _cpu_quota(group: Path) -> float | None:
    """Number of processors by `cpu.max` ("200000 100000", quota and period in microseconds); None without a limit."""
    limit, *period = _words(group / "cpu.max") or ["max"]
    return None if limit == "max" else int(limit) / int(period[0])


def _memory_limit(group: Path) -> int | None:
    """Bytes by `memory.max`; None without a limit."""
    limit = (_words(group / "memory.max") or ["max"])[0]
    return None if limit == "max" else int(limit)


def _machine_bytes() -> int:
    words = _words(Path("/proc/meminfo"))
    return int(words[words.index("MemTotal:") + 1]) * 1024


def _words(path: Path) -> list[str]:
    """Words of a file; none when the file does not exist."""
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
