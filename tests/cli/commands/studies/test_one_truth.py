"""What a search prints is what every view of its study says, whatever else the database and the study hold."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pandas as pd
import pytest

from autoauto.cli.commands.studies.commands_to_copy import commands_of
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.report.notes import study_note
from autoauto.report.wording import configuration
from autoauto.study.analysis.best import summarise_study
from autoauto.study.analysis.comparisons import study_comparisons
from autoauto.study.store.study import load_study
from tests.cli.conftest import RunCli

SPACES = [
    ("--n-ipu", "1", "--replicas", "1,2,4", "--batch-size", "1:8"),
    ("--n-ipu", "1", "--replicas", "1", "--batch-size", "1:8"),
    ("--n-ipu", "2", "--batch-size", "1:4"),
    ("--n-ipu", "1", "--replicas", "1,2,4", "--batch-size", "1:8", "--constraint", "n_devices <= 2"),
    ("--n-ipu", "1", "--replicas", "1,2", "--batch-size", "1:8", "--repeats", "0"),
    ("--n-ipu", "1", "--replicas", "1,2,4", "--batch-size", "1:8"),
]
KNOBS = ("n_ipu", "replicas", "memory_proportion", "batch_size")


def check_views(run_cli: RunCli, answer: dict[str, Any], name: str) -> None:
    best = json.loads(run_cli("report", name, "--json").out)["best"]
    assert best == answer
    explained = json.loads(run_cli("explain", name, "--json").out)["best"]
    assert all(explained[knob] == answer[knob] for knob in (*KNOBS, "trial", "samples_per_s"))
    trials = pd.read_csv(StringIO(run_cli("trials", name, "--csv").out))
    fitting = trials[trials.in_space & (trials.state == "COMPLETE")]
    assert fitting.value.max() == pytest.approx(answer["value"])
    assert f"{answer['samples_per_s']:,.1f}" in run_cli("trials", name, "--top", "1").out
    summary = summarise_study(load_study(DEFAULT_STORAGE, name), DEFAULT_STORAGE)
    assert summary.winner is not None
    assert (summary.winner.number, list(summary.winner.values)) == (answer["trial"], answer["values"])
    note = study_note(summary, study_comparisons(summary), commands_of(summary))
    assert note.startswith(f"## Best: {configuration(summary.winner.knobs)}\n\n**{answer['samples_per_s']:,.1f} ")
    [listed] = [row for row in json.loads(run_cli("studies", "--json").out)["studies"] if row["name"] == name]
    assert listed["values"] == answer["values"]
    assert listed["state"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize("of_one_name", [False, True], ids=["a study each", "one study"])
def test_what_a_search_prints_is_what_every_view_says(run_cli: RunCli, of_one_name: bool) -> None:
    named = ("--study-name", "one") if of_one_name else ()
    answers = {}
    for space in SPACES:
        result = json.loads(run_cli("search", "resnet50", "--memory-proportion", "0.6", *space, *named, "--json").out)
        check_views(run_cli, result["best"], result["study_name"])
        answers[space] = result["study_name"], result["best"]
    if not of_one_name:  # the searches of other spaces changed nothing
        assert len({name for name, _ in answers.values()}) == len(answers) == len(SPACES) - 1
        for name, best in answers.values():
            check_views(run_cli, best, name)


def test_trials_outside_the_space_are_counted_in_every_view(run_cli: RunCli) -> None:
    small = ("search", "resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--study-name", "s")
    assert "outside the space" not in run_cli(*small, "--replicas", "1", "--batch-size", "8").out
    line = "1 further trial of the study lies outside the space of its last search"
    assert line in run_cli(*small, "--replicas", "1", "--batch-size", "4").out
    for view in ("report", "explain", "trials"):
        assert line in run_cli(view, "s").out
    assert json.loads(run_cli("report", "s", "--json").out)["n_outside"] == 1
