"""Constraints on the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.cli.options.constraints import add_constraints, constraint_text, constraints_of

Door = Callable[..., Any]
SMALL = ("search", "resnet50", "--batch-size", "1:8", "--memory-proportion", "0.6", "--n-ipu", "1,2")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_constraints(parser)
    return parser.parse_args(words)


def test_a_bound_of_latency_is_a_constraint() -> None:
    both = constraints_of(parsed("--constraint", "n_ipu<3", "--max-latency-s", "0.02"))
    assert [constraint.text for constraint in both] == ["n_ipu < 3", "latency_s <= 0.02"]
    twice = parsed("--max-latency-s", "2e-2", "--constraint", "latency_s<=0.02")
    assert len(constraints_of(twice)) == 1
    assert constraints_of(argparse.Namespace()) == ()


def test_what_is_no_constraint_is_refused(door: Door) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="did you mean latency_s"):
        constraint_text("latencys <= 1")
    for words in (("--constraint", "latency <= 1%"), ("--max-latency-s", "0"), ("--constraint", "n_ipu > 9")):
        code, out, err = door(*SMALL, *words)
        assert (code, out, err.count("\n")) == (2, "", 1), words
        assert "%%" not in err


def test_a_latency_bound_is_kept_and_costs_throughput(door: Door) -> None:
    free = json.loads(door(*SMALL, "--json").out)
    bound = free["best"]["latency_s"] * 0.8
    held = json.loads(door(*SMALL, "--max-latency-s", str(bound), "--json").out)
    assert held["best"]["latency_s"] <= bound
    assert held["best"]["samples_per_s"] < free["best"]["samples_per_s"]
    assert held["study_name"] != free["study_name"]
    wrong = door(*SMALL, "--max-latency-s", str(bound), "--study-name", free["study_name"])
    assert wrong.code == 2
    assert "made with constraints ''" in wrong.err


def test_a_constraint_that_nothing_keeps_is_told_as_the_reason(door: Door) -> None:
    code, out, err = door(*SMALL, "--max-latency-s", "1e-6", "--json")
    assert (code, json.loads(out)["best"], err.count("\n")) == (3, None, 1)
    assert "latency_s <= 1e-06 does not hold" in err


def test_a_constraint_over_knobs_is_another_space_of_the_same_study(door: Door) -> None:
    wide = json.loads(door(*SMALL, "--json").out)
    small = json.loads(door(*SMALL, "--constraint", "n_ipu * batch_size <= 8", "--json").out)
    assert (wide["n_configurations"], small["n_configurations"]) == (16, 12)
    assert small["study_name"] == wide["study_name"]
    assert small["best"]["n_ipu"] * small["best"]["batch_size"] <= 8


@pytest.mark.slow
def test_several_objectives_have_a_front(door: Door) -> None:
    words = (*SMALL, "--objective", "throughput,latency", "--study-name", "two")
    shown = door(*words, "--method", "exhaustive").out
    assert "No other is better in throughput and latency" in shown
    told = json.loads(door(*words, "--method", "exhaustive", "--json").out)
    speeds, latencies = ([row[name] for row in told["front"]] for name in ("samples_per_s", "latency_s"))
    assert speeds == sorted(speeds, reverse=True)
    assert latencies == sorted(latencies, reverse=True)
    assert json.loads(door("report", "two", "--json").out)["front"] == told["front"]
    assert "No other is better" in door("report", "two").out
    assert "Trials by throughput,latency" in door("trials", "two").out
    assert "Why this one, by throughput" in door("explain", "two").out
    assert json.loads(door(*words, "--dry-run", "--json").out)["n_measured"] > 0
    refused = door(*words, "--method", "guided")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "guided goes for one objective" in refused.err


def test_a_page_of_several_objectives_is_written(door: Door) -> None:
    door(*SMALL, "--objective", "latency,per-ipu", "--study-name", "two", "--n-measurements", "4")
    assert door("report", "two", "--html", "two.html").code == 0
