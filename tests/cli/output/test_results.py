import argparse
import json
from collections.abc import Callable
from typing import Any

import pytest

from autoauto.cli.output.results import describe_best, describe_result, show_infeasible
from autoauto.records.errors import OutOfMemory
from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.trial import Cell, Counts
from autoauto.study.analysis.best import BestTrial
from autoauto.study.run import SearchResult

STAGE = Stage(LayerRange(0, 3), 0, 90, 0, 4, 6, {"parameter": 70}, 100)
BEST = BestTrial(7, Knobs(1, 0.6, 2), 20.0, 20.0, 0.0, None, Plan((STAGE,)), None)


@pytest.mark.parametrize("as_json", [True, False])
def test_what_does_not_fit_is_told_on_stderr_and_as_json_on_stdout(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    failure = OutOfMemory("too much", 5, LayerRange(1, 3), {"parameter": 9})
    assert show_infeasible(argparse.Namespace(json=as_json), failure) == 3
    out, err = capsys.readouterr()
    assert err == "autoauto: too much\n"
    if as_json:
        assert json.loads(out) == {
            "fits": False,
            "excess_bytes": 5,
            "layers": [1, 3],
            "memory_bytes": {"parameter": 9},
            "reason": "too much",
        }
    else:
        assert out == ""


def test_the_best_is_told_with_its_knobs_and_costs() -> None:
    told = describe_best(BEST)
    assert (told["n_ipu"], told["memory_proportion"], told["batch_size"]) == (1, 0.6, 2)
    assert (told["partition"], told["cost_cycles"], told["trial"]) == ([0, 3], 100, 7)
    assert told["stages"][0]["total_bytes"] == 70


def test_a_search_without_a_best_says_why_cell_by_cell() -> None:
    result = SearchResult(None, Counts(2, 1, 4), "s", (Cell(Knobs(1, 0.6, 2), None, 0.0, "too large"),), SearchSpace())
    assert describe_result(result, "sqlite:///x.db") == {
        "best": None,
        "n_configurations": 4,
        "n_tried": 2,
        "n_measured": 1,
        "study_name": "s",
        "storage": "sqlite:///x.db",
        "cells": [
            {
                "n_ipu": 1,
                "memory_proportion": 0.6,
                "batch_size": None,
                "schedule": "inference",
                "recompute": False,
                "n_micro_batches": 1,
                "replicas": 1,
                "strategy": "pipeline",
                "samples_per_s": 0.0,
                "reason": "too large",
                "too_large": None,
            }
        ],
    }


def test_no_password_is_printed() -> None:
    result = SearchResult(None, Counts(0, 0, 4), "s", (), SearchSpace())
    assert describe_result(result, "postgresql://me:secret@host/trials")["storage"] == "postgresql://me:***@host/trials"


Door = Callable[..., Any]


@pytest.mark.parametrize("command", ["predict", "measure", "profile"])
def test_products_planned_without_the_bound_are_told_in_one_line(door: Door, command: str) -> None:
    code, _, err = door(command, "resnet50", "--batch-size", "16", "--memory-proportion", "0.01")
    assert code == 0
    assert err.count("\n") == 1
    assert "meets memory proportion 0.01, so the bound was dropped there" in err


def test_a_bound_that_is_met_is_not_worth_a_word(door: Door) -> None:
    assert door("predict", "resnet50", "--memory-proportion", "0.6").err == ""
