"""What this machine is: its clock in cycles, its cores, its name in every cache key."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

CLOCK_HZ = 1e9
"""One cycle of a host device is a nanosecond, whatever the processor's clock does."""

_TOPOLOGY = Path("/sys/devices/system/cpu")


def cores() -> tuple[tuple[int, ...], ...]:
    """The cores that this process may use, each as the numbers of its hardware threads; in the order of the first."""
    allowed = os.sched_getaffinity(0)
    found = {tuple(sorted(siblings(number) & allowed)) for number in allowed}
    return tuple(sorted(found))


def siblings(number: int, topology: Path = _TOPOLOGY) -> set[int]:
    """The hardware threads of the core that has this one; itself where the kernel does not tell."""
    try:
        text = (topology / f"cpu{number}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return {number}
    return {n for part in text.strip().split(",") for n in _span(part)} | {number}


def _span(part: str) -> range:
    """Read "4" or "4-7" as the kernel writes sets of numbers."""
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def cores_of(device: int, cores_per_device: int) -> tuple[int, ...]:
    """The hardware threads that device `device` runs on: those of its `cores_per_device` cores, and of no other device.

    The parent asks: a worker that is pinned sees its own cores alone.
    """
    own = cores()[device * cores_per_device : (device + 1) * cores_per_device]
    assert len(own) == cores_per_device, (device, cores_per_device)
    return tuple(number for core in own for number in core)


@cache
def identity() -> str:
    """The processor's model, how many cores this process may use, and the kernel: what measured times depend on."""
    return f"{_processor()}, {len(cores())} cores, {platform.system()} {platform.release()}"


def _processor() -> str:
    """The processor's model as /proc/cpuinfo names it, its architecture where it does not."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
