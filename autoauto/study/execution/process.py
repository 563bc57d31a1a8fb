"""One measuring process and the trials that come from it: `MeasuringProcess`, `Bounds`, `finished_trial`."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import IO

from autoauto.processes import die_with_parent, sigint_blocked
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Status, Trial

LOG_LINES = 20
"""Number of last lines of its log that a failed trial stores."""
START_S = 60.0
"""Minimum time limit of the start of a process, however short the time limit of a measurement is."""
_LOG_BYTES = 20_000

Evaluate = Callable[[Knobs], Trial]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one measurement.

    Attributes:
        timeout_s: time limit from its start to its result; None without a limit.
        memory_bytes: maximum data segment of the measuring process (RLIMIT_DATA); None without a limit.
    """

    timeout_s: float | None = None
    memory_bytes: int | None = None


class MeasuringProcess:
    """A process, started with `spawn`, that measures with `evaluate`; every measurement ends as a `Trial`.

    It ignores Ctrl-C, which its parent handles. It leads its own process group, so that it can be killed with all
    processes that it started. It dies with its parent. When memory runs out it is the first that the kernel kills. It
    is replaced before the next measurement when it crashed, hung or raised.
    """

    def __init__(self, evaluate: Evaluate, bounds: Bounds) -> None:
        self._evaluate, self._bounds = evaluate, bounds
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._log: IO[bytes] | None = None
        self._knobs: Knobs | None = None
        self._started_s = 0.0
        self._ready = False

    @property
    def knobs(self) -> Knobs | None:
        """The configuration that it measures; None while it is idle."""
        return self._knobs

    @property
    def connection(self) -> Connection:
        """Ready to read when the measurement has finished; only available while the process runs."""
        assert self._connection is not None
        return self._connection

    @property
    def left_s(self) -> float | None:
        """Seconds until the time limit, of its start while it starts; None without a limit."""
        limit_s = self._limit_s
        return None if limit_s is None else max(0.0, self._started_s + limit_s - monotonic())

    @property
    def _limit_s(self) -> float | None:
        timeout_s = self._bounds.timeout_s
        return timeout_s if timeout_s is None or self._ready else max(timeout_s, START_S)

    def start(self) -> None:
        """Start the process unless it runs."""
        if self._process is None:
            self._start()

    def wait_until_ready(self) -> None:
        """Wait until the process is ready or has died; `poll` reports the death after `submit`."""
        wait([self.connection])
        self._receive()

    def submit(self, knobs: Knobs) -> None:
        """Start to measure; a process that has to be started gets the time limit once more, at least `START_S`."""
        assert self._knobs is None
        if self._process is not None and not self._process.is_alive():  # killed while idle: no failed measurement
            self.close()
        self.start()
        assert self._log is not None
        self._log.truncate(0)  # drop the output of earlier measurements
        self._knobs, self._started_s = knobs, monotonic()
        with suppress(OSError):  # it died while idle: `poll` reports why
            self.connection.send(knobs)

    def poll(self) -> Trial | None:
        """The trial when the measurement has finished; None while it runs."""
        assert self._knobs is not None
        trial = self._receive()
        if trial is None and self.left_s == 0.0:
            missing = "no result" if self._ready else "not started"
            trial = self._failed(Status.TIME_OUT, f"{missing} within {self._limit_s:g} s")
        if trial is not None:
            self._knobs = None
            if trial.failed:
                self.close()
        return trial

    def _receive(self) -> Trial | None:
        """Read the messages of the process: first None when it is ready, then trials; a trial too if it died."""
        while self.connection.poll():
            try:
                message: Trial | None = self.connection.recv()
            except (EOFError, OSError):
                return None if self._knobs is None else self._failed(*self._death())
            if message is not None:
                return message
            self._ready, self._started_s = True, monotonic()
        return None

    def _failed(self, status: Status, reason: str) -> Trial:
        assert self._knobs is not None
        return failed_trial(self._knobs, status, reason, self._last_log_lines(), monotonic() - self._started_s)

    def close(self) -> None:
        """Kill the process and all that it started."""
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
        self._process = context.Process(target=_run, args=arguments, name="autoauto measurement")
        with sigint_blocked():
            self._process.start()
        theirs.close()
        self._connection.send(self._evaluate)

    def _death(self) -> tuple[Status, str]:
        """Why the process died, as far as its exit code shows it."""
        assert self._process is not None
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            return (
                Status.PROCESS_OUT_OF_MEMORY,
                "the measuring process was killed, as the kernel does when memory runs out",
            )
        if code < 0:
            return Status.CRASH, f"the measuring process died of {signal.Signals(-code).name}"
        return Status.CRASH, f"the measuring process ended with exit code {code}"

    def _last_log_lines(self) -> list[str]:
        assert self._log is not None
        size = os.fstat(self._log.fileno()).st_size
        self._log.seek(max(0, size - _LOG_BYTES))
        return self._log.read().decode(errors="replace").splitlines()[-LOG_LINES:]


def _run(connection: Connection, parent: int, bounds: Bounds, log: str) -> None:
    """The program of the process: receive `evaluate`, report that it is ready, then measure what it receives."""
    _set_up(parent, bounds, log)
    evaluate: Evaluate = connection.recv()
    connection.send(None)
    while True:
        knobs = connection.recv()
        started_s = monotonic()
        result: Trial | Exception
        try:
            result = evaluate(knobs)
            assert result.knobs == knobs
        except Exception as error:  # noqa: BLE001 (every exception of a target is reported)
            result = error
        connection.send(finished_trial(knobs, result, monotonic() - started_s))


def _set_up(parent: int, bounds: Bounds, log: str) -> None:
    """Own process group, death with the parent, first to be killed when memory runs out, output to the log, limits."""
    os.setpgid(0, 0)
    die_with_parent(parent)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if bounds.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (bounds.memory_bytes, bounds.memory_bytes))


def finished_trial(knobs: Knobs, result: Trial | Exception, elapsed_s: float) -> Trial:
    """The trial that `evaluate` returned just now, or whose exception it raised, `elapsed_s` after it started.

    A target returns a trial when a device has too little memory. So an exception is a bug, unless the memory of the
    process itself ran out.
    """
    if isinstance(result, Trial):
        return _ended_now(result, elapsed_s)
    status = Status.PROCESS_OUT_OF_MEMORY if isinstance(result, MemoryError) else Status.BUG
    log = "".join(traceback.format_exception(result)).splitlines()
    return failed_trial(knobs, status, f"{type(result).__name__}: {result}", log, elapsed_s)


def failed_trial(knobs: Knobs, status: Status, reason: str, log: list[str], elapsed_s: float) -> Trial:
    """A trial that failed just now, with the last `LOG_LINES` lines of its log."""
    return _ended_now(Trial(knobs, status, reason, log=tuple(log[-LOG_LINES:])), elapsed_s)


def _ended_now(trial: Trial, elapsed_s: float) -> Trial:
    ended = datetime.now(UTC)
    return replace(trial, started=ended - timedelta(seconds=elapsed_s), ended=ended)
