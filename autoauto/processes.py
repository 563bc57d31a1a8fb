"""What all processes that we start have in common: they die with their parent and leave Ctrl-C to it."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

PR_SET_PDEATHSIG = 1


@contextmanager
def out_of_hearing() -> Iterator[None]:
    """Processes that are started meanwhile do not hear SIGINT, from their first moment on, unless they unblock it.

    A terminal sends it to all processes of a command; one that has not yet read what it shall do would print a
    traceback. In this process a SIGINT waits until they are started, for the same reason.
    """
    resource_tracker.ensure_running()  # when it starts with the first process, it unblocks SIGINT
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    defers = callable(handler) and threading.current_thread() is threading.main_thread()
    if defers:  # the mask is this thread's: another may take the signal, and Python raises it here
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if defers:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the one that started it ends; check that it has not ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
