"""This machine as a cluster: `host_cluster`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device
from autoauto.records.units import MIB, format_bytes
from autoauto.targets.host.machine.link_times import LinkTimes, device_links
from autoauto.targets.host.machine.machine import CLOCK_HZ, cores

OTHERS_SHARE = 4
"""One part in so many of the memory is not for devices: the system, and the parent with the model and the rings."""

RUNTIME_BYTES = 128 * MIB
"""A worker holds so much outside its budget: interpreter, NumPy and ONNX Runtime, none of it of a model."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def host_cluster(cores_per_device: int = 1, memory_bytes: int | None = None, links: LinkTimes | None = None) -> Cluster:
    """Describe this machine as devices of `cores_per_device` cores each, as many as this process may use.

    A core is a physical one with all its hardware threads, so that no two devices share one (`cores_of`); a quota of
    the control group allows fewer. A device's memory is its part of the machine's, or of what control groups allow: 1/4
    for all else and 128 MiB for each worker's runtime aside. What is in use now does not count, so that a machine is
    the same today and tomorrow. A cycle is a nanosecond. The host has no tiles: `n_tiles` is 1 and `tile_memory_bytes`
    the device's own memory. Links are measured once (`links`), the same between devices and at the host's ends, where
    the parent feeds and collects through rings of the same kind.

    Args:
        cores_per_device: cores, hence threads, of one device.
        memory_bytes: of one device; its part of all when None.
        links: what a message costs; measured when None.

    Raises:
        BadInput: there are fewer cores, or the machine's memory does not suffice for its devices.
    """
    n_cores = usable_cores()
    if not 1 <= cores_per_device <= n_cores:
        raise BadInput(
            f"cores_per_device must be 1 to {n_cores}, the cores this process may use; got {cores_per_device}"
        )
    n_devices = n_cores // cores_per_device
    if memory_bytes is None:
        memory_bytes = device_memory_bytes(total_bytes(), n_devices)
    if memory_bytes < 1:
        raise BadInput(f"the memory of a device must be 1 byte or more, got {memory_bytes}")
    times = links or device_links(cores_per_device, n_devices)
    name = "core" if cores_per_device == 1 else f"{cores_per_device} cores"
    return Cluster(
        name="host",
        target="host",
        devices=(Device(name, CLOCK_HZ, memory_bytes, 1, memory_bytes),) * n_devices,
        receive_links=(times.receive_link,) * n_devices,
        send_links=(times.send_link,) * n_devices,
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
    """A device's part of the memory.

    >>> device_memory_bytes(16 * 1024**3, 2) // MIB  # (16384 - 4096) / 2 - 128
    6016

    Raises:
        BadInput: nothing is left for it.
    """
    part = (total - total // OTHERS_SHARE) // n_devices - RUNTIME_BYTES
    if part < MIB:
        raise BadInput(
            f"{n_devices} devices need {format_bytes(RUNTIME_BYTES)} each and more, there are {format_bytes(total)}; "
            "try more cores per device"
        )
    return part


def control_groups(root: Path = _CONTROL_GROUPS, membership: Path = Path("/proc/self/cgroup")) -> Iterator[Path]:
    """The folders of this process's control group (version 2) and of all that it is in; none where there are none."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):
            group = Path(os.path.normpath(line.removeprefix("0::")))
            yield from (root / str(folder).lstrip("/") for folder in (group, *group.parents))


def _cpu_quota(group: Path) -> float | None:
    """Processors that `cpu.max` ("200000 100000", in microseconds) allows; None without a limit."""
    limit, *period = _words(group / "cpu.max") or ["max"]
    return None if limit == "max" else int(limit) / int(period[0])


def _memory_limit(group: Path) -> int | None:
    """What `memory.max` allows; None without a limit."""
    limit = (_words(group / "memory.max") or ["max"])[0]
    return None if limit == "max" else int(limit)


def _machine_bytes() -> int:
    words = _words(Path("/proc/meminfo"))
    return int(words[words.index("MemTotal:") + 1]) * 1024


def _words(path: Path) -> list[str]:
    """The words of a file, none where there is no such file."""
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
