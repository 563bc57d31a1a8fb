"""A process and all that it started: `descendants`, `end_descendants`, `held_bytes`."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_POLL_S = 0.005


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
