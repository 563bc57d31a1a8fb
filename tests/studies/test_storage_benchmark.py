"""The benchmark's own machinery: what it reads and writes is the same by both ways."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from autoauto.records.knobs import Objective
from autoauto.study.store.study import load_study, open_study
from autoauto.study.store.table import trial_table

SAMPLED = ["n_ipu", "memory_proportion", "batch_size"]
TIMES = ["datetime_start", "datetime_complete", "duration_s"]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/benchmark.db"


def test_both_ways_of_writing_write_the_same(study: ModuleType, storage: str) -> None:
    both = [open_study(storage, name, Objective.THROUGHPUT, {}) for name in ("ours", "theirs")]
    for write, kept in zip((study.add_trial, study.write_one_by_one), both, strict=True):
        write(kept, study.some_trial(7))
    ours, theirs = (trial_table(kept).drop(columns=[*SAMPLED, *TIMES, "constraint"]) for kept in both)
    assert ours.equals(theirs)


def test_multiplied_trials_are_trials(study: ModuleType, storage: str) -> None:
    kept = open_study(storage, "bow", Objective.THROUGHPUT, {})
    for number in range(3):
        study.add_trial(kept, study.some_trial(number))
    study.multiply(kept, 10)
    trials = load_study(storage, "bow").get_trials()
    assert [trial.number for trial in trials] == list(range(10))
    assert [trial.params for trial in trials] == [trials[number % 3].params for number in range(10)]
    assert len(trial_table(kept).dropna(subset=["value", "constraint"])) == 10


def test_it_prints_both_tables(study: ModuleType, storage: str, capsys: pytest.CaptureFixture[str]) -> None:
    study.main([50], storage)
    out = capsys.readouterr().out
    assert "writing 50 trials" in out
    assert out.splitlines()[-1].split()[0] == "50"
