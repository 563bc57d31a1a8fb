"""Whether a core is as fast as it has been: `Yardstick`.

A hardware thread shares its core with another. Where that one works for another tenant of the machine, a process has
its core all the time, and yet a network takes 1.3 times as long, for seconds (seen on virtual machines with one thread
a core); on other machines it is the clock that changes. Only a yardstick tells. The interpreter is one: its loop takes
1.8 times as long then (correlation with ONNX Runtime 0.8), a product of matrices hardly longer (0.1).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from platform import python_version
from time import perf_counter, thread_time_ns
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.targets.host.machine.machine import Kept

SLOW = 1.2
"""A core is slow when arithmetic takes so many times what it usually takes."""

FAST = 0.2
"""Of the last `N_LOOKS` looks, at most one in `LOOK_S`, the share that took no longer than is usual. Not the shortest
of them: a core that has rested is faster for a moment. Slow ones are usual when there are hardly others, for minutes: a
slow spell lasts up to half of one."""
N_LOOKS, LOOK_S = 300, 1.0

PATIENCE_S, MOST_WAITING = 10.0, 2.0
"""So long is waited for a fast core, and beyond that so many times what else is done takes; `AUTOAUTO_PATIENCE_S` tells
another time, 0 not to look at speed."""

CALIBRATION_S, N_FIRST = 1.0, 20
"""So long are looks gathered where none are kept, and how many; so often they are kept."""

N_TRIES, N_NUMBERS = 3, 2000


class Yardstick:
    """Times a little arithmetic on the calling thread's core, a fifth of a millisecond, beside what is usual.

    The last looks are kept for other processes of this machine. Where there are none, a second is spent on some.

    Raises:
        BadInput: `AUTOAUTO_PATIENCE_S` is no time.
    """

    def __init__(self) -> None:
        self._patience_s, self._waited_s, self._began_s = _patience_s(), 0.0, perf_counter()
        self._kept = Kept("yardstick", 3, python_version())
        self._looked_s, self._kept_s = 0.0, perf_counter()
        known = self._kept.read(_looks_ns) if self._patience_s else [1]
        self._looks_ns = deque(known or (), N_LOOKS)
        end_s = perf_counter() + CALIBRATION_S
        while not known and perf_counter() < end_s:
            self._look(CALIBRATION_S / N_FIRST)

    def factor(self) -> float:
        """How many times longer than usual everything takes now; 1 when that is within what always varies."""
        if not self._patience_s:
            return 1.0
        now_ns, usual_ns = self._look(), sorted(self._looks_ns)[int(FAST * len(self._looks_ns))]
        return now_ns / usual_ns if now_ns > SLOW * usual_ns else 1.0

    def wait(self) -> bool:
        """Wait until the core is fast or patience is at its end, and tell whether it had to.

        It stays awake: a thread that sleeps wakes where the machine's owner finds room, often on a core that is shared,
        and one that is awake is soon moved (on a rented machine after 0.1 s, where naps took 0.4).
        """
        begin_s, waited = perf_counter(), False
        else_s = begin_s - self._began_s - self._waited_s
        give_up_s = begin_s + self._patience_s + min(0.0, MOST_WAITING * else_s - self._waited_s)
        while self.factor() > 1.0 and perf_counter() < give_up_s:
            waited = True
        if waited:
            self._waited_s += perf_counter() - begin_s
        return waited

    def _look(self, apart_s: float = LOOK_S) -> int:
        """What arithmetic takes now; looks that follow close upon each other count as one."""
        now_ns, now_s = self._now_ns(), perf_counter()
        if now_s - self._looked_s >= apart_s or not self._looks_ns:
            self._looks_ns.append(now_ns)
            self._looked_s = now_s
        if now_s - self._kept_s >= CALIBRATION_S:
            self._kept.write({"looks_ns": list(self._looks_ns)})
            self._kept_s = now_s
        return now_ns

    def _now_ns(self) -> int:
        """The least of a few tries: the first finds other things in the cache."""
        tries = []
        for _ in range(N_TRIES):
            begin = thread_time_ns()
            sum(number * number for number in range(N_NUMBERS))
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


def _looks_ns(numbers: Mapping[str, Any]) -> list[int]:
    looks_ns = [int(look_ns) for look_ns in numbers["looks_ns"]]
    if min(looks_ns, default=0) < 1:
        raise ValueError(f"must be at least 1 each, got {looks_ns}")
    return looks_ns
