"""Processes that we start: they leave Ctrl-C to their parent, `sigint_blocked`, and end with it, `die_with_parent`.

Where the machine's memory runs out, they end before it, `killed_first`. All that a process has started can be listed,
ended and measured: `descendants`, `end_descendants`, `held_bytes`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

PR_SET_PDEATHSIG = 1
_POLL_S = 0.005


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


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, that those have started, and so on.

    Ended ones may be among them, and one that becomes an orphan just now may not.
    """
    children_of = _listed_children if Path(f"/proc/self/task/{os.getpid()}/children").exists() else _all_children().get
    processes = [pid]
    for process in processes:
        processes += children_of(process) or ()
    return processes[1:]


def _listed_children(pid: int) -> list[int]:
    """The children of a process, from a file that almost every kernel has (CONFIG_PROC_CHILDREN)."""
    children: list[int] = []
    with suppress(OSError):  # it has ended meanwhile, or a thread of it
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text(encoding="ascii").split())
    return children


def _all_children() -> dict[int, list[int]]:
    """The children of every process of this machine, which takes a hundred times as long."""
    children = defaultdict(list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            status = Path(f"/proc/{name}/stat").read_text(errors="replace")
            children[int(status.rpartition(")")[2].split()[1])].append(int(name))
    return children


def end_descendants() -> None:
    """Kill all descendants of this process, to which orphans among them must return, and wait until they are gone."""
    while True:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_POLL_S)


def held_bytes(pids: Iterable[int], limit_bytes: int) -> int:
    """Memory that processes hold together: their private memory and that which they share, without pages of files.

    What several of them share counts once, but only where the sum would else exceed `limit_bytes`: it takes longer.
    """
    pids = list(pids)
    total = sum(_entries(pid, "status", ("RssAnon:", "RssShmem:")) for pid in pids)
    if total > limit_bytes:
        total = sum(_entries(pid, "smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")) for pid in pids)
    return total


def _entries(pid: int, file: str, names: tuple[str, ...]) -> int:
    """The sum of some entries of a file of /proc, in bytes; 0 when the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(names))
