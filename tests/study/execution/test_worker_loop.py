"""Requested configurations are measured once, by any process, also when a process dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import text

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.execution.executors import InlineExecutor
from autoauto.study.execution.leases import Leases
from autoauto.study.execution.process import finished_trial
from autoauto.study.execution.worker_loop import MAX_CLAIMS, WorkerLoop
from autoauto.study.run import SearchTask, run_search, run_task
from autoauto.study.store.database import database_of, open_storage
from autoauto.study.store.study import join_study, open_study
from autoauto.study.store.trials import Ranges, from_optuna, knobs_of, ranges_of
from tests.running import wait_until
from tests.study.cells import essence

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 65)))
A, B, C = (
    Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1),
    Knobs(n_ipu=2, memory_proportion=1.0, batch_size=8),
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=64),
)


class Sleepers:
    """Several simultaneous measurements that only wait; submitting a running configuration again is an error."""

    def __init__(self, fake: Fake, n_slots: int, sleep_s: float = 0.0) -> None:
        self._fake, self._sleep_s, self.n_slots = fake, sleep_s, n_slots
        self._until_s: dict[Knobs, float] = {}
        self.max_running = 0

    @property
    def n_free(self) -> int:
        return self.n_slots - len(self._until_s)

    def submit(self, knobs: Knobs) -> None:
        assert self.n_free
        assert knobs not in self._until_s
        self._until_s[knobs] = time.monotonic() + self._sleep_s
        self.max_running = max(self.max_running, len(self._until_s))

    def wait(self, timeout_s: float) -> None:
        soonest_s = min(self._until_s.values(), default=float("inf"))
        time.sleep(max(0.0, min(timeout_s, soonest_s - time.monotonic())))

    def finished(self) -> list[Trial]:
        done = [knobs for knobs, until_s in self._until_s.items() if until_s <= time.monotonic()]
        for knobs in done:
            del self._until_s[knobs]
        return [finished_trial(knobs, self._fake(knobs), self._sleep_s) for knobs in done]

    def on_recorded(self, trial: Trial) -> None:
        pass

    def close(self) -> None:
        self._until_s.clear()


def with_ranges(*configurations: Knobs) -> dict[Knobs, Ranges]:
    return {knobs: ranges_of(SPACE, knobs) for knobs in configurations}


@pytest.fixture
def study(any_storage: str, study_name: str) -> optuna.Study:
    return open_study(any_storage, study_name, Objective.THROUGHPUT, {})


Start = Callable[[Callable[[optuna.Study], None]], ForkProcess]


@pytest.fixture
def start(any_storage: str, study_name: str) -> Iterator[Start]:
    """Run a function of the study in another process, which is killed at the end of the test."""
    started: list[ForkProcess] = []

    def run(work: Callable[[optuna.Study], None]) -> ForkProcess:
        process = get_context("fork").Process(target=lambda: work(join_study(any_storage, study_name)))
        process.start()
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.join()


def test_requested_configurations_become_trials(study: optuna.Study, fake: Fake) -> None:
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        first = loop.measure(with_ranges(A), nullcontext)
        assert list(first) == [A]
        assert first[A].fits
        assert list(loop.measure(with_ranges(A), nullcontext)) == [A]  # known: not measured again
        assert loop.n_finished == len(fake.calls) == 1
    assert [from_optuna(trial) for trial in study.get_trials()] == list(first.values())


def test_withdrawn_configurations_are_not_measured(study: optuna.Study, fake: Fake) -> None:
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        loop.measure(with_ranges(A, B, C), nullcontext)
        loop.measure(with_ranges(C), nullcontext)
    assert fake.calls == [A, C]
    assert Leases(study).claim() is None


def test_two_searches_of_one_study_share_the_work(study: optuna.Study, fake: Fake, start: Start) -> None:
    other = start(partial(search, fake=fake))
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    other.join()
    assert other.exitcode == 0
    trials = study.get_trials()
    assert len({tuple(trial.params.items()) for trial in trials}) == len(trials) == result.counts.n_tried
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}


def search(study: optuna.Study, fake: Fake) -> None:
    run_search(SPACE, fake, study, Objective.THROUGHPUT)


def test_several_slots_find_what_one_slot_finds(study: optuna.Study, any_storage: str, fake: Fake) -> None:
    alone = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    optuna.delete_study(study_name=study.study_name, storage=open_storage(any_storage))
    again = open_study(any_storage, study.study_name, Objective.THROUGHPUT, {})
    sleepers = Sleepers(fake, 4, 0.01)

    def expected_score(knobs: Knobs) -> float | None:
        trial = fake(knobs)
        return trial.samples_per_s if trial.fits else None

    task = SearchTask(SPACE, Objective.THROUGHPUT, expected_score=expected_score)
    together = run_task(task, again, sleepers)
    assert sleepers.max_running == 4
    assert essence(together.cells) == essence(alone.cells)
    assert together.counts == alone.counts  # all expected scores were right, so nothing was measured in vain
    assert alone.best is not None
    assert together.best is not None
    assert together.best.knobs == alone.best.knobs


def test_wrong_expected_scores_cost_measurements_and_change_no_answer(study: optuna.Study, fake: Fake) -> None:
    task = SearchTask(SPACE, Objective.THROUGHPUT, expected_score=lambda knobs: None)
    together = run_task(task, study, Sleepers(fake, 3))
    assert [
        (cell.knobs.n_ipu, cell.knobs.values["memory_proportion"], cell.largest and cell.largest.knobs.batch_size)
        for cell in together.cells
    ] == [
        (1, 0.3, 64),
        (1, 1.0, 36),
        (2, 0.3, 64),
        (2, 1.0, 64),
    ]
    assert together.counts.n_tried > 4 * 7


def test_the_configuration_of_a_killed_worker_is_measured_by_another(
    study: optuna.Study, fake: Fake, start: Start, tmp_path: Path
) -> None:
    Leases(study).request(with_ranges(A))
    lost = start(partial(work_until, released=tmp_path / "never"))
    wait_until(lambda: n_leased(study) == 1, "a lease")
    assert lost.pid is not None
    os.kill(lost.pid, signal.SIGKILL)
    lost.join()
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        assert list(loop.measure(with_ranges(A), nullcontext)) == [A]
    assert len(study.get_trials()) == 1


def work_until(study: optuna.Study, released: Path) -> None:
    """A worker whose only measurement ends when a file exists, after its lease was lost."""
    from tests.study.conftest import Fake

    def measure(knobs: Knobs) -> Trial:
        wait_until(released.exists, "a release")
        return Fake()(knobs)

    with WorkerLoop(study, InlineExecutor(measure), Objective.THROUGHPUT) as loop:
        assert loop.work(nullcontext)
        assert loop.n_finished == 0


def n_leased(study: optuna.Study) -> int:
    with database_of(study).storage.engine.connect() as connection:
        held = text("SELECT count(*) FROM autoauto_leases WHERE study_id = :study AND token IS NOT NULL")
        return int(connection.execute(held, {"study": database_of(study).study_id}).scalar_one())


def test_a_configuration_that_kills_every_worker_is_given_up(study: optuna.Study, fake: Fake) -> None:
    leases = Leases(study)
    leases.request(with_ranges(A))
    for _ in range(MAX_CLAIMS):
        assert leases.claim() is not None
        end_leases(study)
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        loop.work(nullcontext)
    [trial] = study.get_trials()
    assert trial.user_attrs == {"status": "crash", "reason": "3 workers were lost while they measured it"}
    assert fake.calls == []
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:  # a new search tries it again
        assert loop.measure(with_ranges(A), nullcontext)[A].fits


def end_leases(study: optuna.Study) -> None:
    """Let all leases run out, as if time had passed."""
    with database_of(study).storage.engine.begin() as connection:
        ended = text("UPDATE autoauto_leases SET expires_s = 0 WHERE study_id = :study")
        connection.execute(ended, {"study": database_of(study).study_id})


def test_a_lease_is_renewed_while_its_measurement_goes_on(study: optuna.Study, fake: Fake) -> None:
    expiries_s: list[float] = []

    def measure(knobs: Knobs) -> Trial:
        expiries_s.append(expires_s(study))
        wait_until(lambda: expires_s(study) > expiries_s[0], "a renewed lease")
        return fake(knobs)

    with WorkerLoop(study, InlineExecutor(measure), Objective.THROUGHPUT, lease_s=0.6) as loop:
        loop.measure(with_ranges(A), nullcontext)
    assert len(expiries_s) == len(study.get_trials()) == 1


def expires_s(study: optuna.Study) -> float:
    """When the only lease ends."""
    with database_of(study).storage.engine.connect() as connection:
        ends = text("SELECT expires_s FROM autoauto_leases WHERE study_id = :study")
        return float(connection.execute(ends, {"study": database_of(study).study_id}).scalar_one())


def test_a_worker_that_was_stopped_until_its_lease_ran_out_writes_nothing(
    study: optuna.Study, fake: Fake, start: Start, tmp_path: Path
) -> None:
    Leases(study).request(with_ranges(A))
    stopped = start(partial(work_until, released=tmp_path / "released"))
    wait_until(lambda: n_leased(study) == 1, "a lease")
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGSTOP)  # long before it renews its lease: it holds no lock of the database
    end_leases(study)
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        [first] = loop.measure(with_ranges(A), nullcontext).values()
    (tmp_path / "released").touch()
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.join()
    assert stopped.exitcode == 0
    assert [from_optuna(trial) for trial in study.get_trials()] == [first]


def test_the_callback_gets_every_trial_once_and_after_it_was_written(study: optuna.Study, fake: Fake) -> None:
    reported: list[tuple[Knobs, int]] = []

    def callback(trial: Trial) -> None:
        reported.append((trial.knobs, len(study.get_trials())))

    with WorkerLoop(study, Sleepers(fake, 3), Objective.THROUGHPUT, callback=callback) as loop:
        loop.measure(with_ranges(A, B, C), nullcontext)
        loop.measure(with_ranges(A, B, C), nullcontext)
    assert reported == [(A, 3), (B, 3), (C, 3)]  # they finished together: all were written before the first call


def test_the_callback_gets_requested_trials_that_others_finish(study: optuna.Study, fake: Fake) -> None:
    reported: list[Trial] = []
    with (
        WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as other,
        WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT, callback=reported.append) as loop,
    ):
        other.measure(with_ranges(A), nullcontext)
        loop.measure(with_ranges(A, B), nullcontext)
        loop.measure(with_ranges(B), nullcontext)
    assert [(trial.knobs, trial.status) for trial in reported] == [(A, Status.OK), (B, Status.OK)]
    assert reported[0].value == reported[0].samples_per_s == fake(A).samples_per_s


def test_a_callback_that_raises_loses_no_finished_trial(study: optuna.Study, fake: Fake) -> None:
    def callback(trial: Trial) -> None:
        raise ZeroDivisionError(trial.knobs)

    with (
        pytest.raises(ZeroDivisionError),
        WorkerLoop(study, Sleepers(fake, 3), Objective.THROUGHPUT, callback=callback) as loop,
    ):
        loop.measure(with_ranges(A, B, C), nullcontext)
    assert {knobs_of(trial.params) for trial in study.get_trials()} == {A, B, C}
    with WorkerLoop(study, InlineExecutor(fake), Objective.THROUGHPUT) as loop:
        assert set(loop.measure(with_ranges(A, B, C), nullcontext)) == {A, B, C}
    assert len(fake.calls) == 3


def test_the_callback_gets_a_failure_before_it_ends_the_search(study: optuna.Study) -> None:
    def broken(_: Knobs) -> Trial:
        raise ZeroDivisionError("no device")

    reported: list[Trial] = []
    with (
        pytest.raises(ZeroDivisionError),
        WorkerLoop(study, InlineExecutor(broken), Objective.THROUGHPUT, callback=reported.append) as loop,
    ):
        loop.measure(with_ranges(A), nullcontext)
    assert [(trial.status, trial.reason, trial.was_measured, trial.failed) for trial in reported] == [
        (Status.BUG, "ZeroDivisionError: no device", False, True)
    ]
