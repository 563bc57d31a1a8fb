"""This machine: its clock, its cores (`cores_of`), its name (`identity`), and cached numbers (`MachineCache`).

`SpeedProbe` notices when a core is slower than it typically is.

A hardware thread shares its core with another one. While that one computes for another tenant of the machine, a process
still has its core all the time, and yet a network takes 1.3 times as long, for seconds (seen on virtual machines with
one hardware thread a core). On other machines the clock changes. Both show only in the time of a fixed amount of
arithmetic. A loop of the interpreter is a good probe: it takes 1.8 times as long in such a spell (correlation with ONNX
Runtime 0.8). A product of matrices is not: it hardly takes longer (0.1).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from platform import python_version
from time import perf_counter, thread_time_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from autoauto.records.errors import BadInput
from autoauto.records.installation import cache_dir

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CLOCK_HZ = 1e9
"""One cycle of a host device is a nanosecond, whatever the CPU's clock is."""

_TOPOLOGY = Path("/sys/devices/system/cpu")

Value = TypeVar("Value")
Times = TypeVar("Times", bound="DataclassInstance")


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
    numbers = {number}
    for part in text.strip().split(","):  # "4" or "4-7"
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def cores_of(device: int, cores_per_device: int, among: Sequence[tuple[int, ...]] = ()) -> tuple[int, ...]:
    """The hardware threads of device `device`, which has `cores_per_device` cores that no other device has.

    Call it in the parent process: a pinned worker sees its own cores only. `among` are the cores of another machine.
    """
    return cores_from(device * cores_per_device, cores_per_device, among)


def cores_from(first: int, n_cores: int, among: Sequence[tuple[int, ...]] = ()) -> tuple[int, ...]:
    """The hardware threads of so many cores from the first on; see `cores_of`."""
    chosen = (among or cores())[first : first + n_cores]
    assert len(chosen) == n_cores, (first, n_cores)
    return tuple(number for core in chosen for number in core)


def core_beside_gpu(device: int) -> tuple[int, ...]:
    """The hardware threads of the core from which process `device` uses its GPU; few cores are shared."""
    return cores()[device % len(cores())]


@cache
def identity() -> str:
    """The model of the CPU, number of usable cores, and kernel: what measured times depend on. Part of cache keys."""
    return f"{cpu_model()}, {len(cores())} cores, {platform.system()} {platform.release()}"


class MachineLoad(NamedTuple):
    """The mean number of programs in a minute that want to compute, and the cores of the machine."""

    load: float
    n_cores: int

    def __str__(self) -> str:
        return f"a load of {self.load:.1f} on {self.n_cores} core{'s' * (self.n_cores > 1)}"


def excess_load() -> MachineLoad | None:
    """The load of this machine where it exceeds its hardware threads; None else, and where speed does not count.

    Raises BadInput if `AUTOAUTO_PATIENCE_S` is not a number of seconds.
    """
    if not seconds_of("AUTOAUTO_PATIENCE_S", PATIENCE_S):
        return None
    load = MachineLoad(round(os.getloadavg()[0], 1), os.cpu_count() or 1)
    return load if load.load > load.n_cores else None


def cpu_model() -> str:
    """The model of the CPU by /proc/cpuinfo, or the architecture when there is none."""
    return kernel_entry("/proc/cpuinfo", "model name") or platform.machine()


def cpu_clock_hz() -> float | None:
    """The highest clock of core 0, or its present clock where the kernel does not know that; None for neither."""
    with suppress(OSError, ValueError):
        return int((_TOPOLOGY / "cpu0" / "cpufreq" / "cpuinfo_max_freq").read_text(encoding="ascii")) * 1e3
    clock_mhz = kernel_entry("/proc/cpuinfo", "cpu MHz")
    return None if clock_mhz is None else float(clock_mhz) * 1e6


def kernel_entry(path: str, name: str) -> str | None:
    """The value in the first line "name: value" of a file of the kernel; None where there is no such line."""
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def kernel_bytes(path: str, name: str) -> int:
    """The value in such a line that ends in kB, in bytes."""
    value = kernel_entry(path, name)
    assert value is not None, f"{path} has no entry {name}"
    return 1024 * int(value.split()[0])


class MachineCache:
    """A file in the cache folder with numbers measured on this machine.

    A broken file counts as missing and causes a line on stderr. When the folder cannot be written, nothing is stored.

    Args:
        key_parts: values on which the numbers depend besides the machine.
    """

    def __init__(self, name: str, *key_parts: object) -> None:
        self._name, self._key = name, repr((*key_parts, identity()))
        self._path = cache_dir() / f"{name}-{hashlib.sha256(self._key.encode()).hexdigest()[:16]}.json"

    def times(self, kind: type[Times], measure: Callable[[], Times]) -> Times:
        """The times in the file, which `measure` measures if there are none; all fields of a `kind` are floats."""
        names = [field.name for field in fields(kind)]
        times = self.read(lambda numbers: kind(**{name: float(numbers[name]) for name in names}))
        if times is None:
            times = measure()
            self.write(asdict(times))
        return times

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


SLOW_FACTOR = 1.2
"""A core is slow when the arithmetic takes more than so many times its typical time."""

TYPICAL_QUANTILE = 0.2
"""The typical time is this quantile of the last `N_SAMPLES` samples. It is not their minimum, because a core that has
rested is faster for a moment. It is not their median, because a slow spell lasts up to half of a minute. Only when a
core has been slow for minutes does its slow time become typical."""

N_SAMPLES, SAMPLE_INTERVAL_S = 300, 1.0
"""The number of samples that count, and the time between two of them: samples in between are not recorded."""

PATIENCE_S, MAX_WAIT_RATIO = 10.0, 2.0
"""Maximum time of one wait for a fast core, and maximum ratio of the time of all waits to that of everything else.
`AUTOAUTO_PATIENCE_S` sets another patience; 0 switches the probe off."""

CALIBRATION_S, N_CALIBRATION_SAMPLES = 1.0, 20
"""Duration and number of samples of a calibration, and the time between two writes to the cache folder."""

N_TRIES, N_NUMBERS = 3, 2000


class SpeedProbe:
    """Times a little arithmetic (0.2 ms) on the calling thread's core and compares it with the typical time.

    Samples are stored in the cache folder for other processes of this machine. Without stored samples the constructor
    calibrates for a second.
    """

    def __init__(self) -> None:
        self._patience_s = seconds_of("AUTOAUTO_PATIENCE_S", PATIENCE_S)
        self._waited_s, self._start_s = 0.0, perf_counter()
        self._cache = MachineCache("yardstick", 3, python_version())
        self._sampled_s, self._stored_s = 0.0, perf_counter()
        stored = self._cache.read(_stored_samples_ns) if self._patience_s else [1]
        self._samples_ns = deque(stored or (), N_SAMPLES)
        end_s = perf_counter() + CALIBRATION_S
        while not stored and perf_counter() < end_s:
            self._sample(CALIBRATION_S / N_CALIBRATION_SAMPLES)

    def factor(self) -> float:
        """The time that the arithmetic takes now over its typical time; 1 within the normal variation."""
        if not self._patience_s:
            return 1.0
        now_ns = self._sample()
        typical_ns = sorted(self._samples_ns)[int(TYPICAL_QUANTILE * len(self._samples_ns))]
        if now_ns <= SLOW_FACTOR * typical_ns:
            return 1.0
        return now_ns / typical_ns

    def wait(self) -> bool:
        """Wait until the core is fast, or patience ends; return whether there was a wait.

        The wait is busy. A thread that sleeps wakes up wherever the hypervisor has room, often on a shared core, while
        a busy thread is soon moved to a free one (on a rented machine after 0.1 s, where sleeping took 0.4 s).
        """
        start_s, waited = perf_counter(), False
        # On a core that stays slow all waits together take at most `MAX_WAIT_RATIO` of the time of the work itself.
        other_s = start_s - self._start_s - self._waited_s
        give_up_s = start_s + self._patience_s + min(0.0, MAX_WAIT_RATIO * other_s - self._waited_s)
        while self.factor() > 1.0 and perf_counter() < give_up_s:
            waited = True
        if waited:
            self._waited_s += perf_counter() - start_s
        return waited

    def _sample(self, interval_s: float = SAMPLE_INTERVAL_S) -> int:
        """Time the arithmetic; record the time when the last record is at least `interval_s` old."""
        tries_ns = []
        for _ in range(N_TRIES):
            start_ns = thread_time_ns()
            sum(number * number for number in range(N_NUMBERS))
            tries_ns.append(thread_time_ns() - start_ns)
        now_ns, now_s = min(tries_ns), perf_counter()  # the first try runs with a cold cache
        if now_s - self._sampled_s >= interval_s or not self._samples_ns:
            self._samples_ns.append(now_ns)
            self._sampled_s = now_s
        if now_s - self._stored_s >= CALIBRATION_S:
            self._cache.write({"looks_ns": list(self._samples_ns)})
            self._stored_s = now_s
        return now_ns


def seconds_of(variable: str, default_s: float) -> float:
    """The seconds that a variable of the environment sets; the default if it is not set.

    Raises:
        BadInput: it is not a number of seconds.
    """
    text = os.environ.get(variable, str(default_s))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInput(f"{variable} must be a number of seconds, 0 or more, got {text!r}; try {default_s:g}")
    return seconds


def _stored_samples_ns(numbers: Mapping[str, Any]) -> list[int]:
    samples_ns = [int(sample_ns) for sample_ns in numbers["looks_ns"]]
    if min(samples_ns, default=0) < 1:
        raise ValueError(f"must be at least 1 each, got {samples_ns}")
    return samples_ns
