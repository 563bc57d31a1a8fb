"""Trials from results and exceptions, and a measuring process that crashes, hangs or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from mmap import mmap
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autoauto.processes.start import UNGUARDED_HINT, descendants
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.process import LOG_LINES, Bounds, MeasuringProcess, failed_trial, finished_trial
from tests.running import is_running, started_script, wait_until

if TYPE_CHECKING:
    from tests.study.conftest import Fake


KNOBS = Knobs(n_ipu=2, memory_proportion=0.3, batch_size=32)


def duration(trial: Trial) -> timedelta:
    assert trial.started is not None
    assert trial.ended is not None
    return trial.ended - trial.started


def test_a_result_becomes_a_finished_trial_with_its_times(fake: Fake) -> None:
    result = fake(KNOBS)
    assert (result.started, result.ended) == (None, None)
    before = datetime.now(UTC)
    trial = finished_trial(KNOBS, result, 1.5)
    assert replace(trial, started=None, ended=None) == result
    assert (trial.knobs, trial.status, trial.reason, trial.log) == (KNOBS, Status.OK, "", ())
    assert duration(trial) == timedelta(seconds=1.5)
    assert trial.ended is not None
    assert before <= trial.ended <= datetime.now(UTC)
    assert trial.ended.tzinfo is UTC


def test_an_exception_becomes_a_bug_with_its_traceback() -> None:
    try:
        raise ZeroDivisionError("by zero")
    except ZeroDivisionError as error:
        trial = finished_trial(KNOBS, error, 1.5)
    assert (trial.status, trial.reason) == (Status.BUG, "ZeroDivisionError: by zero")
    assert 'raise ZeroDivisionError("by zero")' in " ".join(trial.log)


def test_a_memory_error_is_of_the_process_and_not_of_a_device() -> None:
    trial = finished_trial(KNOBS, MemoryError(), 1.5)
    assert (trial.status, trial.failed) == (Status.PROCESS_OUT_OF_MEMORY, True)


def test_the_end_of_a_long_log_is_stored() -> None:
    lines = [str(i) for i in range(100)]
    assert failed_trial(KNOBS, Status.CRASH, "signal 11", lines, 1.5).log == tuple(lines[-LOG_LINES:])


MIB = 2**20
INFEASIBLE = "no plan"


@dataclass(frozen=True)
class TroublesomeTarget:
    """A target that crashes, exits, is killed, raises, hangs or uses too much memory, depending on the batch size."""

    note: Path

    def __call__(self, knobs: Knobs) -> Trial:
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
                grandchild = subprocess.Popen(["sleep", "600"])
                self.note.write_text(str(grandchild.pid))
                time.sleep(600)
            case 7:
                bytearray(2**40)
        return Trial(knobs, Status.INFEASIBLE, INFEASIBLE)


def knobs(batch_size: int) -> Knobs:
    return Knobs(n_ipu=1, memory_proportion=0.6, batch_size=batch_size)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[MeasuringProcess]:
    process = MeasuringProcess(TroublesomeTarget(tmp_path / "note"), Bounds(timeout_s=60.0, memory_bytes=2048 * MIB))
    yield process
    process.close()


def trial_from(process: MeasuringProcess) -> Trial:
    while True:
        wait(process.descriptors, 0.5)
        if (trial := process.poll()) is not None:
            assert process.knobs is None
            return trial


@pytest.mark.slow
def test_every_failure_is_a_trial_and_the_next_configuration_is_measured(process: MeasuringProcess) -> None:
    seen = {}
    for batch_size in (1, 8, 2, 3, 4, 5, 7, 9):
        process.submit(knobs(batch_size))
        assert process.knobs == knobs(batch_size)
        seen[batch_size] = trial_from(process)
        assert seen[batch_size].knobs == knobs(batch_size)
    assert {size: trial.status for size, trial in seen.items()} == {
        1: Status.INFEASIBLE,
        8: Status.INFEASIBLE,
        2: Status.CRASH,
        3: Status.CRASH,
        4: Status.PROCESS_OUT_OF_MEMORY,
        5: Status.BUG,
        7: Status.PROCESS_OUT_OF_MEMORY,
        9: Status.INFEASIBLE,
    }
    assert seen[2].reason == "the measuring process died of SIGABRT"
    assert seen[3].reason == "the measuring process ended with exit code 7"
    assert "as the kernel does when memory runs out" in seen[4].reason
    assert seen[5].reason == "ZeroDivisionError: by zero"
    assert seen[7].reason == "MemoryError: "
    assert seen[2].log[0] == "measuring a batch of 2"
    assert 'raise ZeroDivisionError("by zero")' in " ".join(seen[5].log)
    assert seen[9].reason == INFEASIBLE


@pytest.mark.slow
def test_a_measurement_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    with closing(MeasuringProcess(TroublesomeTarget(tmp_path / "note"), Bounds(timeout_s=5.0))) as process:
        process.submit(knobs(6))
        trial = trial_from(process)
    assert (trial.status, trial.reason) == (Status.TIME_OUT, "no result within 5 s")
    assert duration(trial) >= timedelta(seconds=5)
    grandchild = int((tmp_path / "note").read_text())
    wait_until(lambda: not is_running(grandchild), "no grandchild")


@dataclass(frozen=True)
class SlowToLoad:
    """A target that takes so many seconds to unpickle."""

    seconds: float

    def __reduce__(self) -> tuple[object, ...]:
        return load_slowly, (self.seconds,)

    def __call__(self, knobs: Knobs) -> Trial:
        return Trial(knobs, Status.INFEASIBLE, INFEASIBLE)


def load_slowly(seconds: float) -> SlowToLoad:
    time.sleep(seconds)
    return SlowToLoad(seconds)


@pytest.mark.slow
def test_a_short_time_limit_does_not_count_the_start_of_the_process() -> None:
    with closing(MeasuringProcess(SlowToLoad(6.0), Bounds(timeout_s=5.0))) as process:
        process.submit(knobs(1))
        assert trial_from(process).status is Status.INFEASIBLE


@pytest.mark.slow
def test_a_process_that_never_gets_ready_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.study.execution.process.START_S", 1.0)
    with closing(MeasuringProcess(SlowToLoad(600.0), Bounds(timeout_s=0.5))) as process:
        process.submit(knobs(1))
        trial = trial_from(process)
    assert (trial.status, trial.reason) == (Status.TIME_OUT, "not started within 1 s")


@pytest.mark.slow
def test_a_process_that_was_killed_while_idle_costs_no_measurement(process: MeasuringProcess) -> None:
    process.start()
    process.wait_until_ready()
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    wait([process._process.descriptors[1]])
    process.submit(knobs(1))
    assert trial_from(process).status is Status.INFEASIBLE


@pytest.mark.slow
def test_a_process_whose_child_was_killed_while_idle_costs_no_measurement(process: MeasuringProcess) -> None:
    process.start()
    process.wait_until_ready()
    assert process._process is not None
    os.kill(descendants(process._process.pid)[0], signal.SIGKILL)
    process.submit(knobs(1))
    assert trial_from(process).status is Status.INFEASIBLE


class Strange(BaseException):
    """What nobody should raise."""


def write_garbage() -> None:
    """Write to every descriptor but those of the output."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.write(int(name), b"garbage!")


def start_in_a_session_of_its_own(note: Path) -> None:
    """Start a child that keeps all descriptors open, and is not in the group of this process."""
    if not os.fork():
        os.setsid()
        note.write_text(str(os.getpid()))
        time.sleep(600)
    wait_until(lambda: note.exists() and note.read_text(), "a child")


@dataclass(frozen=True)
class FaultyTarget:
    """A target with a fault at every batch size above 1."""

    note: Path

    def __call__(self, knobs: Knobs) -> Trial:
        match knobs.batch_size:
            case 2:
                write_garbage()
                time.sleep(600)
            case 3:
                os.fork()
            case 4:
                start_in_a_session_of_its_own(self.note)
                os._exit(7)
            case 5:
                memory = mmap(-1, 512 * MIB)
                for _ in range(512):
                    memory.write(b"x" * MIB)
                time.sleep(600)
            case 6:
                raise SystemExit(0)
            case 7:
                raise GeneratorExit("early")
            case 8:
                raise KeyboardInterrupt("typed by nobody")
            case 9:
                raise Strange("at all")
            case 10:
                os.closerange(3, 256)
                time.sleep(600)
        return Trial(knobs, Status.INFEASIBLE, INFEASIBLE)


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[MeasuringProcess]:
    """Without a time limit: whoever waits for a process that is gone waits forever."""
    with closing(MeasuringProcess(FaultyTarget(tmp_path / "note"), Bounds(memory_bytes=384 * MIB))) as process:
        yield process


@pytest.mark.slow
def test_garbage_in_every_descriptor_is_a_crash_at_once(
    faulty: MeasuringProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    faulty.submit(knobs(2))
    trial = trial_from(faulty)
    assert trial.status is Status.CRASH
    assert trial.reason == (
        "the measuring process wrote into the channel of its results: something else than a message arrived: "
        "b'garbage!'"
    )
    faulty.submit(knobs(1))
    assert trial_from(faulty).status is Status.INFEASIBLE
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_a_process_that_closes_every_descriptor_is_a_crash(
    faulty: MeasuringProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoauto.study.execution.process.CLOSED_S", 0.1)
    faulty.submit(knobs(10))
    trial = trial_from(faulty)
    assert (trial.status, trial.reason) == (Status.CRASH, "the measuring process closed the channel of its results")


@pytest.mark.slow
def test_a_process_that_forks_and_goes_on_twice_answers_once(faulty: MeasuringProcess) -> None:
    for batch_size in (3, 1, 3, 3, 1):
        faulty.submit(knobs(batch_size))
        trial = trial_from(faulty)
        assert (trial.knobs, trial.status) == (knobs(batch_size), Status.INFEASIBLE)


@pytest.mark.slow
def test_an_answer_to_an_earlier_request_is_ignored(faulty: MeasuringProcess) -> None:
    faulty.submit(knobs(1))
    faulty._request += 1  # as if it had been submitted again
    wait_until(lambda: faulty.poll() is None and faulty._ready, "an answer")
    assert faulty._process is not None
    faulty._process.channel.send((faulty._request, knobs(1)))
    assert trial_from(faulty).status is Status.INFEASIBLE


@pytest.mark.slow
def test_a_grandchild_in_a_session_of_its_own_is_not_waited_for(faulty: MeasuringProcess, tmp_path: Path) -> None:
    faulty.submit(knobs(4))
    trial = trial_from(faulty)
    assert (trial.status, trial.reason) == (Status.CRASH, "the measuring process ended with exit code 7")
    assert not is_running(int((tmp_path / "note").read_text()))


@pytest.mark.slow
def test_shared_memory_beyond_the_limit_is_out_of_memory(faulty: MeasuringProcess) -> None:
    faulty.submit(knobs(5))
    trial = trial_from(faulty)
    assert trial.status is Status.PROCESS_OUT_OF_MEMORY
    assert trial.reason.startswith("the measuring process and what it started held ")
    assert trial.reason.endswith(" MiB, more than the limit of 384.0 MiB")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "reason"),
    [
        (6, "SystemExit: 0"),
        (7, "GeneratorExit: early"),
        (8, "KeyboardInterrupt: typed by nobody"),
        (9, "Strange: at all"),
    ],
)
def test_what_is_no_exception_is_a_bug_too(faulty: MeasuringProcess, batch_size: int, reason: str) -> None:
    faulty.submit(knobs(batch_size))
    trial = trial_from(faulty)
    assert (trial.status, trial.reason) == (Status.BUG, reason)
    assert "in __call__" in " ".join(trial.log)


@pytest.mark.slow
def test_the_log_has_no_name_that_a_kill_could_leave(
    process: MeasuringProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    process.submit(knobs(5))
    while process.poll() is None:
        wait(process.descriptors, 0.5)
        assert list((tmp_path / "temporary").iterdir()) == []


UNGUARDED_SEARCH = """
import autoauto
space = autoauto.SearchSpace(n_ipu=(1,), memory_proportion=(0.6,), batch_size=(1, 2))
autoauto.search("resnet50", "bow-2000", space, n_workers=1, storage="sqlite:///{folder}/trials.db")
"""


@pytest.mark.slow
def test_a_script_that_searches_whenever_it_is_imported_is_refused_in_one_line(tmp_path: Path) -> None:
    with started_script(UNGUARDED_SEARCH.format(folder=tmp_path), tmp_path) as parent:
        _, errors = parent.communicate()
    assert parent.returncode == 1
    assert errors.splitlines()[-1] == f"autoauto.records.errors.BadInput: {UNGUARDED_HINT}"


def test_a_process_that_was_never_started_can_be_closed() -> None:
    process = MeasuringProcess(TroublesomeTarget(Path("note")), Bounds())
    process.close()
    assert process.knobs is None
