"""The winner measured again, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.targets import open_flow
from autoauto.cli.options.verification import REPEATS, default_of, n_again_of, run_undivided
from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.study.analysis.verification import verifications
from autoauto.study.execution.executors import Own
from autoauto.study.store.study import load_study
from autoauto.targets.host.run import run as steady

Door = Callable[..., Any]
STORAGE = "sqlite:///studies/autoauto.db"
SMALL = ("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:12", "--memory-proportion", "0.6,1.0")


def test_a_cost_model_measures_the_default_alone(door: Door) -> None:
    assert door(*SMALL, "--study-name", "small").code == 0
    [told] = verifications(load_study(STORAGE, "small"))
    assert told.n_repeats == 1
    names = {one.name: one.knobs for one in told.repeated}
    assert names["default configuration"] == Knobs(2, 0.6, 8)
    assert all(one.speed is not None and one.speed.error is None for one in told.repeated)
    assert told.seed is not None
    for command in ("explain", "report"):
        out = " ".join(door(command, "small").out.split())
        assert "default configuration" in out
        assert "n_ipu 2, memory_proportion 0.6, batch_size 8" in out
        assert "both estimated" in out
    compared = {one["name"]: one for one in json.loads(door("report", "small", "--json").out)["compared"]}
    assert compared["default configuration"]["gain_percent"] > 0
    assert compared["grid-bisect"]["estimated"]


def test_several_turns_have_intervals(door: Door) -> None:
    told = json.loads(door(*SMALL, "--study-name", "small", "--repeats", "2", "--json").out)
    assert told["n_repeats"] == 2
    assert [row["speed"]["error"] for row in told["repeated"]] == [0.0, 0.0, 0.0]
    assert "means of 2 turns" in door("explain", "small").out


def test_no_turn_at_all(door: Door) -> None:
    assert door(*SMALL, "--study-name", "small", "--repeats", "0").code == 0
    assert verifications(load_study(STORAGE, "small")) == []
    assert "not measured" in door("explain", "small").out
    code, out, err = door(*SMALL, "--repeats", "-1")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_changed_space_is_told(door: Door) -> None:
    door(*SMALL, "--study-name", "small")
    err = door("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:6", "--study-name", "small").err
    assert "goes on in another space: memory_proportion was 0.6,1.0, is 0.3,0.6,1.0; batch_size was 1:12, is 1:6" in err


@pytest.mark.slow
def test_headroom_is_kept_free_and_told(door: Door) -> None:
    word = ("--study-name", "roomy", "--headroom", "0.5")
    best = json.loads(door("search", "resnet50", "--n-ipu", "1", *word, "--json").out)["best"]
    limit = 0.5 * open_flow(build_parser().parse_args(["search"])).cluster.devices[0].memory_bytes
    assert all(stage["total_bytes"] <= limit for stage in best["stages"])
    command = json.loads(door("explain", "roomy", "--json").out)["commands"][0]["command"]
    assert "--headroom 0.5" in command
    again = json.loads(door(*command.split()[1:], "--json").out)
    assert again["samples_per_s"] == best["samples_per_s"]
    refused = door("search", "resnet50", "--n-ipu", "1", "--study-name", "roomy")
    assert refused.code == 2
    assert "was made with headroom '0.5', this search has '0.0'" in refused.err


def test_a_dry_run_tells_the_time_where_it_is_known(door: Door) -> None:
    assert "time to measure: not known" in door(*SMALL, "--dry-run").out
    door(*SMALL, "--study-name", "small")
    out = door(*SMALL, "--dry-run").out
    assert "time to measure: about" in out
    assert "1 to measure the best again" in out
    told = json.loads(door(*SMALL, "--dry-run", "--json").out)
    assert told["n_again"] == 1
    assert told["expected_s"] > 0


@pytest.mark.slow
def test_on_the_host_the_default_is_one_session_with_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "LEAST_S", 0.1)  # what it does in a moment is enough
    monkeypatch.setattr(steady, "MOST_S", 0.2)
    args = build_parser().parse_args(["search", "resnet50", "--target", "host"])
    flow = open_flow(args)
    default = default_of(flow, SearchSpace((1,), (1.0,), (1, 2)), Objective.THROUGHPUT, Own(flow.evaluate))
    assert default.knobs == Knobs(1, 1.0, 2)
    assert default.what == ("one session, all cores" if len(flow.cluster) > 1 else "")
    per_ipu = default_of(flow, SearchSpace((1,), (1.0,), (1, 2)), Objective.PER_IPU, Own(flow.evaluate))
    assert per_ipu.what == ""
    outcome = run_undivided(flow, Knobs(1, 1.0, 1))
    assert outcome.fits
    assert outcome.samples_per_s > 0
    assert n_again_of(args, flow) == 3 * REPEATS
    small = open_flow(build_parser().parse_args(["search", "--target", "host", "--device-memory-mib", "20"]))
    assert not run_undivided(small, Knobs(1, 1.0, 8)).fits
