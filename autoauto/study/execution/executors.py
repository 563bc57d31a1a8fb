"""Where measurements run: the protocol `Executor`, in this process (`InlineExecutor`) or in others (`ProcessExecutor`).

A caller submits as many configurations as there are free slots, waits, collects the trials that finished, and reports
each trial back once it is written:

    submit(A)  submit(B)  wait(...)  finished() -> [trial of A]  on_recorded(trial of A)  submit(C)  wait(...)
"""

from __future__ import annotations

from multiprocessing.connection import wait
from time import monotonic, sleep
from typing import Protocol

from autoauto.records.errors import MeasurementsFailed
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Trial
from autoauto.study.execution.process import Bounds, Evaluate, MeasuringProcess, finished_trial
from autoauto.study.interrupts import Interrupts

MAX_FIRST_FAILURES, MAX_FAILURES = 3, 10
"""Number of failures in a row that end a search before its first success, and later, when a bisection may meet some."""


class Executor(Protocol):
    """Measures configurations, several at once; every measurement becomes a trial, also when it fails."""

    @property
    def n_slots(self) -> int:
        """Maximum number of simultaneous measurements."""

    @property
    def n_free(self) -> int:
        """Number of measurements that may be submitted now."""

    def submit(self, knobs: Knobs) -> None:
        """Start to measure a configuration."""

    def wait(self, timeout_s: float) -> None:
        """Wait until a measurement finishes; an interrupt here loses no finished measurement."""

    def finished(self) -> list[Trial]:
        """The trials that finished since the last call."""

    def on_recorded(self, trial: Trial) -> None:
        """Take note that a trial was written; raises when further measurements make no sense."""

    def close(self) -> None:
        """Drop all running measurements."""


class InlineExecutor:
    """Measures in this process, one configuration at a time; a crash or a hang of the target is one of this process."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._knobs: Knobs | None = None
        self._trials: list[Trial] = []
        self._error: BaseException | None = None
        self.n_slots = 1

    @property
    def n_free(self) -> int:
        """1 unless a configuration is submitted."""
        return int(self._knobs is None)

    def submit(self, knobs: Knobs) -> None:
        """Remember the configuration that `wait` measures."""
        self._knobs = knobs

    def wait(self, timeout_s: float) -> None:
        """Measure, without a time limit."""
        if self._knobs is None:
            sleep(timeout_s)
            return
        started_s = monotonic()
        result: Trial | BaseException
        try:
            result = self._evaluate(self._knobs)
            assert result.knobs == self._knobs
        except BaseException as error:  # `on_recorded` raises it
            if isinstance(error, KeyboardInterrupt) and Interrupts.may_have_raised():
                raise
            result = self._error = error
        self._trials.append(finished_trial(self._knobs, result, monotonic() - started_s))

    def finished(self) -> list[Trial]:
        """The trial of the last `wait`."""
        trials, self._trials, self._knobs = self._trials, [], None
        return trials

    def on_recorded(self, trial: Trial) -> None:
        """Raise the exception of the target, with its traceback.

        Raises:
            MeasurementsFailed: the target raised what is no Exception, such as SystemExit, which would end this process
                without a word.
        """
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise MeasurementsFailed(
                f"a measurement must return a trial or raise an Exception, got {trial.reason}; its trial holds the "
                "traceback"
            ) from self._error

    def close(self) -> None:
        """Drop the configuration that was not measured."""
        self._knobs = None


class ProcessExecutor:
    """Measures in processes of this machine, each one configuration at a time, within bounds of time and memory."""

    def __init__(self, evaluate: Evaluate, n_processes: int, bounds: Bounds) -> None:
        self._processes = [MeasuringProcess(evaluate, bounds) for _ in range(n_processes)]
        self.on_recorded = ConsecutiveFailures().count
        self.n_slots = n_processes

    def start(self) -> None:
        """Start all processes and wait until they are ready; without this call they start when they are needed."""
        for process in self._processes:
            process.start()
        for process in self._processes:
            process.wait_until_ready()

    @property
    def n_free(self) -> int:
        """Number of idle processes."""
        return sum(process.knobs is None for process in self._processes)

    def submit(self, knobs: Knobs) -> None:
        """Let an idle process measure it."""
        next(process for process in self._processes if process.knobs is None).submit(knobs)

    def wait(self, timeout_s: float) -> None:
        """Wait for a result, the death of a process or a time-out."""
        left_s = (process.left_s for process in self._busy)
        first_timeout_s = min([timeout_s, *(seconds for seconds in left_s if seconds is not None)])
        wait([descriptor for process in self._busy for descriptor in process.descriptors], first_timeout_s)

    def finished(self) -> list[Trial]:
        """Results, deaths and time-outs."""
        return [trial for process in self._busy if (trial := process.poll()) is not None]

    @property
    def _busy(self) -> list[MeasuringProcess]:
        return [process for process in self._processes if process.knobs is not None]

    def close(self) -> None:
        """Kill the processes."""
        for process in self._processes:
            process.close()


class ConsecutiveFailures:
    """Counts failures in a row, to end a search whose measurements all fail; a single failure does not end one."""

    def __init__(self) -> None:
        self._n_failures, self._max_failures = 0, MAX_FIRST_FAILURES

    def count(self, trial: Trial) -> None:
        """Count a trial; a MeasurementsFailed if it is one failure in a row too many."""
        if not trial.failed:
            self._n_failures, self._max_failures = 0, MAX_FAILURES
            return
        self._n_failures += 1
        if self._n_failures >= self._max_failures:
            raise MeasurementsFailed(
                f"{self._n_failures} measurements in a row failed, the last by {trial.status}: {trial.reason}; "
                "their trials hold the ends of their logs"
            )
