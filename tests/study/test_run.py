"""`run_search`: its answer, its measurements, resumed, interrupted, killed, and with failing targets and databases."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

import autoauto
from autoauto.database.registry import driver_url
from autoauto.processes.start import descendants
from autoauto.records.errors import BadInput, MeasurementsFailed
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Cell, Status, Trial, ended_early
from autoauto.study.execution.executors import InlineExecutor, ProcessExecutor
from autoauto.study.execution.process import Bounds
from autoauto.study.methods.protocol import Proposer, observation_of
from autoauto.study.methods.registry import exhaustive
from autoauto.study.run import SearchProgress, SearchResult, SearchTask, run_search, run_task
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.trials import from_optuna, stored_trials
from tests.running import is_running, wait_until
from tests.study.cells import essence

if TYPE_CHECKING:
    from tests.study.conftest import Fake

Brief = tuple[int, float, int | None, str]
SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))
FINGERPRINT = {"model": "abc"}
EVERY = Proposer(lambda space, _: exhaustive(space))
HANG_S = 10.0
"""Time limit of measurements of which some hang; the others take no time, also on a busy machine."""


def search(storage: str, fake: Fake, space: SearchSpace = SPACE, name: str = "bow") -> SearchResult:
    return run_search(space, fake, open_study(storage, name, Objective.THROUGHPUT, FINGERPRINT), Objective.THROUGHPUT)


def brief(cells: tuple[Cell, ...]) -> tuple[Brief, ...]:
    """n_ipu, memory_proportion, the largest batch size that fits, and why none does."""
    return tuple(
        (
            cell.knobs.n_ipu,
            cell.knobs.values["memory_proportion"],
            cell.largest.knobs.batch_size if cell.largest else None,
            "" if cell.largest else cell.trials[0].reason,
        )
        for cell in cells
    )


def states(storage: str) -> list[TrialState]:
    return [trial.state for trial in load_study(storage, "bow").get_trials()]


def test_every_cell_is_searched_to_its_boundary(storage: str, fake: Fake) -> None:
    result = search(storage, fake)
    # a stage needs 100 + batch * 25 * proportion / n_ipu bytes (rounded down) of 1000
    assert brief(result.cells) == (
        (1, 0.3, 120, ""),
        (1, 1.0, 36, ""),
        (2, 0.3, 127, ""),
        (2, 1.0, 72, ""),
    )
    assert result.counts.n_configurations == 4 * 127
    assert result.counts.n_tried == len(fake.calls) == len(set(fake.calls)) == 4 * 7
    assert result.study_name == "bow"
    grid = [(n, p) for n in (1, 2) for p in (0.3, 1.0)]
    assert [(k.n_ipu, k.values["memory_proportion"]) for k in fake.calls] == [cell for cell in grid for _ in range(7)]


def test_the_best_is_the_best_measured_not_the_largest_that_fits(storage: str, fake: Fake) -> None:
    result = search(storage, fake, SearchSpace((1,), (1.0,), (6, 30, 31)))
    assert brief(result.cells) == ((1, 1.0, 31, ""),)
    assert result.best is not None
    assert result.best.knobs == Knobs(
        n_ipu=1, memory_proportion=1.0, batch_size=30
    )  # 31 needs a sixth step of 6 samples


def test_per_device_has_its_own_best(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.PER_DEVICE, FINGERPRINT)
    result = run_search(SPACE, fake, study, Objective.PER_DEVICE)
    values = [t.value for t in study.get_trials() if t.value is not None]
    assert result.best is not None
    assert result.best.value == min(values)
    assert result.best.knobs.n_ipu == 1


@pytest.mark.parametrize(
    ("batch_size", "cell", "n_measured"),
    [
        ((1, *range(37, 90)), (1, 1.0, 1, ""), 6),
        ((36,), (1, 1.0, 36, ""), 1),
        ((37,), (1, 1.0, None, "stage 0 is out of memory"), 1),
        (tuple(range(37, 100)), (1, 1.0, None, "stage 0 is out of memory"), 6),
    ],
)
def test_few_or_no_candidates_fit(
    storage: str, fake: Fake, batch_size: tuple[int, ...], cell: Brief, n_measured: int
) -> None:
    result = search(storage, fake, SearchSpace((1,), (1.0,), batch_size))
    assert brief(result.cells) == (cell,)
    assert result.counts.n_tried == n_measured
    assert (result.best is None) == (cell[2] is None)


def test_a_cell_that_cannot_run_does_not_stop_the_others(storage: str, fake: Fake) -> None:
    fake.tied = 2
    result = search(storage, fake)
    assert brief(result.cells[1:3]) == ((1, 1.0, 36, ""), (2, 0.3, None, "tied weights leave no cut"))
    assert result.best is not None


def test_a_changed_space_resumes_from_known_trials(storage: str, fake: Fake) -> None:
    narrow, wide = (
        SearchSpace((1,), (1.0,), tuple(range(1, 128))),
        SearchSpace((1, 4), (0.1, 1.0), tuple(range(1, 128))),
    )
    first = search(storage, fake, narrow)
    second = search(storage, fake, wide)
    assert len(fake.calls) == len(set(fake.calls)) == second.counts.n_tried == 4 * 7
    assert second.cells[1] == first.cells[0]
    assert second.best is not None
    assert second.best.knobs.n_ipu == 4
    third = search(storage, fake, narrow)
    assert replace(third, others=()) == first  # the best of another space is no answer here
    assert {trial.knobs for trial in third.others} == second.trials.keys() - first.trials.keys()


@dataclass
class Racing:
    """Runs with intervals of 3 % to either side; those at a batch size of 1 end early."""

    fake: Fake

    def __call__(self, knobs: Knobs) -> Trial:
        trial = self.fake(knobs)
        speed = trial.samples_per_s
        known = trial.with_values(low_samples_per_s=0.97 * speed, high_samples_per_s=1.03 * speed, core_share=0.5)
        return ended_early(known) if knobs.batch_size == 1 else known


def test_a_run_that_ended_early_is_a_trial_and_no_answer(storage: str, fake: Fake) -> None:
    fast, slow = (Knobs(n_ipu=1, memory_proportion=1.0, batch_size=size) for size in (30, 1))
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    task = SearchTask(SearchSpace((1,), (1.0,), (1, 30)), Objective.THROUGHPUT, EVERY)
    result = run_task(task, study, InlineExecutor(Racing(fake)))
    assert result.best is not None
    assert result.best.knobs == fast
    [early] = [trial for trial in stored_trials(load_study(storage, "bow")).own if trial.knobs == slow]
    assert (early.status, early.state, early.values) == (Status.ENDED_EARLY, "PRUNED", ())
    expected = fake(slow).samples_per_s
    assert early.samples_per_s == expected
    assert early.result.ends == pytest.approx((0.97 * expected, 1.03 * expected, 0.5))
    assert result.cells[0].first_unfit is None
    assert observation_of(early, Objective.THROUGHPUT).score == expected
    fake.calls.clear()
    run_task(task, study, InlineExecutor(Racing(fake)))
    assert fake.calls == []


def test_a_run_that_ended_early_runs_again_where_what_was_faster_is_no_part_of_the_search(
    storage: str, fake: Fake
) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    wide, narrow = (SearchSpace((1,), (1.0,), sizes) for sizes in ((1, 30), (1,)))
    run_task(SearchTask(wide, Objective.THROUGHPUT, EVERY), study, InlineExecutor(Racing(fake)))
    result = run_task(SearchTask(narrow, Objective.THROUGHPUT, EVERY), study, InlineExecutor(fake))
    assert result.best is not None
    assert result.best.knobs.batch_size == 1


def test_trials_outside_the_space_are_apart(storage: str, fake: Fake) -> None:
    narrow, other = SearchSpace((1,), (1.0,), (30,)), SearchSpace((2,), (1.0,), (30,))
    first = search(storage, fake, narrow)
    assert first.others == ()
    second = search(storage, fake, other)
    assert set(second.others) == set(first.trials.values())
    assert set(second.trials) == {Knobs(n_ipu=2, memory_proportion=1.0, batch_size=30)}
    wide = search(storage, fake, SearchSpace((1, 2), (1.0,), (30,)))
    assert wide.others == ()
    assert set(wide.trials) == {*first.trials, *second.trials}


def test_only_the_best_have_plans(storage: str, fake: Fake) -> None:
    for result in (search(storage, fake), search(storage, fake)):  # the second reads its trials from the database
        assert all(trial.measured is trial.estimate is None for trial in result.trials.values())
        assert result.best is not None
        assert result.best.measured == fake(result.best.knobs).measured
        assert result.best.estimate == fake(result.best.knobs).estimate
        assert result.front == (result.best,)
        assert result.summary is None


def test_progress_counts_up_to_its_total(storage: str, fake: Fake) -> None:
    seen: list[SearchProgress] = []
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    space = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 129)))
    result = run_search(space, fake, study, Objective.THROUGHPUT, seen.append)
    *tries, end = seen
    assert [step.knobs for step in tries] == fake.calls
    assert {step.total for step in seen} == {4 * 8}
    assert [step.done for step in seen] == sorted({step.done for step in seen})
    assert (seen[0].done, seen[0].best) == (0, None)
    assert (end.done, end.knobs) == (32, None)
    assert result.best is not None
    assert end.best == replace(result.best, measured=None, estimate=None)


def test_an_error_in_the_callback_ends_the_search_and_loses_no_trial(storage: str, fake: Fake) -> None:
    reported: list[Knobs] = []

    def callback(trial: Trial) -> None:
        reported.append(trial.knobs)
        if len(reported) == 4:
            raise ZeroDivisionError("in the callback")

    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    with pytest.raises(ZeroDivisionError, match="in the callback"):
        run_search(SPACE, fake, study, Objective.THROUGHPUT, callback=callback)
    assert reported == fake.calls
    assert states(storage) == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.COMPLETE, TrialState.COMPLETE]
    assert search(storage, fake).counts.n_tried == len(fake.calls) == 28  # what was reported is not measured again


@pytest.mark.slow
def test_the_callback_gets_trials_of_processes_that_hang_and_crash(storage: str, fake: Fake) -> None:
    space = SearchSpace((1, 2), (0.3,), (32, 100))
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    reported: list[Trial] = []
    executor = ProcessExecutor(Unreliable(fake), 2, Bounds(timeout_s=HANG_S))
    run_search(space, fake, study, Objective.THROUGHPUT, executor=executor, callback=reported.append)
    reasons = {(trial.knobs.n_ipu, trial.knobs.batch_size): (trial.status, trial.reason) for trial in reported}
    assert reasons[1, 100] == (Status.TIME_OUT, f"no result within {HANG_S:g} s")
    assert reasons[2, 100] == (Status.CRASH, "the measuring process died of SIGABRT")
    assert [trial.number for trial in reported] == sorted(trial.number for trial in study.get_trials())


@dataclass
class Stops:
    """Evaluates like `fake` until call number `after`, then raises or sends a signal."""

    fake: Fake
    after: int
    signal: signal.Signals | None = None

    def __call__(self, knobs: Knobs) -> Trial:
        if len(self.fake.calls) < self.after:
            return self.fake(knobs)
        if self.signal is None:
            raise ZeroDivisionError("in the evaluation")
        os.kill(os.getpid(), self.signal)
        raise AssertionError("the signal raised nothing")


def test_a_crash_is_a_failed_trial_and_propagates_with_its_traceback(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    with pytest.raises(ZeroDivisionError) as caught:
        run_search(SPACE, Stops(fake, 3), study, Objective.THROUGHPUT)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'raise ZeroDivisionError("in the evaluation")'
    *finished, failed = study.get_trials()
    assert len(finished) == 3
    assert failed.state is TrialState.FAIL
    assert failed.user_attrs["reason"] == "ZeroDivisionError: in the evaluation"
    assert from_optuna(failed).log[-1] == failed.user_attrs["reason"]
    assert search(storage, fake).counts.n_tried == 28
    assert len(states(storage)) == 29


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_finished_trials_only(storage: str, fake: Fake, number: signal.Signals) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        run_search(SPACE, Stops(fake, 3, number), study, Objective.THROUGHPUT)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert len(study.get_trials()) == 3
    assert set(states(storage)) <= {TrialState.COMPLETE, TrialState.PRUNED}
    result = search(storage, fake)
    assert len(fake.calls) == len(set(fake.calls)) == result.counts.n_tried == 28


@pytest.fixture
def start_child(storage: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a search in another process, which is killed at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def start(sleep_s: float, n_workers: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name("conftest.py")), storage, str(sleep_s), str(n_workers)]
        environment = {**os.environ, "PYTHONPATH": str(Path(autoauto.__file__).parent.parent)}
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "started\n"
        return child

    yield start
    for child in started:
        with child:
            child.kill()


def end(child: subprocess.Popen[str], number: signal.Signals) -> int:
    child.send_signal(number)
    child.communicate()
    return child.returncode


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_process_loses_no_finished_trial(
    storage: str,
    tmp_path: Path,
    fake: Fake,
    slow_space: SearchSpace,
    start_child: Callable[..., subprocess.Popen[str]],
    number: signal.Signals,
) -> None:
    whole = search(f"sqlite:///{tmp_path}/whole.db", fake, slow_space)
    known: list[optuna.trial.FrozenTrial] = []
    for n_more in (1, 4):
        child = start_child(0.02)  # it cannot end: it hangs in its 15th measurement
        wait_for_trials(storage, len(known) + n_more)
        assert end(child, number) != 0
        with sqlite3.connect(tmp_path / "studies/search.db") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        finished = load_study(storage, "bow").get_trials()
        assert finished[: len(known)] == known
        known = finished
    fake.calls.clear()
    result = search(storage, fake, slow_space)
    assert len(fake.calls) == whole.counts.n_tried - len(known)
    assert (essence(result.cells), result.counts.n_tried) == (essence(whole.cells), whole.counts.n_tried)
    assert result.best is not None
    assert whole.best is not None
    assert (result.best.knobs, result.best.value, result.best.measured) == (
        whole.best.knobs,
        whole.best.value,
        whole.best.measured,
    )
    assert set(states(storage)) <= {TrialState.COMPLETE, TrialState.PRUNED}


def wait_for_trials(storage: str, n_trials: int) -> None:
    wait_until(lambda: len(states(storage)) >= n_trials, f"{n_trials} trials")


@pytest.mark.slow
def test_the_processes_of_a_killed_search_die_with_it_and_it_is_resumed(
    storage: str, fake: Fake, slow_space: SearchSpace, start_child: Callable[..., subprocess.Popen[str]]
) -> None:
    coordinator = start_child(0.3, 2)
    wait_until(lambda: states(storage) or coordinator.poll() is not None, "a trial")
    workers = descendants(coordinator.pid)
    assert len(workers) >= 4  # two that measure, and their guards
    end(coordinator, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, workers)), "no workers")
    known = load_study(storage, "bow").get_trials()
    result = search(storage, fake, slow_space)
    trials = load_study(storage, "bow").get_trials()
    assert trials[: len(known)] == known
    assert len({tuple(trial.params.items()) for trial in trials}) == len(trials) == result.counts.n_tried


def test_a_full_disk_is_one_line_and_the_search_is_resumed_when_there_is_room(
    storage: str, tmp_path: Path, fake: Fake
) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    full = sum(file.stat().st_size for file in (tmp_path / "studies").iterdir()) + 100_000
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, hard))
    try:
        with pytest.raises(BadInput, match=r"^the study's database cannot be used: .*disk.*; try another --storage$"):
            run_search(SPACE, fake, study, Objective.THROUGHPUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    known = load_study(storage, "bow").get_trials()
    assert 0 < len(known) < 28
    result = search(storage, fake)
    trials = load_study(storage, "bow").get_trials()
    assert trials[: len(known)] == known
    assert len(trials) == result.counts.n_tried == 28


@pytest.mark.slow
def test_a_server_that_drops_all_connections_again_and_again_loses_and_doubles_nothing(
    postgres: str, postgres_study_name: str, fake: Fake
) -> None:
    """As a restart of the server does, without stopping a server that others use."""
    name, application = postgres_study_name, f"autoauto-test-{uuid.uuid4()}"
    study = open_study(f"{postgres}?application_name={application}", name, Objective.THROUGHPUT, FINGERPRINT)
    done, n_dropped = threading.Event(), list[int]()
    drops = threading.Thread(target=drop_connections, args=(postgres, application, done, n_dropped))

    def measure(knobs: Knobs) -> Trial:
        if len(fake.calls) in (5, 10):  # the search has connections, which it will use again
            before = sum(n_dropped)
            wait_until(lambda: sum(n_dropped) > before, "dropped connections")
        return fake(knobs)

    drops.start()
    try:
        result = run_search(SPACE, measure, study, Objective.THROUGHPUT)
    finally:
        done.set()
        drops.join()
    trials = load_study(postgres, name).get_trials()
    assert result.counts.n_tried == len(trials) == 28
    assert [trial.number for trial in trials] == list(range(28))
    assert len({tuple(trial.params.items()) for trial in trials}) == 28
    assert sum(n_dropped) >= 2


def drop_connections(storage: str, application: str, done: threading.Event, n_dropped: list[int]) -> None:
    """Drop all connections of an application after longer and longer pauses, so that a slow machine makes progress."""
    engine, pause_s = create_engine(driver_url(make_url(storage))), 0.1
    drop = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = :application")
    while not done.wait(pause_s):
        with engine.connect() as connection:
            n_dropped.append(len(connection.execute(drop, {"application": application}).all()))
        pause_s *= 1.3
    engine.dispose()


@dataclass(frozen=True)
class Unreliable:
    """A target that crashes at large batches of two devices, and hangs at those of one."""

    fake: Fake

    def __call__(self, knobs: Knobs) -> Trial:
        if knobs.batch_size > 64:
            if knobs.n_ipu == 2:
                os.abort()
            time.sleep(600)
        return self.fake(knobs)


@pytest.mark.slow
def test_a_target_that_crashes_and_hangs_costs_those_configurations_only(storage: str, fake: Fake) -> None:
    space = SearchSpace((1, 2), (0.3,), tuple(range(16, 128, 16)))
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    executor = ProcessExecutor(Unreliable(fake), 1, Bounds(timeout_s=HANG_S))
    result = run_search(space, fake, study, Objective.THROUGHPUT, executor=executor)
    assert brief(result.cells) == ((1, 0.3, 64, ""), (2, 0.3, 64, ""))
    failed = [trial for trial in study.get_trials() if trial.state is TrialState.FAIL]
    assert {(trial.params["n_ipu"], trial.user_attrs["status"]) for trial in failed} == {(1, "time-out"), (2, "crash")}
    assert {trial.user_attrs["reason"] for trial in failed} == {
        f"no result within {HANG_S:g} s",
        "the measuring process died of SIGABRT",
    }


@pytest.mark.slow
def test_a_target_that_always_fails_ends_the_search(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    with pytest.raises(MeasurementsFailed, match=r"^3 measurements in a row failed, the last by bug: Zero"):
        run_search(SPACE, fake, study, Objective.THROUGHPUT, executor=ProcessExecutor(Stops(fake, 0), 1, Bounds()))
    assert states(storage) == [TrialState.FAIL] * 3
    assert search(storage, fake).counts.n_tried == 28
