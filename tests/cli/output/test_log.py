"""The progress of a search on stderr: events as JSON, or a bar on a terminal."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoauto.cli.commands.studies import search
from autoauto.cli.output.log import open_log, trial_event, waits_for, write_event
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.trial import SearchActivity, Status, Trial
from autoauto.study.execution.leases import Leases
from autoauto.study.run import SearchProgress
from autoauto.study.store.study import join_study
from autoauto.study.store.trials import ranges_of
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.cli.conftest import RunCli

SMALL = (
    "search",
    "resnet50",
    "--batch-size",
    "1:8",
    "--memory-proportion",
    "0.6,1.0",
    "--n-ipu",
    "1,2",
    "--replicas",
    "1",
    "--strategy",
    "pipeline",
)


def events(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines()]


def named(log: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in log if event["event"] == name]


def test_every_line_is_an_event_with_its_time_in_utc(run_cli: RunCli) -> None:
    before = datetime.now(UTC)
    code, out, err = run_cli(*SMALL, "--log", "json", "--json")
    log = events(err)
    assert code == 0
    assert {event["event"] for event in log} == {"phase", "progress", "trial", "best", "end"}
    times = [datetime.fromisoformat(event["time"]) for event in log]
    assert all(event["time"].endswith("Z") for event in log)
    assert times == sorted(times)
    assert before.timestamp() - 0.001 <= times[0].timestamp() <= datetime.now(UTC).timestamp()
    assert json.loads(out)["study_name"] == log[-1]["study_name"]


def test_trial_events_are_the_trials_of_the_study(run_cli: RunCli) -> None:
    _, out, err = run_cli(*SMALL, "--log", "json", "--json")
    result, log = json.loads(out), events(err)
    study = optuna.load_study(study_name=result["study_name"], storage=result["storage"])
    trials = named(log, "trial")
    assert [(event["number"], event["state"], event["value"]) for event in trials] == [
        (trial.number, trial.state.name, trial.value) for trial in study.get_trials()
    ]
    assert trials[0]["knobs"]["n_ipu"] in (1, 2)
    assert trials[0]["started"] <= trials[0]["ended"] <= trials[0]["time"]
    *_, best = named(log, "best")
    end = log[-1]
    assert (end["event"], end["exit_code"]) == ("end", 0)
    assert end["best"]["samples_per_s"] == best["samples_per_s"] == result["best"]["samples_per_s"]
    assert (end["n_tried"], end["n_measured"]) == (result["n_tried"], result["n_measured"]) == (len(trials),) * 2


def test_progress_events_have_the_phase_and_what_is_left(run_cli: RunCli) -> None:
    log = events(run_cli(*SMALL, "--log", "json").err)
    assert [event["phase"] for event in named(log, "phase")] == ["predicting", "measuring", "verifying"]
    again = [event for event in named(log, "progress") if event["phase"] == "verifying"]
    assert [event["done"] for event in again] == list(range(again[0]["total"]))
    assert {event["unit"] for event in again} == {"measurements"}
    states = [event for event in named(log, "progress") if event["phase"] != "verifying"]
    assert {event["unit"] for event in states} == {"cells"}
    assert (states[0]["done"], states[0]["total"], states[0]["left_s"]) == (0, 4, None)
    assert (states[-1]["done"], states[-1]["left_s"]) == (4, 0.0)
    assert states[-1]["n_measured"] == len(named(log, "trial"))
    tries = events(run_cli(*SMALL, "--log", "json", "--method", "grid-bisect", "--study-name", "b").err)
    assert {event["unit"] for event in named(tries, "progress")} == {"tries", "measurements"}


def test_a_repeated_search_has_no_trial_events(run_cli: RunCli) -> None:
    first, repeated = (events(run_cli(*SMALL, "--log", "json").err) for _ in range(2))
    assert named(first, "trial")
    assert not named(repeated, "trial")
    assert repeated[-1]["best"] == first[-1]["best"]


def test_a_failed_search_ends_with_an_event(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "64", "--memory-proportion", "0.6")
    code, _, err = run_cli(*large, "--strategy", "pipeline", "--log", "json")
    *_, end = events(err)
    assert (code, end["event"], end["exit_code"]) == (3, "end", 3)
    assert end["error"].startswith("no configuration fits")
    code, _, err = run_cli("search", "no-such-model", "--log", "json")
    [end] = events(err)
    assert (code, end["exit_code"]) == (2, 2)
    assert "no-such-model" in end["error"]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "search_with_log", interrupted)
    code, _, err = run_cli(*SMALL, "--log", "json")
    [end] = events(err)
    assert (code, end["exit_code"]) == (130, 130)


def test_without_a_terminal_or_log_stderr_is_empty(run_cli: RunCli) -> None:
    assert run_cli(*SMALL).err == ""


def test_an_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_event("end", error="two\nlines")
    assert capsys.readouterr().err.count("\n") == 1


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert run_cli(*SMALL).code == 0
    shown = " ".join(terminal.getvalue().split())
    for words in ("predicting", "measuring", "4/4", "0:00:00 left", "best"):
        assert words in shown


@pytest.mark.slow
def test_a_worker_writes_its_trials(run_cli: RunCli, tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/trials.db"
    run_cli(*SMALL, "--storage", storage, "--study-name", "one", "--method", "grid-bisect")
    study, knobs = join_study(storage, "one"), Knobs(n_ipu=1, memory_proportion=0.6, batch_size=3)
    Leases(study).request({knobs: ranges_of(SearchSpace(batch_size=(1, 3)), knobs)})
    words = ("worker", "--storage", storage, "--study-name", "one", "--idle", "0.5", "--log", "json")
    code, _, err = run_cli(*words)
    trial, end = events(err)
    assert (trial["event"], trial["state"], trial["knobs"]["batch_size"]) == ("trial", "COMPLETE", 3)
    assert trial["number"] == len(study.get_trials()) - 1
    assert (code, end["event"], end["study_name"], end["n_measured"]) == (0, "end", "one", 1)


def test_the_first_that_real_devices_measure_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    knobs = Knobs(1, 8, session=OnnxRuntimeSession(cores_per_device=2))
    modelled = Trial(knobs, Status.OK, samples_per_s=80.0)
    first, second = (modelled.with_values(samples_per_s=n, low_samples_per_s=n - 4, core_share=0.9) for n in (80, 90))
    with open_log(None, "guided") as log:
        for trial in (modelled, first, second):
            log.trial(trial)
    assert capsys.readouterr() == (
        "",
        "autoauto: measured so far: 80.0 samples/s (76.0 or more) on 2 cores (one session of 2 cores; 40.0 a core), "
        "batch size 8; the search goes on\n",
    )
    assert (
        trial_event(second.with_values(started=datetime.now(UTC), ended=datetime.now(UTC))).items()
        >= {
            "low_samples_per_s": 86,
            "high_samples_per_s": None,
            "core_share": 0.9,
            "ended_early": False,
        }.items()
    )


def test_the_bar_says_what_real_devices_measure() -> None:
    knobs = Knobs(
        n_ipu=1,
        memory_proportion=1.0,
        batch_size=8,
        cores_per_device=2,
        runtime="openvino",
        precision=Precision.BF16,
    )
    now = SearchProgress(SearchActivity.PREDICTING, 0, 8, None, 0, None, None, estimated=knobs)
    assert waits_for(now) == "the whole model by openvino bf16 on 2 cores"
    assert waits_for(replace(now, knobs=knobs)) == "openvino bf16, 1 x 2 cores at batch 8"
    assert (
        waits_for(replace(now, knobs=Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8))) == ""
    )  # a cost model takes no time to read of
