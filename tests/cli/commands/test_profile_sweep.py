import json
from itertools import pairwise
from typing import Any

import pytest

from tests.cli.conftest import RunCli


@pytest.fixture
def swept(run_cli: RunCli) -> list[dict[str, Any]]:
    printed = json.loads(
        run_cli("profile", "resnet50", "--batch-size", "4", "--sweep", "memory-proportion", "--json").out
    )
    rows: list[dict[str, Any]] = printed["sweep"]
    return rows


def test_cycles_fall_as_the_bound_rises(swept: list[dict[str, Any]]) -> None:
    bounded = [row for row in swept if row["n_unbounded"] == 0]
    assert len(bounded) > 5
    assert all(a["cycles"] >= b["cycles"] and a["layer_cycles"] >= b["layer_cycles"] for a, b in pairwise(bounded))
    assert bounded[0]["cycles"] > bounded[-1]["cycles"]


def test_the_memory_of_a_bounded_layer_is_within_the_bound(swept: list[dict[str, Any]]) -> None:
    for row in swept:
        if row["layer_is_bounded"]:
            assert row["layer_tile_bytes"] <= 638976 * row["memory_proportion"]


def test_a_layer_may_be_named(run_cli: RunCli) -> None:
    named = ("profile", "bert-base-128", "--sweep", "memory-proportion", "--layer")
    printed = json.loads(run_cli(*named, "bert.encoder.layer.3.attention.self.MatMul", "--json").out)
    assert printed["layer"] == "bert.encoder.layer.3.attention.self.MatMul"
    code, _, err = run_cli(*named, "nothing")
    assert (code, err.count("\n")) == (2, 1)


def test_the_table_shows_the_sweep(run_cli: RunCli) -> None:
    printed = run_cli("profile", "resnet50", "--sweep", "memory-proportion").out
    assert "The bound on temporary memory" in printed
