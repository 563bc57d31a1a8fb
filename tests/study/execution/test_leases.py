"""Leases of configurations: claimed once, lost with their process, ended by no clock; and processes that are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import create_engine, text

from autoauto.database.leases import LEASE_S, is_gone, this_process
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status
from autoauto.study.execution.leases import Claim, Leases
from autoauto.study.execution.process import failed_trial, finished_trial
from autoauto.study.interrupts import Interrupts
from autoauto.study.store.database import database_of, open_storage
from autoauto.study.store.study import join_study, open_study
from autoauto.study.store.trials import Ranges, from_optuna, ranges_of, to_optuna

if TYPE_CHECKING:
    from tests.study.conftest import Fake


def test_this_process_runs() -> None:
    assert this_process().endswith(f":{os.getpid()}")
    assert not is_gone(this_process())


def test_a_process_that_has_ended_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    machine_id = this_process().rpartition(":")[0]
    assert is_gone(f"{machine_id}:{child.pid}")


def test_a_process_of_another_machine_counts_as_running() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_gone(f"elsewhere:{child.pid}")


def test_a_process_of_another_user_runs() -> None:
    machine_id = this_process().rpartition(":")[0]
    assert not is_gone(f"{machine_id}:1")


SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 65)))
A, B, C = (
    Knobs(n_ipu=1, memory_proportion=0.3, batch_size=1),
    Knobs(n_ipu=2, memory_proportion=1.0, batch_size=8),
    Knobs(n_ipu=2, memory_proportion=0.3, batch_size=64),
)


def with_ranges(*configurations: Knobs) -> dict[Knobs, Ranges]:
    return {knobs: ranges_of(SPACE, knobs) for knobs in configurations}


@pytest.fixture(params=["sqlite", "postgresql"])
def any_storage(request: pytest.FixtureRequest) -> str:
    """Both in every run: their clocks and locks differ."""
    return str(request.getfixturevalue("storage" if request.param == "sqlite" else "postgres"))


@pytest.fixture
def study(any_storage: str, study_name: str) -> optuna.Study:
    return open_study(any_storage, study_name, Objective.THROUGHPUT, {})


@pytest.fixture
def leases(study: optuna.Study) -> Leases:
    return Leases(study)


@pytest.fixture
def measured(fake: Fake) -> Callable[[Claim], FrozenTrial]:
    return lambda claim: to_optuna(
        finished_trial(claim.knobs, fake(claim.knobs), 0.5), claim.ranges, Objective.THROUGHPUT
    )


def failed(claim: Claim) -> FrozenTrial:
    return to_optuna(failed_trial(claim.knobs, Status.CRASH, "died", [], 0.5), claim.ranges, Objective.THROUGHPUT)


def claimed(leases: Leases, *among: Knobs) -> Claim:
    claim = leases.claim(among or None)
    assert claim is not None
    return claim


Measured = Callable[[Claim], FrozenTrial]


def test_requested_configurations_are_claimed_once_in_order(leases: Leases, study: optuna.Study) -> None:
    leases.request(with_ranges(A, B))
    leases.request(with_ranges(C, A))
    other = Leases(study)
    claims = [claimed(leases), claimed(other), claimed(leases)]
    assert [claim.knobs for claim in claims] == [A, B, C]
    assert [claim.ranges for claim in claims] == list(with_ranges(A, B, C).values())
    assert len({claim.token for claim in claims}) == 3
    assert leases.claim() is other.claim() is None


def test_a_worker_may_restrict_what_it_claims(leases: Leases) -> None:
    leases.request(with_ranges(A, B))
    assert leases.claim([C]) is None
    assert claimed(leases, C, B).knobs == B


def test_a_finished_configuration_has_a_trial_and_is_never_claimed_again(
    leases: Leases, study: optuna.Study, measured: Measured
) -> None:
    leases.request(with_ranges(A, B))
    assert leases.finished([A, B]) == {}
    claim = claimed(leases)
    assert leases.finish(claim, measured(claim))
    [trial] = study.get_trials()
    assert leases.finished([A, B]) == {A: from_optuna(trial)}
    leases.request(with_ranges(A))
    leases.retry([A])
    assert claimed(leases).knobs == B
    assert leases.claim() is None


def test_a_process_that_lost_its_lease_changes_nothing(study: optuna.Study, measured: Measured) -> None:
    slow, quick = Leases(study), Leases(study)
    slow.request(with_ranges(A))
    late = claimed(slow)
    let_pass(study, LEASE_S)
    taken = claimed(quick)
    assert (taken.knobs, taken.n_claims) == (A, 2)
    assert not slow.renew(late)
    assert not slow.finish(late, measured(late))
    assert study.get_trials() == []
    slow.release([], [late])
    assert quick.renew(taken)
    assert quick.finish(taken, measured(taken))
    trials = study.get_trials()
    assert not slow.finish(late, measured(late))
    assert not quick.finish(taken, measured(taken))
    assert study.get_trials() == trials
    assert len(trials) == 1


def test_a_renewed_lease_does_not_run_out(study: optuna.Study) -> None:
    leases, other = Leases(study), Leases(study)
    leases.request(with_ranges(A))
    claim = claimed(leases)
    for _ in range(3):
        let_pass(study, LEASE_S / 2)
        assert leases.renew(claim)
        assert other.claim() is None
    let_pass(study, LEASE_S)
    assert claimed(other).knobs == A


def let_pass(study: optuna.Study, seconds: float) -> None:
    """Let all leases end so much earlier, as if time had passed."""
    with database_of(study).storage.engine.begin() as connection:
        earlier = text("UPDATE autoauto_leases SET expires_s = expires_s - :seconds WHERE study_id = :study")
        connection.execute(earlier, {"seconds": seconds, "study": database_of(study).study_id})


def test_a_released_claim_does_not_count(leases: Leases) -> None:
    leases.request(with_ranges(A))
    for _ in range(5):
        claim = claimed(leases)
        assert claim.n_claims == 1
        leases.release([], [claim])


def test_withdrawing_ends_requests_and_no_running_measurement(leases: Leases, measured: Measured) -> None:
    leases.request(with_ranges(A, B))
    claim = claimed(leases)
    leases.withdraw([A, B])
    assert leases.claim() is None
    assert leases.finish(claim, measured(claim))
    leases.withdraw([A])
    assert set(leases.finished([A, B])) == {A}


def test_a_failed_configuration_is_measured_again_after_retry(
    leases: Leases, study: optuna.Study, measured: Measured
) -> None:
    leases.request(with_ranges(A))
    claim = claimed(leases)
    assert leases.finish(claim, failed(claim))
    leases.request(with_ranges(A))
    assert leases.claim() is None
    leases.retry([A])
    claim = claimed(leases)
    assert claim.n_claims == 1
    assert leases.finish(claim, measured(claim))
    trials = study.get_trials()
    assert leases.finished([A]) == {A: from_optuna(trials[1])}
    assert [trial.state for trial in trials] == [TrialState.FAIL, TrialState.COMPLETE]


def test_the_lease_of_a_process_that_is_gone_ends_at_once(leases: Leases, any_storage: str, study_name: str) -> None:
    leases.request(with_ranges(A))
    child = get_context("fork").Process(target=claim_and_die, args=(any_storage, study_name), daemon=True)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert claimed(leases).n_claims == 2


def claim_and_die(storage: str, name: str) -> None:
    claimed(Leases(join_study(storage, name)))
    os._exit(0)


@pytest.mark.parametrize("jump_s", [-1e7, 1e7])
def test_clocks_that_jump_end_no_lease(leases: Leases, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    leases.request(with_ranges(A))
    claim = claimed(leases)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump_s)
    assert leases.claim() is None
    assert leases.renew(claim)


def test_a_lease_from_before_a_restart_of_the_machine_has_ended(leases: Leases, study: optuna.Study) -> None:
    leases.request(with_ranges(A))
    claimed(leases)
    let_pass(study, -100.0)
    assert claimed(leases).knobs == A


def test_release_does_not_wait_for_a_server_that_is_away(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    leases.request(with_ranges(A))
    claim = claimed(leases)
    monkeypatch.setattr("autoauto.database.retries.sleep", lambda _: pytest.fail("it waits"))
    engine, leases._engine = leases._engine, create_engine("postgresql+psycopg://postgres@127.0.0.1:1/test")
    leases.release([A], [claim])
    leases._engine = engine
    assert leases.renew(claim)  # it could not be released


def test_ctrl_c_ends_the_wait_for_a_server_that_is_away(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    leases._engine = create_engine("postgresql+psycopg://postgres@127.0.0.1:1/test")
    monkeypatch.setattr("autoauto.database.retries.sleep", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), Interrupts():
        leases.claim()


def test_a_deleted_study_leaves_nothing_finished(any_storage: str, study_name: str, measured: Measured) -> None:
    for _ in range(2):
        leases = Leases(open_study(any_storage, study_name, Objective.THROUGHPUT, {}))
        leases.request(with_ranges(A))
        claim = claimed(leases)
        assert leases.finish(claim, measured(claim))
        optuna.delete_study(study_name=study_name, storage=open_storage(any_storage))
    assert Leases(open_study(any_storage, study_name, Objective.THROUGHPUT, {})).finished([A]) == {}


def test_a_process_claims_in_its_own_study_only(leases: Leases, any_storage: str, other_study_name: str) -> None:
    other = open_study(any_storage, other_study_name, Objective.THROUGHPUT, {})
    leases.request(with_ranges(A))
    assert Leases(other).claim() is None


@pytest.mark.slow
def test_sixteen_workers_measure_every_configuration_once(
    leases: Leases, study: optuna.Study, any_storage: str, study_name: str
) -> None:
    """Four processes of four threads each, without a lock error, a doubled configuration or a doubled number."""
    configurations = [knobs for cell in SPACE.cells for knobs in cell][:64]
    leases.request(with_ranges(*configurations))
    processes = [
        get_context("fork").Process(target=work_in_threads, args=(any_storage, study_name), daemon=True)
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    trials = study.get_trials()
    assert [trial.number for trial in trials] == list(range(64))
    assert {tuple(trial.params.items()) for trial in trials} == {tuple(params_of(knobs)) for knobs in configurations}


def params_of(knobs: Knobs) -> list[tuple[str, object]]:
    return [(name, getattr(knobs, name)) for name in ranges_of(SPACE, knobs)]


def work_in_threads(storage: str, name: str) -> None:
    leases = Leases(join_study(storage, name))

    def work() -> None:
        while (claim := leases.claim()) is not None:
            assert leases.finish(claim, failed(claim))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
