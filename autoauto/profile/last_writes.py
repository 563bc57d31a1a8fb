"""Writes of objects that are gone, at a moment when no transaction is under way: `write_when_gone`, `write_waiting`.

An object in a cycle ends when the garbage collector runs, and that may be in the middle of a transaction of this very
thread. A write to the same database would wait for that transaction, and so for ever. So the end of an object only
says that there is something to write; it is written before the next read or write of another object, or at the end of
the process.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable
from weakref import finalize

_WAITING: deque[Callable[[], None]] = deque()
_ENDS: list[bool] = []
"""Not empty once the process ends: objects that end later write by themselves."""


def write_when_gone(owner: object, write: Callable[[], None]) -> None:
    """Have something written some time after an object is gone, at the latest when the process ends."""

    def gone() -> None:
        if _ENDS:
            write()
        else:
            _WAITING.append(write)

    finalize(owner, gone)


def write_waiting() -> None:
    """Write what objects left that are gone; not to be called within a transaction."""
    while _WAITING:
        _WAITING.popleft()()


@atexit.register
def _end() -> None:
    _ENDS.append(True)
    write_waiting()
