"""Who does the measuring for this process: itself, or children of its own."""

from __future__ import annotations

from multiprocessing.connection import wait
from time import monotonic, sleep
from typing import Protocol

from autoauto.records.errors import MeasurementsFailed
from autoauto.records.knobs import Knobs
from autoauto.records.trial import Attempt, Outcome
from autoauto.study.execution.process import Bounds, Child, Evaluate, attempt_of

FIRST_FAILURES, FAILURES_IN_A_ROW = 3, 10
"""So many failures end a search: at its beginning, and later, when a bisection may meet some in a row."""


class Hands(Protocol):
    """Measures configurations, several at once; each becomes an attempt, whatever happens."""

    @property
    def n_hands(self) -> int:
        """How many measurements there may be at once."""

    @property
    def n_free(self) -> int:
        """How many more measurements may begin now."""

    def begin(self, knobs: Knobs) -> None:
        """Start to measure."""

    def wait(self, timeout_s: float) -> None:
        """Wait for a measurement to end; an interrupt here loses none that has."""

    def ended(self) -> list[Attempt]:
        """The measurements that have ended since."""

    def recorded(self, attempt: Attempt) -> None:
        """Hear that an attempt was written; raises when there is no sense in going on."""

    def close(self) -> None:
        """Drop what is being measured."""


class Own:
    """This process measures: nothing to start, and nothing between it and a crash or a hang of the target."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self._knobs: Knobs | None = None
        self._attempts: list[Attempt] = []
        self._error: Exception | None = None
        self.n_hands = 1

    @property
    def n_free(self) -> int:
        """One at a time."""
        return int(self._knobs is None)

    def begin(self, knobs: Knobs) -> None:
        """Remember what to measure while `wait` waits."""
        self._knobs = knobs

    def wait(self, timeout_s: float) -> None:
        """Measure, however long it takes."""
        if self._knobs is None:
            sleep(timeout_s)
            return
        begun_s = monotonic()
        result: Outcome | Exception
        try:
            result = self._evaluate(self._knobs)
            assert result.knobs == self._knobs
        except Exception as error:  # noqa: BLE001 (raised by `recorded`)
            result = self._error = error
        self._attempts.append(attempt_of(self._knobs, result, monotonic() - begun_s))

    def ended(self) -> list[Attempt]:
        """What was measured."""
        ended, self._attempts, self._knobs = self._attempts, [], None
        return ended

    def recorded(self, attempt: Attempt) -> None:
        """Raise what the target raised, with its own traceback."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Forget what was not measured."""
        self._knobs = None


class Children:
    """Processes of this machine, one measurement each at a time, bounded in time and memory."""

    def __init__(self, evaluate: Evaluate, n_children: int, bounds: Bounds) -> None:
        self._children = [Child(evaluate, bounds) for _ in range(n_children)]
        self._failures = Failures()
        self.n_hands = n_children

    def start(self) -> None:
        """Start the processes now, instead of when there is something to measure, and wait for them."""
        for child in self._children:
            child.start()
        for child in self._children:
            child.wait_until_ready()

    @property
    def n_free(self) -> int:
        """Children that wait."""
        return sum(child.knobs is None for child in self._children)

    def begin(self, knobs: Knobs) -> None:
        """Give it to a child that waits."""
        next(child for child in self._children if child.knobs is None).begin(knobs)

    def wait(self, timeout_s: float) -> None:
        """Wait for a result, a death or a time-out."""
        lefts = (child.left_s for child in self._busy)
        least_s = min([timeout_s, *(left_s for left_s in lefts if left_s is not None)])
        wait([child.connection for child in self._busy], least_s)

    def ended(self) -> list[Attempt]:
        """Results, deaths and time-outs."""
        return [attempt for child in self._busy if (attempt := child.ended()) is not None]

    @property
    def _busy(self) -> list[Child]:
        return [child for child in self._children if child.knobs is not None]

    def recorded(self, attempt: Attempt) -> None:
        """Raise when every one of the last few measurements failed."""
        self._failures.count(attempt)

    def close(self) -> None:
        """Kill the children."""
        for child in self._children:
            child.close()


class Failures:
    """Ends a search whose measurements do nothing but fail; one that fails now and then does not."""

    def __init__(self) -> None:
        self._in_a_row, self._most = 0, FIRST_FAILURES

    def count(self, attempt: Attempt) -> None:
        """Take note of an attempt.

        Raises:
            MeasurementsFailed: it is one failure too many in a row.
        """
        if attempt.outcome is not None:
            self._in_a_row, self._most = 0, FAILURES_IN_A_ROW
            return
        self._in_a_row += 1
        if self._in_a_row >= self._most:
            raise MeasurementsFailed(
                f"{self._in_a_row} measurements in a row failed, the last by {attempt.status}: {attempt.reason}; "
                "their trials hold the ends of their logs"
            )
