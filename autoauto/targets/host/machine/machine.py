"""What this machine is: its clock in cycles, its cores, its name in every cache key."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from autoauto.records.installation import cache_dir

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


Made = TypeVar("Made")


class Kept:
    """A file of numbers that are this machine's own.

    A file that is broken is as good as none, which is told on stderr; a folder that cannot be written is left alone.

    Args:
        name: what the file begins with.
        about: what the numbers depend on besides the machine.
    """

    def __init__(self, name: str, *about: object) -> None:
        self._name, self._key = name, repr((*about, identity()))
        self._path = cache_dir() / f"{name}-{hashlib.sha256(self._key.encode()).hexdigest()[:16]}.json"

    def read(self, make: Callable[[Mapping[str, Any]], Made]) -> Made | None:
        """What `make` makes of the numbers; None where there are none."""
        try:
            return make(json.loads(self._path.read_text(encoding="utf-8")))
        except OSError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            told = f"the file of {self._name} times {self._path} is broken ({error!r}); they are measured again"
            print(f"autoauto: {told}", file=sys.stderr)
            return None

    def write(self, numbers: Mapping[str, float | list[int]]) -> None:
        """Replace all of the file or nothing, whatever ends this process."""
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            whole = self._path.with_suffix(f".{os.getpid()}")
            whole.write_text(json.dumps({"machine": self._key, **numbers}, indent=1) + "\n", encoding="utf-8")
            whole.replace(self._path)
