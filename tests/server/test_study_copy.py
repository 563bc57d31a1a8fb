"""A study that moves to another database as texts: everything of it, once, in order, up to a trial that runs."""

from __future__ import annotations

from datetime import datetime
from math import inf
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoauto.server.store.study_copy import OutOfOrder, add_trials, head_of, read_trial, trial_texts, write_head
from autoauto.study.store.database import open_storage
from autoauto.study.store.trial_storage import TrialStorage


def a_trial(n_ipu: int) -> FrozenTrial:
    trial = create_trial(
        values=[float(n_ipu), inf],
        params={"n_ipu": n_ipu, "mode": "b"},
        distributions={"n_ipu": IntDistribution(1, 9), "mode": CategoricalDistribution("ab")},
        user_attrs={"status": "ok"},
        system_attrs={"constraints": [0.5]},
    )
    trial.datetime_start = trial.datetime_complete = datetime(2026, 1, 2, 3, 4, 5)
    return trial


@pytest.fixture
def ours(tmp_path: Path) -> TrialStorage:
    """The study 1 has three trials that have ended, one that runs, and one after it."""
    storage = open_storage(f"sqlite:///{tmp_path}/ours.db")
    study_id = storage.create_new_study([StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE], "search")
    storage.set_study_user_attr(study_id, "objective", "throughput,latency")
    storage.set_study_system_attr(study_id, "metric", ["samples/s", "s"])
    for n_ipu in (1, 2, 3):
        storage.add_trial(study_id, a_trial(n_ipu))
    storage.create_new_trial(study_id)
    storage.add_trial(study_id, a_trial(5))
    return storage


@pytest.fixture
def theirs(tmp_path: Path) -> TrialStorage:
    return open_storage(f"sqlite:///{tmp_path}/theirs.db")


def test_a_copy_has_what_the_study_has(ours: TrialStorage, theirs: TrialStorage) -> None:
    head, texts = head_of(ours, 1), trial_texts(ours, 1, 0, 50)
    copy = write_head(theirs, "search", head)
    add_trials(theirs, copy, 0, list(map(read_trial, texts)), lambda _: None)
    assert head_of(theirs, copy) == head
    before, after = ours.get_all_trials(1)[:3], theirs.get_all_trials(copy)
    assert [trial.params["n_ipu"] for trial in after] == [1, 2, 3]
    for original, copied in zip(before, after, strict=True):
        copied._trial_id = original._trial_id
        assert copied == original


def test_trials_are_read_from_a_number_on_so_many_up_to_the_first_that_runs(ours: TrialStorage) -> None:
    everything = trial_texts(ours, 1, 0, 50)
    assert len(everything) == 3
    assert [trial_texts(ours, 1, first, 2) for first in (0, 1, 2, 3, 4)] == [
        everything[:2],
        everything[1:],
        everything[2:],
        [],
        trial_texts(ours, 1, 4, 50),
    ]


def test_what_is_sent_twice_is_written_once_and_nothing_is_left_out(ours: TrialStorage, theirs: TrialStorage) -> None:
    trials = list(map(read_trial, trial_texts(ours, 1, 0, 50)))
    copy = write_head(theirs, "search", head_of(ours, 1))
    add_trials(theirs, copy, 0, trials[:2], lambda _: None)
    add_trials(theirs, write_head(theirs, "search", head_of(ours, 1)), 0, trials, lambda _: None)
    with pytest.raises(OutOfOrder, match="must have the number 3, got 4"):
        add_trials(theirs, copy, 4, trials, lambda _: None)
    assert [trial.state for trial in theirs.get_all_trials(copy)] == [TrialState.COMPLETE] * 3


def test_a_trial_is_not_written_where_the_check_fails(ours: TrialStorage, theirs: TrialStorage) -> None:
    copy = write_head(theirs, "search", head_of(ours, 1))

    def refuse(_: object) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        add_trials(theirs, copy, 0, list(map(read_trial, trial_texts(ours, 1, 0, 50))), refuse)
    assert theirs.get_all_trials(copy) == []
