"""Our plans of public profiles beside the published ones."""

from __future__ import annotations

import json

import pytest

from studies import partition_benchmark as bench
from tests.studies.conftest import RunScript

REFERENCE = json.loads((bench.PROFILES / "reference.json").read_text())["dnn-partitioning"]


@pytest.mark.parametrize("name", [name for name in REFERENCE if "human_expert" in REFERENCE[name]])
def test_the_split_of_the_experts_costs_what_was_published(name: str) -> None:
    cost = bench.expert_cost(bench.PROFILES / "dnn-partitioning" / f"{name}.json", name)
    assert cost == pytest.approx(REFERENCE[name]["human_expert"], abs=6e-4)


def test_a_tensor_counts_once_at_either_end() -> None:
    nodes = [{"id": i, "fpgaLatency": 1.0, "colorClass": i} for i in range(4)]
    edges = [{"sourceId": 0, "destId": i, "cost": 0.25} for i in (1, 2, 3)]
    graph = {"nodes": nodes, "edges": edges}
    assert bench.split_cost(graph, [[0], [1], [2, 3]]) == 2.25
    assert bench.split_cost(graph, [[0, 1, 2, 3]]) == 4.0


@pytest.mark.slow
def test_no_published_division_is_cheaper(run_script: RunScript) -> None:
    header, *lines = run_script("partition_benchmark")
    assert header.split()[:2] == ["profile", "ours"]
    ratios = [float(line.split()[-2]) for line in lines]
    assert len(ratios) == len(REFERENCE) + 4
    assert max(ratios) <= 1.001
