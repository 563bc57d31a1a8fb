"""Processes that we start leave Ctrl-C to their parent, `sigint_blocked`, and end with it, `die_with_parent`.

Where the machine's memory runs out, they end before it, `killed_first`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

PR_SET_PDEATHSIG = 1


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Processes that are started in this context block SIGINT from their first instruction on, unless they unblock it.

    A terminal sends SIGINT to all processes of a command, and a process that is still starting would print a traceback.
    In this process a SIGINT is deferred to the end of the context, so that it does not interrupt a start halfway.
    """
    resource_tracker.ensure_running()  # started now: a start together with the first process would unblock SIGINT
    deferred: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    defers = callable(handler) and threading.current_thread() is threading.main_thread()
    if defers:  # the mask is of this thread only: another may receive the signal, and Python runs the handler here
        signal.signal(signal.SIGINT, lambda number, _: deferred.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if defers:
            signal.signal(signal.SIGINT, handler)
        if deferred:
            signal.raise_signal(signal.SIGINT)


def leave_resource_tracker() -> None:
    """Let this process have a resource tracker of its own, once it needs one.

    That of its parent would write a traceback for whatever this process wrote to it by mistake.
    """
    tracker = resource_tracker._resource_tracker
    os.close(tracker.getfd() or 0)
    resource_tracker.ResourceTracker.__init__(tracker)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; end now when the parent has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def killed_first() -> None:
    """Let the kernel kill this process, and what it starts, before all others when the machine's memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
