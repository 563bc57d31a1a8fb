"""Attempts from what a measurement returned or raised."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from autoauto.records.knobs import Knobs
from autoauto.records.trial import Status
from autoauto.study.execution.process import LOG_LINES, attempt_of, failed_attempt

if TYPE_CHECKING:
    from tests.search.conftest import Fake
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from autoauto.records.trial import Attempt, Outcome
from autoauto.study.execution.process import Bounds, Child
from tests.running import is_running, wait_until

KNOBS = Knobs(2, 0.3, 32)


def test_an_outcome_is_an_attempt_without_a_reason_of_its_own(fake: Fake) -> None:
    outcome = fake(KNOBS)
    attempt = attempt_of(KNOBS, outcome, 1.5)
    assert (attempt.knobs, attempt.status, attempt.outcome) == (KNOBS, Status.OK, outcome)
    assert (attempt.reason, attempt.log) == ("", ())
    assert attempt.ended - attempt.started == timedelta(seconds=1.5)


def test_an_exception_is_a_bug_with_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError as error:
        attempt = attempt_of(KNOBS, error, 1.5)
    assert (attempt.status, attempt.reason) == (Status.BUG, "ZeroDivisionError: by zero")
    assert 'raise ZeroDivisionError("by zero")' in " ".join(attempt.log)


def test_no_memory_left_is_out_of_memory() -> None:
    assert attempt_of(KNOBS, MemoryError(), 1.5).status is Status.OUT_OF_MEMORY


def test_of_a_long_log_the_end_is_kept() -> None:
    lines = [str(i) for i in range(100)]
    assert failed_attempt(KNOBS, Status.CRASH, "signal 11", lines, 1.5).log == tuple(lines[-LOG_LINES:])


MIB = 2**20
INFEASIBLE = "no plan"


@dataclass(frozen=True)
class Trouble:
    """A target that gets into trouble, by the batch size."""

    note: Path

    def __call__(self, knobs: Knobs) -> Outcome:
        print(f"measuring a batch of {knobs.batch_size}", flush=True)
        match knobs.batch_size:
            case 2:
                os.abort()
            case 3:
                os._exit(7)
            case 4:
                os.kill(os.getpid(), signal.SIGKILL)
            case 5:
                raise ZeroDivisionError("by zero")
            case 6:
                grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                self.note.write_text(str(grandchild.pid))
                time.sleep(600)
            case 7:
                bytearray(2**40)
        return Outcome(knobs, None, None, 0.0, 0.0, 0, 1, INFEASIBLE)


def knobs(batch_size: int) -> Knobs:
    return Knobs(1, 0.6, batch_size)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    child = Child(Trouble(tmp_path / "note"), Bounds(timeout_s=60.0, memory_bytes=2048 * MIB))
    yield child
    child.close()


def ended(child: Child) -> Attempt:
    while True:
        wait([child.connection], 0.5)
        if (attempt := child.ended()) is not None:
            assert child.knobs is None
            return attempt


@pytest.mark.slow
def test_whatever_happens_is_an_attempt_and_the_next_is_measured(child: Child) -> None:
    seen = {}
    for batch_size in (1, 8, 2, 3, 4, 5, 7, 9):
        child.begin(knobs(batch_size))
        assert child.knobs == knobs(batch_size)
        seen[batch_size] = ended(child)
        assert seen[batch_size].knobs == knobs(batch_size)
    assert {size: attempt.status for size, attempt in seen.items()} == {
        1: Status.INFEASIBLE,
        8: Status.INFEASIBLE,
        2: Status.CRASH,
        3: Status.CRASH,
        4: Status.OUT_OF_MEMORY,
        5: Status.BUG,
        7: Status.OUT_OF_MEMORY,
        9: Status.INFEASIBLE,
    }
    assert seen[2].reason == "the measuring process died of SIGABRT"
    assert seen[3].reason == "the measuring process ended with exit code 7"
    assert "as the kernel does when memory runs out" in seen[4].reason
    assert seen[5].reason == "ZeroDivisionError: by zero"
    assert seen[7].reason == "MemoryError: "
    assert seen[2].log[0] == "measuring a batch of 2"
    assert 'raise ZeroDivisionError("by zero")' in " ".join(seen[5].log)
    assert seen[9].outcome is not None
    assert seen[9].outcome.reason == INFEASIBLE


@pytest.mark.slow
def test_what_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    with closing(Child(Trouble(tmp_path / "note"), Bounds(timeout_s=5.0))) as child:
        child.begin(knobs(6))
        attempt = ended(child)
    assert (attempt.status, attempt.reason) == (Status.TIME_OUT, "no result within 5 s")
    assert (attempt.ended - attempt.started).total_seconds() >= 5.0
    grandchild = int((tmp_path / "note").read_text())
    wait_until(lambda: not is_running(grandchild), "no grandchild")


@dataclass(frozen=True)
class Sluggish:
    """A target that a new process takes so many seconds to read."""

    seconds: float

    def __reduce__(self) -> tuple[object, ...]:
        return read_slowly, (self.seconds,)

    def __call__(self, knobs: Knobs) -> Outcome:
        return Outcome(knobs, None, None, 0.0, 0.0, 0, 1, INFEASIBLE)


def read_slowly(seconds: float) -> Sluggish:
    time.sleep(seconds)
    return Sluggish(seconds)


@pytest.mark.slow
def test_a_short_time_is_the_measurements_and_not_the_starts() -> None:
    with closing(Child(Sluggish(1.5), Bounds(timeout_s=1.0))) as child:
        child.begin(knobs(1))
        assert ended(child).status is Status.INFEASIBLE


@pytest.mark.slow
def test_a_process_that_never_starts_is_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.study.execution.process.START_S", 1.0)
    with closing(Child(Sluggish(600.0), Bounds(timeout_s=0.5))) as child:
        child.begin(knobs(1))
        attempt = ended(child)
    assert (attempt.status, attempt.reason) == (Status.TIME_OUT, "not started within 1 s")


@pytest.mark.slow
def test_one_that_was_killed_while_it_waited_costs_no_measurement(child: Child) -> None:
    child.start()
    child.wait_until_ready()
    assert child._process is not None
    assert child._process.pid is not None
    os.kill(child._process.pid, signal.SIGKILL)
    child._process.join()
    child.begin(knobs(1))
    assert ended(child).status is Status.INFEASIBLE


def test_a_child_that_was_not_needed_is_closed() -> None:
    Child(Trouble(Path("note")), Bounds()).close()
