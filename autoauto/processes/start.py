"""Every process that we start: `ChildProcess`.

A child leaves Ctrl-C to its parent (`sigint_blocked`) and ends with it: the kernel kills it (PR_SET_PDEATHSIG). Where
the machine's memory runs out, the kernel kills it before its parent.

A child may have a guard, which ends it with all that it started, however it or its parent ends:

    this process ──▶ guard ──▶ child ──▶ its children, also those in sessions of their own
         ╰─────── channel ───────╯

The guard adopts orphans below it (PR_SET_CHILD_SUBREAPER). When the child ends, when its memory and that of its
children exceed the limit, or when this process closes the child or dies, the guard kills all that is left, and reports
why. It waits for processes, never for the end of a file, which a grandchild may keep open. It forks the child off
before the main module is imported, so that it costs no start of an interpreter, and no thread is lost. Linux 5.4 or
later.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from multiprocessing import current_process, popen_spawn_posix, spawn
from multiprocessing.connection import wait
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import IO, NamedTuple

from autoauto.processes.channel import Channel
from autoauto.processes.signals import put_back

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
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
    deferred: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and callable(handler):
        # The mask is of this thread only: another may receive the signal, and Python runs the handler here.
        signal.signal(signal.SIGINT, lambda number, _: deferred.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if is_main and callable(handler):
            put_back(signal.SIGINT, handler)
        if deferred:
            signal.raise_signal(signal.SIGINT)


def end_if_unguarded() -> None:
    """End this process if it imports its main module: what that starts would start the same again, without end."""
    if getattr(current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


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


CLEANER = "engine-guard"
"""The name of processes that end what they started once their input ends (`launch/guard.py`)."""
_CLEANING_S = 8.0
"""Maximum time that a guard waits for them, less than `END_S`."""
END_S = 10.0
"""Maximum time that a guard may take to end everything, until it is killed itself."""

_WATCH_S = 0.05
_REAP_S = 1.0
_MAX_WATCH_SHARE = 0.02  # of a core


class Ending(NamedTuple):
    """The end of a process.

    Attributes:
        exit_code: its exit code; minus the number of the signal that killed it.
        held_bytes: the memory for which it was killed; 0 otherwise.
    """

    exit_code: int
    held_bytes: int = 0


class ChildProcess:
    """A new process that calls `main(channel, *args)`; the top of this file says how it ends.

    The new process imports the main module, in which `main` may be.

    Args:
        main: a function of a module; it and the arguments are pickled. Descriptors among them (`DupFd`) are inherited.
        log: where the output of the process is written; by default where that of this process is.
        memory_bytes: limit of the data segment of every process (RLIMIT_DATA), and where there is a guard of the memory
            of all together; None without a limit.
        environment: variables that the process has beside those of this one.

    Attributes:
        pid: the process number, of the guard where there is one.
        end_fd: readable when the process has ended.
    """

    def __init__(
        self,
        main: Callable[..., None],
        args: tuple[object, ...],
        log: IO[bytes] | None = None,
        memory_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        has_guard: bool = False,
    ) -> None:
        pickler = _Pickler()
        call = pickler.dumps((main, args))
        end_if_unguarded()
        preparation = spawn.get_preparation_data("autoauto")
        del preparation["authkey"]
        self._ending: Ending | None = None
        self._control: socket.socket | None = None
        # `failed` undoes a start that fails; `started` closes here what only the new process needs.
        with ExitStack() as failed, ExitStack() as started, sigint_blocked():
            self.channel, theirs = Channel.pair()
            failed.callback(self.channel.close)
            started.callback(theirs.close)
            control_fds = []
            if has_guard:
                self._control, guards_control = socket.socketpair()
                failed.callback(self._control.close)
                control_fds.append(started.enter_context(guards_control).fileno())
            # In a file in memory: nobody waits here until the new process has read it.
            task = started.enter_context(open(os.memfd_create("autoauto-task"), "wb"))
            task.write(pickler.dumps((theirs, preparation)) + call)
            task.flush()
            inherited = [*pickler.descriptors, task.fileno()]
            self._process = subprocess.Popen(
                _command(preparation["sys_path"], f"run({inherited}, {control_fds}, {os.getpid()}, {memory_bytes})"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[*inherited, *control_fds],
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
            self.pid = self._process.pid
            failed.callback(self._process.wait)
            failed.callback(self._process.kill)
            self.end_fd = os.pidfd_open(self.pid)
            failed.pop_all()

    @property
    def descriptors(self) -> tuple[int, int]:
        """The first is readable when a message has arrived, the second when the process has ended."""
        return self.channel.fileno(), self.end_fd

    def ending(self, timeout_s: float | None = 0.0) -> Ending | None:
        """Wait for the end of the process, at most for a time (None: without limit); None if it still runs."""
        if self._ending is None and wait([self.end_fd], timeout_s):
            self._process.wait()
            self._ending = Ending(self._process.returncode)  # also of a guard that was killed
            if self._control is not None:
                with suppress(OSError):
                    report = self._control.recv(100, socket.MSG_DONTWAIT)
                    if report:
                        self._ending = Ending(*map(int, report.split()))
        return self._ending

    def kill(self) -> None:
        """Kill the process; its guard kills all that it started. `close` waits for the end."""
        if self._control:
            self._control.close()
        else:
            self._process.kill()

    def close(self) -> None:
        """Kill the process, wait for its end, and close the channel."""
        self.kill()
        if not wait([self.end_fd], END_S):
            self._process.kill()
        self._process.wait()
        self._ending = self._ending or Ending(self._process.returncode)
        os.close(self.end_fd)
        self.channel.close()


class RecycledChild:
    """A `ChildProcess` with a guard, which is started when it is first used, and again where it has ended.

    It is replaced after a number of uses, so that what libraries leave behind does not add up.
    """

    def __init__(self, main: Callable[..., None], args: tuple[object, ...], max_uses: int) -> None:
        self._main = main
        self._args = args
        self._max_uses = max_uses
        self._n_uses = 0
        self._child: ChildProcess | None = None

    def use(self) -> ChildProcess:
        """The process, for one use; it may still end before it reads what it is sent."""
        if self._child is not None and (self._n_uses >= self._max_uses or self._child.ending() is not None):
            self.close()
        if self._child is None:
            self._child = ChildProcess(self._main, self._args, has_guard=True)
            self._n_uses = 0
        self._n_uses += 1
        return self._child

    def close(self) -> None:
        """End the process, if there is one; a later use starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None


class _Pickler:
    """Pickles what a new process reads; it takes the place of multiprocessing's process, to which `DupFd` turns.

    Attributes:
        descriptors: those among what was pickled; the new process must inherit them, under the same numbers.
    """

    DupFd = popen_spawn_posix._DupFd

    def __init__(self) -> None:
        self.descriptors: list[int] = []

    def dumps(self, thing: object) -> bytes:
        set_spawning_popen(self)  # type: ignore[arg-type]
        try:
            return pickle.dumps(thing)
        finally:
            set_spawning_popen(None)

    def duplicate_for_child(self, descriptor: int) -> int:
        """The number of a descriptor in the new process."""
        self.descriptors.append(descriptor)
        return descriptor


def _command(path: Sequence[str], call: str) -> list[str]:
    """The interpreter with the flags of this one, which calls a function of this module.

    It imports from where this process does: else it would look into the working directory first.
    """
    code = f"import sys; sys.path[:] = {path!r}; from autoauto.processes.start import run; {call}"
    return [*takewhile(lambda word: word != "-c", spawn.get_command_line()), "-c", code]


def run(inherited: list[int], control_fds: list[int], parent: int, memory_bytes: int | None) -> None:
    """The program of the new process; where there is a guard, it becomes that, and what it forks calls `main`.

    Args:
        inherited: descriptors for what calls `main`, at last that of the file with the channel, `main` and `args`.
        control_fds: the guard's end of its channel; empty where there is no guard.
    """
    if control_fds:
        [control_fd] = control_fds
        try:
            parent_pidfd = os.pidfd_open(parent)
        except ProcessLookupError:
            os._exit(1)
        if os.getppid() != parent:  # it has ended, and its number may be that of another process
            os._exit(1)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        parent = os.getpid()
        child = os.fork()
        if child:
            for descriptor in set(inherited):  # open in the guard, they would never read as closed
                os.close(descriptor)
            _guard(child, control_fd, parent_pidfd, memory_bytes)
        os.close(control_fd)
        os.close(parent_pidfd)
        os.setsid()  # signals to its process group do not reach the guard
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked to watch it
        os._exit(1)
    _call(inherited[-1], memory_bytes)


def _call(task_fd: int, memory_bytes: int | None) -> None:
    with suppress(OSError):  # the kernel kills this process, and what it starts, before its parent
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    with open(task_fd, "rb") as task:
        task.seek(0)
        channel, preparation = pickle.load(task)
        vars(current_process())["_inheriting"] = True  # for `end_if_unguarded`
        spawn.prepare(preparation)
        vars(current_process())["_inheriting"] = False
        main, args = pickle.load(task)
    main(channel, *args)


def _guard(child: int, control_fd: int, parent_pidfd: int, memory_bytes: int | None) -> None:
    """Wait for the end of the child, of the parent or of the control, end what is left, and report."""
    control = socket.socket(fileno=control_fd)
    child_pidfd = os.pidfd_open(child)
    events = select.poll()
    for descriptor in (control_fd, parent_pidfd, child_pidfd):
        events.register(descriptor, select.POLLIN)
    ending = None
    watch_s = _REAP_S if memory_bytes is None else _WATCH_S
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
    with suppress(OSError):  # it has ended
        if ending is None:
            os.kill(child, signal.SIGKILL)
    _await_cleaners(child)
    end_descendants()
    if ending is not None:
        with suppress(OSError):  # the parent has ended
            control.send(" ".join(map(str, ending)).encode())
    os._exit(0)


def _await_cleaners(child: int) -> None:
    """Give descendants that are called `CLEANER` time to end what the kernel does not end with them, as containers."""
    until_s = time.monotonic() + _CLEANING_S
    while time.monotonic() < until_s and any(map(_is_cleaner, descendants(os.getpid()))):
        _reap(child)
        time.sleep(_POLL_S)


def _is_cleaner(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == CLEANER
    except OSError:
        return False


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
