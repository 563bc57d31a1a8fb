"""The search: its answer, what it measures, how it goes on, and how it is stopped."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import pytest
from optuna.trial import TrialState

import autoauto
from autoauto.records.trial import Cell, Knobs, Objective, Outcome, SearchSpace
from autoauto.search.run import SearchProgress, SearchResult, run_search
from autoauto.search.study import load_study, open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

Brief = tuple[int, float, int | None, str]
SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))
FINGERPRINT = {"model": "abc"}


def search(storage: str, fake: Fake, space: SearchSpace = SPACE, name: str = "bow") -> SearchResult:
    return run_search(space, fake, open_study(storage, name, Objective.THROUGHPUT, FINGERPRINT), Objective.THROUGHPUT)


def brief(cells: tuple[Cell, ...]) -> tuple[Brief, ...]:
    """n_ipu, memory_proportion, the largest batch size that fits, and why none does."""
    return tuple((cell.knobs.n_ipu, cell.knobs.memory_proportion, cell.batch_size, cell.reason) for cell in cells)


def states(storage: str) -> list[TrialState]:
    return [trial.state for trial in load_study(storage, "bow").get_trials()]


def test_every_cell_finds_its_boundary(storage: str, fake: Fake) -> None:
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
    assert [(k.n_ipu, k.memory_proportion) for k in fake.calls] == [cell for cell in grid for _ in range(7)]


def test_the_best_is_the_best_measured_not_the_largest_that_fits(storage: str, fake: Fake) -> None:
    result = search(storage, fake, SearchSpace((1,), (1.0,), (6, 30, 31)))
    assert brief(result.cells) == ((1, 1.0, 31, ""),)
    assert result.best is not None
    assert result.best.knobs == Knobs(1, 1.0, 30)  # 31 needs a sixth step of 6 samples


def test_the_seeds_objective_has_its_own_best(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.PER_IPU, FINGERPRINT)
    result = run_search(SPACE, fake, study, Objective.PER_IPU)
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


def test_a_finished_search_measures_nothing_again(storage: str, fake: Fake) -> None:
    first = search(storage, fake)
    calls = list(fake.calls)
    assert search(storage, fake) == first
    assert fake.calls == calls
    assert len(states(storage)) == len(calls)


def test_a_changed_space_goes_on_with_what_is_known(storage: str, fake: Fake) -> None:
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
    assert search(storage, fake, narrow) == first  # the best of another space is no answer here


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
    assert (end.done, end.knobs, end.best) == (32, None, result.best)


@dataclass
class Stops:
    """Evaluates like `fake` until call number `after`, then does something else."""

    fake: Fake
    after: int
    signal: signal.Signals | None = None

    def __call__(self, knobs: Knobs) -> Outcome:
        if len(self.fake.calls) < self.after:
            return self.fake(knobs)
        if self.signal is None:
            raise ZeroDivisionError("in the evaluation")
        os.kill(os.getpid(), self.signal)
        raise AssertionError("the signal was not heard")


def test_a_crash_is_a_failed_trial_and_propagates_with_its_traceback(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    with pytest.raises(ZeroDivisionError) as caught:
        run_search(SPACE, Stops(fake, 3), study, Objective.THROUGHPUT)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'raise ZeroDivisionError("in the evaluation")'
    *finished, failed = study.get_trials()
    assert len(finished) == 3
    assert failed.state is TrialState.FAIL
    assert failed.user_attrs == {"reason": "ZeroDivisionError: in the evaluation", "exc_type": "ZeroDivisionError"}
    assert search(storage, fake).counts.n_tried == 28
    assert len(states(storage)) == 29


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_fails_the_running_trial_only(storage: str, fake: Fake, number: signal.Signals) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, FINGERPRINT)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt):
        run_search(SPACE, Stops(fake, 3, number), study, Objective.THROUGHPUT)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    *finished, failed = study.get_trials()
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in finished)
    assert (failed.state, failed.user_attrs) == (TrialState.FAIL, {"reason": "interrupted"})
    result = search(storage, fake)
    assert len(fake.calls) == len(set(fake.calls)) == result.counts.n_tried == 28


def start_child(storage: str, sleep_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("conftest.py")), storage, str(sleep_s)]
    environment = {**os.environ, "PYTHONPATH": str(Path(autoauto.__file__).parent.parent)}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    return child


def end(child: subprocess.Popen[str], number: signal.Signals) -> int:
    child.send_signal(number)
    child.communicate()
    return child.returncode


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_process_loses_no_finished_trial(
    storage: str, tmp_path: Path, fake: Fake, child_space: SearchSpace, number: signal.Signals
) -> None:
    whole = search(f"sqlite:///{tmp_path}/whole.db", fake, child_space)
    known: list[optuna.trial.FrozenTrial] = []
    seed = random.Random(number)
    for _ in range(3):
        child = start_child(storage, 0.02)
        time.sleep(seed.uniform(0.0, 0.5))
        assert end(child, number) != 0
        with sqlite3.connect(tmp_path / "studies/search.db") as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        trials = load_study(storage, "bow").get_trials()
        finished = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        assert finished[: len(known)] == known
        assert number is signal.SIGKILL or TrialState.RUNNING not in states(storage)
        known = finished
    fake.calls.clear()
    result = search(storage, fake, child_space)
    assert len(fake.calls) == whole.counts.n_tried - len(known)
    assert (result.cells, result.counts.n_tried) == (whole.cells, whole.counts.n_tried)
    assert result.best is not None
    assert whole.best is not None
    assert (result.best.knobs, result.best.value, result.best.measured) == (
        whole.best.knobs,
        whole.best.value,
        whole.best.measured,
    )
    assert {
        trial.user_attrs["reason"] for trial in load_study(storage, "bow").get_trials(states=(TrialState.FAIL,))
    } <= {"interrupted"}
    assert TrialState.RUNNING not in states(storage)
