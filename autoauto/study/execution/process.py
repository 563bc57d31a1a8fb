"""One measuring process and the trials that come from it: `MeasuringProcess`, `Bounds`, `finished_trial`."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import wait
from time import monotonic
from typing import IO, NamedTuple

from autoauto.processes.channel import BadMessage, Channel
from autoauto.processes.start import UNGUARDED, UNGUARDED_HINT, ChildProcess, Ending, end_if_unguarded
from autoauto.records.errors import BadInput, WorkerLost
from autoauto.records.units import format_bytes
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial

LOG_LINES = 20
"""Number of last lines of its log that a failed trial stores."""
START_S = 60.0
"""Minimum time limit of the start of a process, however short the time limit of a measurement is."""
CLOSED_S = 5.0
"""Maximum time from when a process has closed its channel, as one that dies does, to its end."""
_LOG_BYTES = 20_000

Evaluate = Callable[[Knobs], Trial]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one measurement.

    Attributes:
        timeout_s: time limit from its start to its result; None without a limit.
        memory_bytes: maximum data segment of every process of the measurement (RLIMIT_DATA), and maximum memory of the
            measuring process and all that it started together; None without a limit.
    """

    timeout_s: float | None = None
    memory_bytes: int | None = None


class _Answer(NamedTuple):
    """A message of a measuring process: request 0 is its start, and requests without a trial have begun."""

    request: int
    trial: Trial | None = None


class MeasuringProcess:
    """A process that measures with `evaluate`; every measurement ends as a `Trial`.

    It is a `ChildProcess`: it ends with its parent, and all that it started with it. It is replaced before the next
    measurement when it crashed, hung or raised.
    """

    def __init__(self, evaluate: Evaluate, bounds: Bounds) -> None:
        end_if_unguarded()  # before it waits for what its parent measures
        self._evaluate, self._bounds = evaluate, bounds
        self._process: ChildProcess | None = None
        self._log: IO[bytes] | None = None
        self.knobs: Knobs | None = None  # that it measures; None while it is idle
        self._request = 0
        self._was_idle = False
        self._started_s = 0.0
        self._ready = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """One of them is readable when the measurement has finished; only available while the process runs."""
        assert self._process is not None
        return self._process.descriptors

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
        if self._process is not None:
            return
        self._log = tempfile.TemporaryFile(prefix="autoauto-")  # noqa: SIM115 (closed by `close`)
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)
        self._process = ChildProcess(_measure, (self._evaluate,), self._log, self._bounds.memory_bytes, has_guard=True)

    def wait_until_ready(self) -> None:
        """Wait until the process is ready or has died; `poll` reports the death after `submit`."""
        wait(self.descriptors)
        self._receive()

    def submit(self, knobs: Knobs) -> None:
        """Start to measure; a process that has to be started gets the time limit once more, at least `START_S`."""
        assert self.knobs is None
        self.start()
        assert self._process is not None
        assert self._log is not None
        self._log.truncate(0)  # drop the output of earlier measurements
        self.knobs, self._was_idle, self._started_s = knobs, self._ready, monotonic()
        self._request += 1
        with suppress(OSError):  # it died while idle: `poll` replaces it
            self._process.channel.send((self._request, knobs))

    def poll(self) -> Trial | None:
        """The trial when the measurement has finished; None while it runs."""
        assert self.knobs is not None
        trial = self._receive()
        if trial is None and self.left_s == 0.0:
            missing = "no result" if self._ready else "not started"
            trial = self._failed(Status.TIME_OUT, f"{missing} within {self._limit_s:g} s")
        if trial is not None and trial.failed and self._was_idle:  # it ended while idle: no failed measurement
            knobs = self.knobs
            self.close()
            self.submit(knobs)
            return None
        if trial is not None:
            self.knobs = None
            if trial.failed:
                self.close()
        return trial

    def _receive(self) -> Trial | None:
        """Read what the process sent; the trial of the request when it has ended, also when the process has."""
        assert self._process is not None
        ending = self._process.ending()  # first, so that its last messages are there
        failure: tuple[Status, str] | None = None
        try:
            while self._process.channel.poll():
                answer: _Answer = self._process.channel.recv()
                if not answer.request:
                    self._ready, self._started_s = True, monotonic()
                elif answer.request == self._request:  # a process that forked may answer an earlier request again
                    self._was_idle = False
                    if answer.trial is not None:
                        return answer.trial
        except EOFError:
            ending = ending or self._process.ending(CLOSED_S)
            failure = Status.CRASH, "the measuring process closed the channel of its results"
        except BadMessage as error:
            failure = Status.CRASH, f"the measuring process wrote into the channel of its results: {error}"
        if ending is not None:
            failure = _death(ending, self._bounds)
        return None if failure is None or self.knobs is None else self._failed(*failure)

    def _failed(self, status: Status, reason: str) -> Trial:
        assert self.knobs is not None
        assert self._log is not None
        size = os.fstat(self._log.fileno()).st_size
        self._log.seek(max(0, size - _LOG_BYTES))
        log = self._log.read().decode(errors="replace").splitlines()
        return failed_trial(self.knobs, status, reason, log, monotonic() - self._started_s)

    def close(self) -> None:
        """Kill the process and all that it started."""
        if self._process is not None:
            self._process.close()
        if self._log is not None:
            self._log.close()
        self._process = self._log = self.knobs = None
        self._ready = self._was_idle = False


def _death(ending: Ending, bounds: Bounds) -> tuple[Status, str]:
    """Why the process died, as far as its ending shows it."""
    code = ending.exit_code
    if ending.held_bytes:
        assert bounds.memory_bytes is not None
        reason = (
            f"the measuring process and what it started held {format_bytes(ending.held_bytes)}, more than the limit "
            f"of {format_bytes(bounds.memory_bytes)}"
        )
        return Status.PROCESS_OUT_OF_MEMORY, reason
    if code == -signal.SIGKILL:
        reason = "the measuring process was killed, as the kernel does when memory runs out"
        return Status.PROCESS_OUT_OF_MEMORY, reason
    if code == UNGUARDED:
        raise BadInput(UNGUARDED_HINT)
    if code < 0:
        return Status.CRASH, f"the measuring process died of {signal.Signals(-code).name}"
    return Status.CRASH, f"the measuring process ended with exit code {code}"


def _measure(channel: Channel, evaluate: Evaluate) -> None:
    """The program of the process: report that it is ready, then measure what it receives."""
    process = os.getpid()
    channel.send(_Answer(0))
    while True:
        request, knobs = channel.recv()
        channel.send(_Answer(request))
        started_s = monotonic()
        result: Trial | BaseException
        try:
            result = evaluate(knobs)
            assert result.knobs == knobs
        except BaseException as error:  # noqa: BLE001 (every exception of a target is reported)
            result = error
        if os.getpid() != process:
            os._exit(0)  # the evaluation has forked: the process that has the request answers it
        channel.send(_Answer(request, finished_trial(knobs, result, monotonic() - started_s)))


def finished_trial(knobs: Knobs, result: Trial | BaseException, elapsed_s: float) -> Trial:
    """The trial that `evaluate` returned just now, or whose exception it raised, `elapsed_s` after it started.

    A target returns a trial when a device has too little memory. So an exception is a bug, unless the memory of the
    process itself ran out, or a process of the target or another machine was lost.
    """
    if isinstance(result, Trial):
        return _ended_now(result, elapsed_s)
    kinds = {MemoryError: Status.PROCESS_OUT_OF_MEMORY, WorkerLost: Status.CRASH}
    status = next((status for kind, status in kinds.items() if isinstance(result, kind)), Status.BUG)
    log = "".join(traceback.format_exception(result)).splitlines()
    return failed_trial(knobs, status, f"{type(result).__name__}: {result}", log, elapsed_s)


def failed_trial(knobs: Knobs, status: Status, reason: str, log: list[str], elapsed_s: float) -> Trial:
    """A trial that failed just now, with the last `LOG_LINES` lines of its log."""
    return _ended_now(Trial(knobs, status, reason, log=tuple(log[-LOG_LINES:])), elapsed_s)


def _ended_now(trial: Trial, elapsed_s: float) -> Trial:
    ended = datetime.now(UTC)
    return replace(trial, started=ended - timedelta(seconds=elapsed_s), ended=ended)
