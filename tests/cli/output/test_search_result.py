from autoauto.cli.output.search_result import describe_best, describe_result
from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.trial import Cell, Counts
from autoauto.study.analysis.best import BestTrial
from autoauto.study.run import SearchResult

STAGE = Stage(LayerRange(0, 3), 0, 90, 0, 4, 6, {"parameter": 70}, 100)
BEST = BestTrial(7, Knobs(1, 0.6, 2), 20.0, 20.0, 0.0, None, Plan((STAGE,)), None)


def test_the_best_trial_has_its_knobs_and_costs() -> None:
    record = describe_best(BEST)
    assert (record["n_ipu"], record["memory_proportion"], record["batch_size"]) == (1, 0.6, 2)
    assert (record["partition"], record["cost_cycles"], record["trial"]) == ([0, 3], 100, 7)
    assert record["stages"][0]["total_bytes"] == 70


def test_a_search_without_a_best_has_the_reason_of_every_cell() -> None:
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
