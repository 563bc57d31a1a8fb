"""This machine: its clock, its cores (`cores_of`), its name (`identity`), and cached numbers (`MachineCache`)."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from autoauto.records.installation import cache_dir

CLOCK_HZ = 1e9
"""One cycle of a host device is a nanosecond, whatever the processor's clock is."""

_TOPOLOGY = Path("/sys/devices/system/cpu")

Value = TypeVar("Value")


def cores() -> tuple[tuple[int, ...], ...]:
    """The cores that this process may use, in ascending order, each as the numbers of its hardware threads."""
    allowed = os.sched_getaffinity(0)
    return tuple(sorted({tuple(sorted(siblings(number) & allowed)) for number in allowed}))


def siblings(number: int, topology: Path = _TOPOLOGY) -> set[int]:
    """All hardware threads of the core of hardware thread `number`; only itself when the kernel has no topology."""
    try:
        text = (topology / f"cpu{number}" / "topology" / "thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return {number}
    return {n for part in text.strip().split(",") for n in _span(part)} | {number}


def _span(part: str) -> range:
    """Read "4" or "4-7" as the kernel writes sets of numbers."""
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def cores_of(device: int, cores_per_device: int, among: Sequence[tuple[int, ...]] = ()) -> tuple[int, ...]:
    """The hardware threads of device `device`, which has `cores_per_device` cores that no other device has.

    Call it in the parent process: a pinned worker sees its own cores only. `among` are the cores of another machine.
    """
    device_cores = (among or cores())[device * cores_per_device : (device + 1) * cores_per_device]
    assert len(device_cores) == cores_per_device, (device, cores_per_device)
    return tuple(number for core in device_cores for number in core)


def core_beside_gpu(device: int) -> tuple[int, ...]:
    """The hardware threads of the core from which process `device` uses its GPU; few cores are shared."""
    return cores()[device % len(cores())]


@cache
def identity() -> str:
    """Processor model, number of usable cores, and kernel: what measured times depend on. Part of cache keys."""
    return f"{processor()}, {len(cores())} cores, {platform.system()} {platform.release()}"


def processor() -> str:
    """Processor model by /proc/cpuinfo, or the architecture when there is none."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def processor_clock_hz() -> float | None:
    """The highest clock of core 0 where the kernel knows it, else its present one; None where it says neither."""
    with suppress(OSError, ValueError):
        return int((_TOPOLOGY / "cpu0" / "cpufreq" / "cpuinfo_max_freq").read_text(encoding="ascii")) * 1e3
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "cpu MHz":
            return float(value) * 1e6
    return None


class MachineCache:
    """A file in the cache folder with numbers measured on this machine.

    A broken file counts as missing and causes a line on stderr. When the folder cannot be written, nothing is stored.

    Args:
        name: start of the file name.
        key_parts: what the numbers depend on besides the machine.
    """

    def __init__(self, name: str, *key_parts: object) -> None:
        self._name, self._key = name, repr((*key_parts, identity()))
        self._path = cache_dir() / f"{name}-{hashlib.sha256(self._key.encode()).hexdigest()[:16]}.json"

    def read(self, make: Callable[[Mapping[str, Any]], Value]) -> Value | None:
        """`make(numbers)`; None when there is no file, or when `make` rejects its numbers."""
        try:
            return make(json.loads(self._path.read_text(encoding="utf-8")))
        except OSError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            message = f"the file of {self._name} times {self._path} is broken ({error!r}); they are measured again"
            print(f"autoauto: {message}", file=sys.stderr)
            return None

    def write(self, numbers: Mapping[str, float | Sequence[float]]) -> None:
        """Replace the file as a whole, or not at all if this process is killed."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps({"machine": self._key, **numbers}, indent=1) + "\n", encoding="utf-8")
            temporary.replace(self._path)
