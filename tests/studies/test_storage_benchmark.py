"""The storage benchmark: both ways of writing store the same trials, and both tables are printed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from optuna import Study

from autoauto.space.objectives import Objective
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.table import trial_table
from studies import storage_benchmark

SAMPLED = ["n_ipu", "memory_proportion", "batch_size"]
TIMES = ["datetime_start", "datetime_complete", "duration_s"]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/benchmark.db"


def test_both_ways_of_writing_write_the_same(storage: str) -> None:
    studies = [open_study(storage, name, Objective.THROUGHPUT, {}) for name in ("ours", "theirs")]
    for write, study in zip((Study.add_trial, storage_benchmark.write_one_by_one), studies, strict=True):
        write(study, storage_benchmark.some_trial(7))
    ours, theirs = (trial_table(study).drop(columns=[*SAMPLED, *TIMES, "constraint"]) for study in studies)
    assert ours.equals(theirs)


def test_multiplied_trials_are_trials(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    for number in range(3):
        study.add_trial(storage_benchmark.some_trial(number))
    storage_benchmark.multiply(study, 10)
    trials = load_study(storage, "bow").get_trials()
    assert [trial.number for trial in trials] == list(range(10))
    assert [trial.params for trial in trials] == [trials[number % 3].params for number in range(10)]
    assert len(trial_table(study).dropna(subset=["value", "constraint"])) == 10


@pytest.mark.slow
def test_writing_and_reading_are_compared_at_every_size(run_script: Callable[..., list[str]]) -> None:
    first, *_, smaller, larger = run_script("storage_benchmark", "--trials", "50,60")
    assert first.startswith("writing 50 trials: ")
    assert [line.split()[0] for line in (smaller, larger)] == ["50", "60"]
