"""What a measurement returned or raised, as an `Attempt`."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import IO

from autoauto.processes import die_with_parent, out_of_hearing
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Attempt, Outcome, Status, status_of

LOG_LINES = 20


def attempt_of(knobs: Knobs, result: Outcome | Exception, elapsed_s: float) -> Attempt:
    """The attempt that just ended with `result`, `elapsed_s` after it began.

    An exception is a bug, since a target's out of memory is an outcome, unless the process itself had no memory left.
    """
    if isinstance(result, Outcome):
        return _ended(knobs, status_of(result), result, "", (), elapsed_s)
    status = Status.OUT_OF_MEMORY if isinstance(result, MemoryError) else Status.BUG
    log = "".join(traceback.format_exception(result)).splitlines()
    return failed_attempt(knobs, status, f"{type(result).__name__}: {result}", log, elapsed_s)


def failed_attempt(knobs: Knobs, status: Status, reason: str, log: list[str], elapsed_s: float) -> Attempt:
    """An attempt that just ended without an outcome; of its log the end is kept."""
    return _ended(knobs, status, None, reason, tuple(log[-LOG_LINES:]), elapsed_s)


def _ended(
    knobs: Knobs, status: Status, outcome: Outcome | None, reason: str, log: tuple[str, ...], elapsed_s: float
) -> Attempt:
    ended = datetime.now()
    return Attempt(knobs, status, outcome, reason, log, ended - timedelta(seconds=elapsed_s), ended)


Evaluate = Callable[[Knobs], Outcome]
START_S = 60.0
"""The least that a process may take to start in, however short the time-out of a measurement is."""
_LOG_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a measurement may take.

    Attributes:
        timeout_s: from its beginning to its result; None for as long as it takes.
        memory_bytes: data of the measuring process (RLIMIT_DATA); None for as much as there is.
    """

    timeout_s: float | None = None
    memory_bytes: int | None = None


class Child:
    """A process started with `spawn` that measures with `evaluate`; whatever becomes of it is an `Attempt`.

    Ctrl-C is its parent's to hear. It leads a process group of its own, so that it and all that it starts can be killed
    together. It dies with its parent. When memory runs out it is the first that the kernel kills. One that did
    not end well is replaced before the next measurement.
    """

    def __init__(self, evaluate: Evaluate, bounds: Bounds) -> None:
        self._evaluate, self._bounds = evaluate, bounds
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._log: IO[bytes] | None = None
        self._knobs: Knobs | None = None
        self._begun_s = 0.0
        self._ready = False

    @property
    def knobs(self) -> Knobs | None:
        """What it measures now; None while it waits."""
        return self._knobs

    @property
    def connection(self) -> Connection:
        """Ready when the measurement has ended; only while it measures."""
        assert self._connection is not None
        return self._connection

    @property
    def left_s(self) -> float | None:
        """Seconds until the time-out, of its start while it starts; None when there is none."""
        bound_s = self._bound_s
        return None if bound_s is None else max(0.0, self._begun_s + bound_s - monotonic())

    @property
    def _bound_s(self) -> float | None:
        timeout_s = self._bounds.timeout_s
        return timeout_s if timeout_s is None or self._ready else max(timeout_s, START_S)

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._process is None:
            self._start()

    def wait_until_ready(self) -> None:
        """Wait until the process has started, or has failed to, which `ended` will tell."""
        wait([self.connection])
        self._hear()

    def begin(self, knobs: Knobs) -> None:
        """Start to measure; a new process has the time-out once more to start in, and at least `START_S`."""
        assert self._knobs is None
        if self._process is not None and not self._process.is_alive():  # killed idle: that is no measurement's failure
            self.close()
        self.start()
        assert self._log is not None
        self._log.truncate(0)  # what earlier measurements printed
        self._knobs, self._begun_s = knobs, monotonic()
        with suppress(OSError):  # it died idle: `ended` will say how
            self.connection.send(knobs)

    def ended(self) -> Attempt | None:
        """What came of the measurement; None while it goes on."""
        assert self._knobs is not None
        attempt = self._hear()
        if attempt is None and self.left_s == 0.0:
            missing = "no result" if self._ready else "not started"
            attempt = self._failed(Status.TIME_OUT, f"{missing} within {self._bound_s:g} s")
        if attempt is not None:
            self._knobs = None
            if attempt.outcome is None:
                self.close()
        return attempt

    def _hear(self) -> Attempt | None:
        """What the process says: first that it is ready, then attempts; or how it died, once it should measure."""
        while self.connection.poll():
            try:
                message: Attempt | None = self.connection.recv()
            except (EOFError, OSError):
                return None if self._knobs is None else self._failed(*self._death())
            if message is not None:
                return message
            self._ready, self._begun_s = True, monotonic()
        return None

    def _failed(self, status: Status, reason: str) -> Attempt:
        assert self._knobs is not None
        return failed_attempt(self._knobs, status, reason, self._tail(), monotonic() - self._begun_s)

    def close(self) -> None:
        """End the process and all that it started, whatever they are doing."""
        if self._process is None or self._process.pid is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._process.close()
        self.connection.close()
        if self._log is not None:
            self._log.close()
        self._process = self._connection = self._log = self._knobs = None

    def _start(self) -> None:
        context = get_context("spawn")
        self._ready = False
        self._connection, theirs = context.Pipe()
        self._log = tempfile.NamedTemporaryFile(prefix="autoauto-", suffix=".log")  # noqa: SIM115 (closed by `close`)
        arguments = (theirs, os.getpid(), self._bounds, self._log.name)
        self._process = context.Process(target=_measure, args=arguments, name="autoauto measurement")
        with out_of_hearing():
            self._process.start()
        theirs.close()
        self._connection.send(self._evaluate)

    def _death(self) -> tuple[Status, str]:
        """Why the process is gone, as far as its exit code tells."""
        assert self._process is not None
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            return Status.OUT_OF_MEMORY, "the measuring process was killed, as the kernel does when memory runs out"
        if code < 0:
            return Status.CRASH, f"the measuring process died of {signal.Signals(-code).name}"
        return Status.CRASH, f"the measuring process ended with exit code {code}"

    def _tail(self) -> list[str]:
        """The last lines that it printed."""
        assert self._log is not None
        size = os.fstat(self._log.fileno()).st_size
        self._log.seek(max(0, size - _LOG_BYTES))
        return self._log.read().decode(errors="replace").splitlines()[-LOG_LINES:]


def _measure(connection: Connection, parent: int, bounds: Bounds, log: str) -> None:
    """What the process does: read how to measure, say that it is ready, then read configurations and send attempts."""
    _settle(parent, bounds, log)
    evaluate: Evaluate = connection.recv()
    connection.send(None)
    while True:
        knobs = connection.recv()
        begun_s = monotonic()
        result: Outcome | Exception
        try:
            result = evaluate(knobs)
            assert result.knobs == knobs
        except Exception as error:  # noqa: BLE001 (whatever a target raises is told)
            result = error
        connection.send(attempt_of(knobs, result, monotonic() - begun_s))


def _settle(parent: int, bounds: Bounds, log: str) -> None:
    os.setpgid(0, 0)
    die_with_parent(parent)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if bounds.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (bounds.memory_bytes, bounds.memory_bytes))
