"""Processes that we start: they leave Ctrl-C to their parent, `sigint_blocked`, and end with it, `die_with_parent`.

Where the machine's memory runs out, they end before it, `killed_first`. All that a process has started can be listed,
ended and measured: `descendants`, `end_descendants`, `held_bytes`.

A process that is ended with all that it started, however it or its parent ends: `GuardedProcess`.

    this process ──▶ guard ──▶ the process ──▶ its children, also those in sessions of their own
         ╰──────── channel ────────╯

The guard adopts orphans below it (PR_SET_CHILD_SUBREAPER). When the process ends, when its memory and that of its
children exceed the limit, or when this process closes it or dies, the guard kills all that is left, and reports why.
It waits for processes, never for the end of a file, which a grandchild may keep open. It forks the process off before
the main module is imported, so that it costs no start of an interpreter, and no thread is lost. Linux 5.4 or later.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from multiprocessing import current_process, resource_tracker, spawn
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, NamedTuple

from autoauto.processes.channel import Channel

PR_SET_PDEATHSIG = 1
UNGUARDED = 101
"""Exit code of a process whose main module would start processes while it is imported."""
UNGUARDED_HINT = (
    "processes that a script starts import it again, so it must search and measure below "
    '`if __name__ == "__main__":`, got a script that does so at its top; move that there'
)
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


def end_if_unguarded() -> None:
    """End this process if it imports its main module: what that starts would start the same again, without end."""
    if getattr(current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


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


PR_SET_CHILD_SUBREAPER = 36
END_S = 10.0
"""Maximum time that the guard may take to end everything, until it is killed itself."""

_WATCH_S = 0.05
_REAP_S = 1.0
_MAX_WATCH_SHARE = 0.02  # of a core


class Ending(NamedTuple):
    """How a process ended.

    Attributes:
        exit_code: its exit code; minus the number of the signal that killed it.
        held_bytes: the memory for which it was killed; 0 otherwise.
    """

    exit_code: int
    held_bytes: int = 0


class GuardedProcess:
    """A new process that calls `main(channel, *args)`; see the top of this file. It ignores Ctrl-C.

    When memory runs out it is the first that the kernel kills.

    Args:
        main: a function of a module; it and the arguments are pickled.
        log: where its output is written.
        memory_bytes: limit of the data segment of every process (RLIMIT_DATA), and of the memory of all together.

    Attributes:
        channel: this end of the channel.
        guard: the process number of the guard.
    """

    def __init__(self, main: Callable[..., None], args: tuple[object, ...], log: IO[bytes], memory_bytes: int | None):
        call = pickle.dumps((main, args))
        end_if_unguarded()
        preparation = spawn.get_preparation_data("autoauto measurement")
        del preparation["authkey"]
        self.channel, theirs = Channel.pair()
        self._control, guards_control = socket.socketpair()
        task = os.memfd_create("autoauto-task")
        with open(task, "wb", closefd=False) as file:
            file.write(pickle.dumps((theirs.key, preparation)) + call)
        fds = (theirs.fileno(), guards_control.fileno(), task)
        with sigint_blocked():
            self._process = subprocess.Popen(
                _command(f"run{(*fds, os.getpid(), memory_bytes)}"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=fds,
                start_new_session=True,
            )
        os.close(task)
        theirs.close()
        guards_control.close()
        self.guard = self._process.pid
        self._pidfd = os.pidfd_open(self.guard)

    @property
    def descriptors(self) -> tuple[int, int]:
        """One of them is readable when a message has arrived or the process has ended."""
        return self.channel.fileno(), self._pidfd

    def ending(self, timeout_s: float = 0.0) -> Ending | None:
        """How it ended, or ends within a time; None while it runs."""
        if not wait([self._pidfd], timeout_s):
            return None
        self._process.wait()
        with suppress(BlockingIOError, ConnectionResetError):
            if report := self._control.recv(100, socket.MSG_DONTWAIT):
                return Ending(*map(int, report.split()))
        return Ending(self._process.returncode)  # the guard itself was killed, and the process with it

    def close(self) -> None:
        """Kill the process and all that it started."""
        self._control.close()
        if not wait([self._pidfd], END_S):
            self._process.kill()
        self._process.wait()
        os.close(self._pidfd)
        self.channel.close()


def _command(call: str) -> list[str]:
    """The interpreter with the flags of this one, which calls a function of this module."""
    package = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.append({package!r}); from autoauto.processes.start import run; {call}"
    return [*takewhile(lambda word: word != "-c", spawn.get_command_line()), "-c", code]


def run(channel_fd: int, control_fd: int, task_fd: int, parent: int, memory_bytes: int | None) -> None:
    """The program of the new process: it becomes the guard, and the process is its child."""
    parent_pidfd = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(1)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    child = os.fork()
    if child:
        os.close(channel_fd)
        os.close(task_fd)
        _guard(child, control_fd, parent_pidfd, memory_bytes)
    os.close(control_fd)
    os.close(parent_pidfd)
    _run_child(channel_fd, task_fd, guard, memory_bytes)


def _run_child(channel_fd: int, task_fd: int, guard: int, memory_bytes: int | None) -> None:
    os.setsid()  # signals to its process group do not reach the guard
    die_with_parent(guard)
    killed_first()
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    with open(task_fd, "rb") as task:
        task.seek(0)
        key, preparation = pickle.load(task)
        vars(current_process())["_inheriting"] = True  # for `end_if_unguarded`
        spawn.prepare(preparation)
        vars(current_process())["_inheriting"] = False
        main, args = pickle.load(task)
    main(Channel(socket.socket(fileno=channel_fd), key), *args)


def _guard(child: int, control_fd: int, parent_pidfd: int, memory_bytes: int | None) -> None:
    """Wait for the end of the child, of the parent or of the control, end what is left, and report."""
    control = socket.socket(fileno=control_fd)
    child_pidfd = os.pidfd_open(child)
    events = select.poll()
    for descriptor in (control_fd, parent_pidfd, child_pidfd):
        events.register(descriptor, select.POLLIN)
    ending, watch_s = None, _REAP_S if memory_bytes is None else _WATCH_S
    while ending is None:
        ready = {descriptor for descriptor, _ in events.poll(1000.0 * watch_s)}
        ending = _reap(child)
        if ready & {control_fd, parent_pidfd}:
            break
        if memory_bytes is not None and ending is None:
            start_s = time.process_time()
            n_bytes = held_bytes(descendants(os.getpid()), memory_bytes)
            watch_s = max(_WATCH_S, (time.process_time() - start_s) / _MAX_WATCH_SHARE)
            if n_bytes > memory_bytes:
                ending = Ending(0, n_bytes)
    end_descendants()
    if ending is not None:
        with suppress(OSError):  # the parent has ended
            control.send(" ".join(map(str, ending)).encode())
    os._exit(0)


def _reap(child: int) -> Ending | None:
    """Take note of processes that have ended, of which the kernel keeps the numbers; the child's end if it is one."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return Ending(os.waitstatus_to_exitcode(status))
            if not pid:
                return None
    return None
