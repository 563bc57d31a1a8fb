"""An engine below a guard, which ends with this process: `GuardedEngine`; several of them: `guarded_engines`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from autoauto.engines.command import ALL_ADDRESSES
from autoauto.launch import guard
from autoauto.launch.faults import EngineFault, FaultKind, fault_of_log
from autoauto.launch.launcher import POLL_S, ReplicaStart, RunningEngines, wait_until_ready
from autoauto.records.errors import MeasurementsFailed

GUARD = Path(guard.__file__).read_text(encoding="utf-8")
HERE = (sys.executable, "-I", "-c", GUARD)
"""The words that run the guard on this machine."""
START_S, END_S = 60.0, 15.0
"""Until a guard says the port, and until it has ended all."""
_MAX_LOG_BYTES = 200_000

LOOPBACK = "127.0.0.1"
"""An engine beside us, or behind the tunnel of SSH, listens here: it has no key."""


class GuardTask(NamedTuple):
    """The task of a guard: an engine to run.

    Attributes:
        words: of the engine, with "{port}" for the port.
        files: by name, in the folder where it starts.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = {}  # beside that of the machine
    files: Mapping[str, str] = {}
    at_end: tuple[str, ...] = ()  # words that run once the engine has ended


class GuardedEngine(AbstractContextManager["GuardedEngine"]):
    """A process that a guard runs; a context at whose end nothing of it is left.

    Raises EngineFault if there is no such program, and MeasurementsFailed if the guard does not run.
    """

    def __init__(self, task: GuardTask, program: Sequence[str] = HERE) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the engine
        self._program = program[0]
        try:
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
            )
        except OSError as error:
            self._log.close()
            raise MeasurementsFailed(f"{program[0]} must be a program: {error.strerror}") from error
        try:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # its log says why it has ended
                self._process.stdin.write(json.dumps(task._asdict()).encode() + b"\n")
                self._process.stdin.flush()
            self.port, self.pid = self._started()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> tuple[int, int]:
        """The port and the process of the engine, as the guard says them."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            fault = self.fault(END_S if ready else 0.0)
            if fault is not None and fault.kind is FaultKind.MISSING:
                raise fault
            why = "it did not answer" if fault is None else fault.reason
            raise MeasurementsFailed(f"{self._program} must run a program, got none within {START_S:g} s: {why}")
        try:
            said = json.loads(line)
            return said["port"], said["pid"]
        except (ValueError, KeyError, TypeError):
            raise MeasurementsFailed(
                f"{self._program} must print nothing of its own, got {line[:80]!r}; see to the profile of its shell"
            ) from None

    def fault(self, timeout_s: float = 0.0) -> EngineFault | None:
        """Why it has ended; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return fault_of_log(self.log(), self._process.wait(timeout_s))
        return None

    def log(self) -> tuple[str, ...]:
        """The last lines that it wrote."""
        size = os.fstat(self._log.fileno()).st_size
        content = os.pread(self._log.fileno(), _MAX_LOG_BYTES, max(0, size - _MAX_LOG_BYTES))
        return tuple(line for line in content.decode(errors="replace").splitlines() if line.strip())

    def close(self) -> None:
        """End it, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class GuardedEngines:
    """Several that run, or none where somebody else runs what answers at the URLs; see `RunningEngines`."""

    def __init__(self, engines: Sequence[GuardedEngine], urls: tuple[str, ...]) -> None:
        self._engines, self.urls = engines, urls

    def fault(self, timeout_s: float = 0.0) -> EngineFault | None:
        """Implements `RunningEngines`."""
        end_s = monotonic() + timeout_s
        while True:
            faults = [fault for engine in self._engines if (fault := engine.fault())]
            if faults or not self._engines or monotonic() >= end_s:
                return next(iter(faults), None)
            sleep(POLL_S)

    def log(self) -> tuple[str, ...]:
        """The last lines of all."""
        return tuple(line for engine in self._engines for line in engine.log())


def task_of(replica: ReplicaStart) -> GuardTask:
    """The command of a replica, which sees its GPUs alone."""
    words = tuple(LOOPBACK if word == ALL_ADDRESSES else word for word in replica.command.words)
    return GuardTask(words, replica.environment, replica.command.files)


@contextmanager
def guarded_engines(
    tasks: Sequence[GuardTask],
    programs: Sequence[Sequence[str]],
    ready_path: str,
    limit_s: float,
    tunnel_of: Callable[[int, int], GuardTask] | None = None,
) -> Iterator[RunningEngines]:
    """A context in which guards run tasks that answer over HTTP.

    Args:
        tunnel_of: what makes the port of an engine, by its number, one of this machine; None where it is one already.

    Raises:
        EngineFault: one does not come up.
    """
    with ExitStack() as running:
        engines = [running.enter_context(GuardedEngine(*each)) for each in zip(tasks, programs, strict=True)]
        tunnels: list[GuardedEngine] = []
        if tunnel_of is not None:
            for number, engine in enumerate(engines):
                tunnels.append(running.enter_context(GuardedEngine(tunnel_of(number, engine.port))))
        urls = tuple(f"http://{LOOPBACK}:{end.port}" for end in tunnels or engines)
        together = GuardedEngines([*engines, *tunnels], urls)
        try:
            wait_until_ready(together, ready_path, limit_s)
        except EngineFault as fault:
            raise EngineFault(fault.kind, fault.reason, fault.log or together.log(), fault.option) from None
        yield together
