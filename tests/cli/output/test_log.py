"""What a search tells machines while it runs, from the door."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoauto.cli.commands import search
from autoauto.cli.output.log import write_event
from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.study.execution.leases import Leases
from autoauto.study.store.study import join_study
from autoauto.study.store.trials import ranges_of

Door = Callable[..., Any]
SMALL = ("search", "resnet50", "--batch-size", "1:8", "--memory-proportion", "0.6,1.0", "--n-ipu", "1,2")


def events(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines()]


def named(told: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in told if event["event"] == name]


def test_every_line_is_an_event_with_its_time_in_utc(door: Door) -> None:
    before = datetime.now(UTC)
    code, out, err = door(*SMALL, "--log", "json", "--json")
    told = events(err)
    assert code == 0
    assert {event["event"] for event in told} == {"phase", "progress", "trial", "best", "end"}
    times = [datetime.fromisoformat(event["time"]) for event in told]
    assert all(event["time"].endswith("Z") for event in told)
    assert times == sorted(times)
    assert before.timestamp() - 0.001 <= times[0].timestamp() <= datetime.now(UTC).timestamp()
    assert json.loads(out)["study_name"] == told[-1]["study_name"]


def test_trials_are_those_of_the_study(door: Door) -> None:
    _, out, err = door(*SMALL, "--log", "json", "--json")
    result, told = json.loads(out), events(err)
    study = optuna.load_study(study_name=result["study_name"], storage=result["storage"])
    trials = named(told, "trial")
    assert [(one["number"], one["state"], one["value"]) for one in trials] == [
        (trial.number, trial.state.name, trial.value) for trial in study.get_trials()
    ]
    assert trials[0]["knobs"]["n_ipu"] in (1, 2)
    assert trials[0]["started"] <= trials[0]["ended"] <= trials[0]["time"]
    *_, best = named(told, "best")
    end = told[-1]
    assert (end["event"], end["exit_code"]) == ("end", 0)
    assert end["best"]["samples_per_s"] == best["samples_per_s"] == result["best"]["samples_per_s"]
    assert (end["n_tried"], end["n_measured"]) == (result["n_tried"], result["n_measured"]) == (len(trials),) * 2


def test_phases_and_what_is_left_are_told(door: Door) -> None:
    told = events(door(*SMALL, "--log", "json").err)
    assert [event["phase"] for event in named(told, "phase")] == ["predicting", "measuring", "verifying"]
    again = [event for event in named(told, "progress") if event["phase"] == "verifying"]
    assert [event["done"] for event in again] == list(range(again[0]["total"]))
    assert {event["unit"] for event in again} == {"measurements"}
    stands = [event for event in named(told, "progress") if event["phase"] != "verifying"]
    assert {event["unit"] for event in stands} == {"cells"}
    assert (stands[0]["done"], stands[0]["total"], stands[0]["left_s"]) == (0, 4, None)
    assert (stands[-1]["done"], stands[-1]["left_s"]) == (4, 0.0)
    assert stands[-1]["n_measured"] == len(named(told, "trial"))
    tries = events(door(*SMALL, "--log", "json", "--method", "grid-bisect", "--study-name", "b").err)
    assert {event["unit"] for event in named(tries, "progress")} == {"tries", "measurements"}


def test_a_search_that_is_known_tells_no_trial_again(door: Door) -> None:
    first, second = (events(door(*SMALL, "--log", "json").err) for _ in range(2))
    assert named(first, "trial")
    assert not named(second, "trial")
    assert second[-1]["best"] == first[-1]["best"]


def test_an_end_without_an_answer_is_an_event_too(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "64", "--memory-proportion", "0.6")
    code, _, err = door(*large, "--strategy", "pipeline", "--log", "json")
    *_, end = events(err)
    assert (code, end["event"], end["exit_code"]) == (3, "end", 3)
    assert end["error"].startswith("no configuration fits")
    code, _, err = door("search", "no-such-model", "--log", "json")
    [end] = events(err)
    assert (code, end["exit_code"]) == (2, 2)
    assert "no-such-model" in end["error"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "search", interrupted)
    code, _, err = door(*SMALL, "--log", "json")
    [end] = events(err)
    assert (code, end["exit_code"]) == (130, 130)


def test_a_pipe_without_a_log_sees_nothing(door: Door) -> None:
    assert door(*SMALL).err == ""


def test_an_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_event("end", error="two\nlines")
    assert capsys.readouterr().err.count("\n") == 1


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_of_the_search(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert door(*SMALL).code == 0
    shown = " ".join(terminal.getvalue().split())
    for words in ("predicting", "measuring", "4 cells closed", "0 left", "measured", "best"):
        assert words in shown


@pytest.mark.slow
def test_a_worker_tells_its_trials(door: Door, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/trials.db"
    door(*SMALL, "--storage", storage, "--study-name", "one", "--method", "grid-bisect")
    study, knobs = join_study(storage, "one"), Knobs(1, 0.6, 3)
    Leases(study).want({knobs: ranges_of(SearchSpace(batch_size=(1, 3)), knobs)})
    words = ("worker", "--storage", storage, "--study-name", "one", "--idle", "0.5", "--log", "json")
    code, _, err = door(*words)
    trial, end = events(err)
    assert (trial["event"], trial["state"], trial["knobs"]["batch_size"]) == ("trial", "COMPLETE", 3)
    assert trial["number"] == len(study.get_trials()) - 1
    assert (code, end["event"], end["study_name"], end["n_measured"]) == (0, "end", "one", 1)
