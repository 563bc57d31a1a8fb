"""Whether a core is as fast as it usually is: `SpeedProbe`.

A hardware thread shares its core with another one. While that one computes for another tenant of the machine, a process
still has its core all the time, and yet a network takes 1.3 times as long, for seconds (seen on virtual machines with
one hardware thread a core). On other machines the clock changes. Both show only in the time of a fixed amount of
arithmetic. A loop of the interpreter is a good probe: it takes 1.8 times as long in such a spell (correlation with ONNX
Runtime 0.8). A product of matrices is not: it hardly takes longer (0.1).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from platform import python_version
from time import perf_counter, thread_time_ns
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.targets.host.machine.machine import MachineCache

SLOW_FACTOR = 1.2
"""A core is slow when the arithmetic takes more than so many times its typical time."""

TYPICAL_QUANTILE = 0.2
"""The typical time is this quantile of the last `N_SAMPLES` samples. It is not their minimum, because a core that has
rested is faster for a moment. It is not their median, because a slow spell lasts up to half of a minute. Only when a
core has been slow for minutes does its slow time become typical."""

N_SAMPLES, SAMPLE_INTERVAL_S = 300, 1.0
"""How many samples count, and the time between two of them: samples in between are not recorded."""

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

    Raises:
        BadInput: `AUTOAUTO_PATIENCE_S` is not a number of seconds.
    """

    def __init__(self) -> None:
        self._patience_s, self._waited_s, self._start_s = _patience_s(), 0.0, perf_counter()
        self._cache = MachineCache("yardstick", 3, python_version())
        self._sampled_s, self._stored_s = 0.0, perf_counter()
        stored = self._cache.read(_stored_samples_ns) if self._patience_s else [1]
        self._samples_ns = deque(stored or (), N_SAMPLES)
        end_s = perf_counter() + CALIBRATION_S
        while not stored and perf_counter() < end_s:
            self._sample(CALIBRATION_S / N_CALIBRATION_SAMPLES)

    def factor(self) -> float:
        """How many times longer than typical everything takes now; 1 within the normal variation."""
        if not self._patience_s:
            return 1.0
        now_ns = self._sample()
        typical_ns = sorted(self._samples_ns)[int(TYPICAL_QUANTILE * len(self._samples_ns))]
        return now_ns / typical_ns if now_ns > SLOW_FACTOR * typical_ns else 1.0

    def wait(self) -> bool:
        """Wait until the core is fast, or patience ends; return whether there was a wait.

        The wait is busy. A thread that sleeps wakes up wherever the hypervisor has room, often on a shared core, while
        a busy thread is soon moved to a free one (on a rented machine after 0.1 s, where sleeping took 0.4 s).
        """
        start_s, waited = perf_counter(), False
        other_s = start_s - self._start_s - self._waited_s
        give_up_s = start_s + self._patience_s + min(0.0, MAX_WAIT_RATIO * other_s - self._waited_s)
        while self.factor() > 1.0 and perf_counter() < give_up_s:
            waited = True
        if waited:
            self._waited_s += perf_counter() - start_s
        return waited

    def _sample(self, interval_s: float = SAMPLE_INTERVAL_S) -> int:
        """Time the arithmetic; record the time when the last record is at least `interval_s` old."""
        now_ns, now_s = self._time_arithmetic_ns(), perf_counter()
        if now_s - self._sampled_s >= interval_s or not self._samples_ns:
            self._samples_ns.append(now_ns)
            self._sampled_s = now_s
        if now_s - self._stored_s >= CALIBRATION_S:
            self._cache.write({"looks_ns": list(self._samples_ns)})
            self._stored_s = now_s
        return now_ns

    def _time_arithmetic_ns(self) -> int:
        """The minimum of a few tries: the first one runs with a cold cache."""
        tries_ns = []
        for _ in range(N_TRIES):
            start_ns = thread_time_ns()
            sum(number * number for number in range(N_NUMBERS))
            tries_ns.append(thread_time_ns() - start_ns)
        return min(tries_ns)


def _patience_s() -> float:
    text = os.environ.get("AUTOAUTO_PATIENCE_S", str(PATIENCE_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInput(f"AUTOAUTO_PATIENCE_S must be a number of seconds, 0 or more, got {text!r}; try 10")
    return seconds


def _stored_samples_ns(numbers: Mapping[str, Any]) -> list[int]:
    samples_ns = [int(sample_ns) for sample_ns in numbers["looks_ns"]]
    if min(samples_ns, default=0) < 1:
        raise ValueError(f"must be at least 1 each, got {samples_ns}")
    return samples_ns
