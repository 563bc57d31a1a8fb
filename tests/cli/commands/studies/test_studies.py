"""`autoauto studies`, and how commands choose a study: by its name, the beginning of its name, or the latest."""

from __future__ import annotations

import json

import pytest

from autoauto.space.objectives import Objective
from autoauto.study.store.study import note_start, open_study
from tests.cli.conftest import Prepare, RunCli

STORAGE = "sqlite:///studies/autoauto.db"


@pytest.fixture
def searched(run_cli: RunCli, prepare: Prepare) -> RunCli:
    """Two studies of searches that ended, and one of a search that begins."""
    small = ("search", "resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--replicas", "1")
    prepare(*small, "--batch-size", "1", "--study-name", "first")
    assert run_cli(*small, "--batch-size", "2", "--study-name", "fine").code == 0
    study = open_study(STORAGE, "started", Objective.THROUGHPUT, {"model": "mine", "cluster": "c", "target": "ipu-1"})
    note_start(study)
    study.set_user_attr("started", "2999-01-01T00:00:00+00:00")
    return run_cli


def test_studies_are_listed_with_their_states_the_newest_first(searched: RunCli) -> None:
    started, *others = json.loads(searched("studies", "--json").out)["studies"]
    assert started == {
        "name": "started",
        "model": "mine",
        "cluster": "c",
        "target": "ipu-1",
        "objective": "throughput",
        "values": [],
        "n_trials": 0,
        "last_trial": None,
        "state": "unfinished",
        "unit": "samples/s",
    }
    assert [(row["name"], row["n_trials"], row["state"]) for row in others] == [
        ("fine", 1, "finished"),
        ("first", 1, "finished"),
    ]
    table = searched("studies").out
    assert "unfinished" in table
    assert "s ago" in table


def test_a_command_says_which_study_it_chose(searched: RunCli) -> None:
    code, _, err = searched("trials")
    assert code == 0
    assert err == f"autoauto: study started (the latest of 3 in {STORAGE})\n"
    assert searched("report", "fir").err == (
        f"autoauto: study first (the only one of 3 in {STORAGE} that begins with 'fir')\n"
    )
    assert searched("report", "first").err == ""


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("fi", "a study is a full name or the beginning of one name, 'fi' begins fine, first"),
        ("firts", f"there is no study 'firts' in {STORAGE}; did you mean 'first'?"),
        ("zzz", f"there is no study 'zzz' in {STORAGE}; `autoauto studies` lists what there is"),
    ],
)
def test_a_name_that_is_not_clear_is_refused(searched: RunCli, part: str, message: str) -> None:
    for command in (("report", part), ("worker", "--study-name", part)):
        code, out, err = searched(*command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
