"""Whether a core is as fast as it has been: `Yardstick`.

A hardware thread shares its core with another. Where that one works for another tenant of the machine, a process has
its core all the time, and yet everything takes up to 1.6 times longer, for seconds (seen on virtual machines with one
thread a core); on other machines it is the clock that changes. Only a yardstick tells.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from time import perf_counter, sleep, thread_time_ns
from typing import Any

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.targets.host.kept import Kept

SLOW = 1.2
"""A core is slow when arithmetic takes so many times what it took at best."""

PATIENCE_S = 10.0
"""A core that is slow for so long has a new speed; `AUTOAUTO_PATIENCE_S` tells another time, 0 not to look at speed."""

CALIBRATION_S = 1.0
PAUSE_S = 0.05
N_TRIES, N_PRODUCTS, SIZE = 3, 2, 128


class Yardstick:
    """Times a little arithmetic on the calling thread's core, a third of a millisecond, beside the best so far.

    The best is kept for other processes of this machine. Where none is, a second is spent on finding it.

    Raises:
        BadInput: `AUTOAUTO_PATIENCE_S` is no time.
    """

    def __init__(self) -> None:
        self._patience_s = _patience_s()
        self._matrix = np.full((SIZE, SIZE), 0.5, np.float32)
        self._product = np.empty_like(self._matrix)
        self._kept = Kept("yardstick", 1, np.__version__)
        self._now_ns()  # the BLAS library allocates its buffers at the first product
        best_ns = self._kept.read(_best_ns) if self._patience_s else 1
        self._best_ns = best_ns or self._calibrate()

    def factor(self) -> float:
        """How many times longer than at best everything takes now; 1 when that is within what always varies."""
        if not self._patience_s:
            return 1.0
        now_ns = self._now_ns()
        if now_ns < 0.98 * self._best_ns:
            self._set(now_ns)
        return now_ns / self._best_ns if now_ns > SLOW * self._best_ns else 1.0

    def wait(self) -> bool:
        """Wait until the core is fast, and tell whether it had to; out of patience, the present speed is the best."""
        give_up_s = perf_counter() + self._patience_s
        waited = False
        while self.factor() > 1.0:
            waited = True
            if perf_counter() > give_up_s:
                self._set(self._now_ns())
            sleep(PAUSE_S)
        return waited

    def _calibrate(self) -> int:
        end_s, best_ns = perf_counter() + CALIBRATION_S, self._now_ns()
        while perf_counter() < end_s:
            best_ns = min(best_ns, self._now_ns())
        self._set(best_ns)
        return best_ns

    def _set(self, best_ns: int) -> None:
        self._best_ns = best_ns
        self._kept.write({"best_ns": best_ns})

    def _now_ns(self) -> int:
        """The least of a few tries: the first finds other things in the cache."""
        tries = []
        for _ in range(N_TRIES):
            begin = thread_time_ns()
            for _ in range(N_PRODUCTS):
                np.matmul(self._matrix, self._matrix, out=self._product)
            tries.append(thread_time_ns() - begin)
        return min(tries)


def _patience_s() -> float:
    text = os.environ.get("AUTOAUTO_PATIENCE_S", str(PATIENCE_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadInput(f"AUTOAUTO_PATIENCE_S must be a number of seconds, 0 or more, got {text!r}; try 10")
    return seconds


def _best_ns(numbers: Mapping[str, Any]) -> int:
    best_ns = int(numbers["best_ns"])
    if best_ns < 1:
        raise ValueError(f"must be at least 1, got {best_ns}")
    return best_ns
