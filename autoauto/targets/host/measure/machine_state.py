"""Reasons why measurements on this machine are slow, which are printed before they begin: `MachineState`.

cores of the machine     ████████████████   os.cpu_count
affinity                 ████████           what this process may use
quota of control groups  █████              on average: a thread more, and all wait for the next period
load of other programs   ██████████████████████████
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autoauto.targets.host.detect import cpu_quota, usable_cores
from autoauto.targets.host.machine import MachineLoad, cores, excess_load

_CPUS, _ZONES = Path("/sys/devices/system/cpu"), Path("/sys/class/thermal")


class MachineState(NamedTuple):
    """This machine before a search.

    Attributes:
        n_cores: hardware threads of the machine.
        n_allowed: cores that affinity leaves to this process.
        quota_cores: what the control groups allow in the mean; None without a quota.
        load: of the machine, where its cores do not suffice for it.
        n_throttled: times that heat has slowed down a core since the machine was started, as the kernel counts them.
        hot: the sensor that is at its first limit, where there is one.
    """

    n_cores: int
    n_allowed: int
    quota_cores: float | None
    n_threads: int
    load: MachineLoad | None
    n_throttled: int
    hot: str

    @property
    def threads_text(self) -> str:
        """The number of threads that compute, and why there are not more, in words."""
        quota = "no quota" if self.quota_cores is None else f"a quota of {self.quota_cores:.3g}"
        return f"at most {self.n_threads} threads compute, on {self.n_allowed} of {self.n_cores} cores, with {quota}"

    @property
    def warnings(self) -> Iterator[str]:
        """The disturbances of measurements, a sentence without a full stop each."""
        if self.load is not None:
            times = self.load.load / self.load.n_cores
            yield (
                f"busy machine: {self.load}, so that measurements take about {times:.1f} times as long and scatter; "
                "try --busy wait or --busy stop"
            )
        if self.quota_cores is not None and self.quota_cores < self.n_allowed:
            yield f"a quota of the control group: {self.threads_text}; an engine with more threads is many times slower"
        if self.n_throttled:
            yield f"heat has slowed down cores {self.n_throttled:,} times since the machine was started"
        if self.hot:
            yield f"{self.hot}, so cores may become slower while they are measured"

    def to_json(self) -> dict[str, Any]:
        """All numbers as JSON has them."""
        return self._asdict() | {"load": None if self.load is None else self.load._asdict()}


def machine_state() -> MachineState:
    """This machine now."""
    return MachineState(
        n_cores=os.cpu_count() or 1,
        n_allowed=len(cores()),
        quota_cores=cpu_quota(),
        n_threads=usable_cores(),
        load=excess_load(),
        n_throttled=n_throttled(),
        hot=hot_sensor(),
    )


def n_throttled(cpus: Path = _CPUS) -> int:
    """Times that cores were slowed down by heat, by the counters of the kernel; 0 where there are none."""
    counts = (_number(path) for path in cpus.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    return sum(count or 0 for count in counts)


def hot_sensor(zones: Path = _ZONES) -> str:
    """A sensor at the first temperature at which something is slowed down; empty where there is none."""
    for zone in sorted(zones.glob("thermal_zone*")):
        now = _number(zone / "temp")
        limits = []
        for kind in zone.glob("trip_point_*_type"):
            limit = _number(kind.with_name(kind.name.replace("_type", "_temp")))
            if _text(kind) in ("passive", "hot", "critical") and limit is not None and limit > 0:
                limits.append(limit)
        if now is not None and limits and now >= min(limits):
            return (
                f"{_text(zone / 'type') or zone.name} has {now / 1e3:.0f} degrees, its limit is {min(limits) / 1e3:.0f}"
            )
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None
