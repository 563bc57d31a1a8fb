"""What `autoauto plan` computes besides the best plan, for the random profile with the most devices."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "auto_pipeline_partition.json").read_text())
CASE = max((case for case in CASES["random"] if case["feasible"]), key=lambda case: len(case["cluster"]["connection"]))
N_DEVICES = len(CASE["cluster"]["connection"])
Query = Callable[..., Any]


@pytest.fixture
def query(tmp_path: Path, capsys: pytest.CaptureFixture[str], expand_profile: Callable[..., Any]) -> Query:
    """Exit code and answer of `autoauto plan ...`: parsed JSON with --json, otherwise all that was printed."""
    (tmp_path / "model.json").write_text(json.dumps(expand_profile(CASE["profile"])))
    (tmp_path / "cluster.json").write_text(json.dumps(CASE["cluster"]))
    files = ["--model-info", str(tmp_path / "model.json"), "--cluster-info", str(tmp_path / "cluster.json")]

    def run(*options: str, proportion: float = CASE["memoryProportion"]) -> Any:
        code = main(["plan", *files, "--planning-proportion", str(proportion), *options])
        printed = capsys.readouterr()
        if "--json" in options:
            return code, json.loads(printed.out)
        return code, printed.out + printed.err

    return run


def test_explain_has_the_slowest_stages_and_the_price_of_every_cut(query: Query) -> None:
    code, answer = query("--explain", "--json")
    explanation = answer["explanation"]
    assert code == 0
    assert answer["cost_cycles"] == CASE["optimal_cost"]
    assert explanation["next_best"]["cost_cycles"] >= CASE["optimal_cost"]
    (slowest, *_) = explanation["compute_stages"]
    assert answer["stages"][slowest]["forward_cycles"] == answer["compute_cycles"]
    assert [cut["layer"] for cut in explanation["cuts"]] == answer["partition"][1:-1]


def test_the_k_best_begin_with_the_optimum(query: Query) -> None:
    _, answer = query("--k-best", "3", "--json")
    costs = [plan["cost_cycles"] for plan in answer["plans"]]
    assert costs == sorted(costs)
    assert costs[0] == CASE["optimal_cost"]


def test_the_pareto_front_includes_the_optimum(query: Query) -> None:
    _, front = query("--pareto-front", "--json")
    assert front["is_complete"]
    assert min(step["cost_cycles"] for step in front["steps"]) == CASE["optimal_cost"]
    _, first = query("--pareto-front", "1", "--json")
    assert first["steps"] == front["steps"][:1]
    assert first["is_complete"] == (len(front["steps"]) == 1)


def test_the_plans_per_device_count_end_with_the_whole_cluster(query: Query) -> None:
    _, answer = query("--per-device-count", "--json")
    assert [plan["n_ipu"] for plan in answer["plans"]] == list(range(1, N_DEVICES + 1))
    assert answer["plans"][-1]["cost_cycles"] == CASE["optimal_cost"]
    assert {plan["fits"] for plan in answer["plans"]} <= {True, False}


def test_replicas_use_no_more_devices_than_there_are(query: Query) -> None:
    _, answer = query("--as-replicas", "--json")
    assert answer["n_ipu"] * answer["n_replicas"] <= N_DEVICES
    micro_batches_per_s = sum(CASE["cluster"]["clock"] / plan["cost_cycles"] for plan in answer["plans"])
    assert answer["micro_batches_per_s"] == pytest.approx(micro_batches_per_s)


def test_one_chunk_per_device_is_the_optimum(query: Query) -> None:
    _, answer = query("--chunks", "1", "--json")
    cost_cycles = CASE["optimal_cost"]
    assert (answer["cost_cycles"], answer["bound_cycles"], answer["gap"]) == (cost_cycles, cost_cycles, 0)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--explain", "If one cut moved"),
        ("--k-best 2", "The cheapest plans"),
        ("--pareto-front", "All best trades"),
        ("--per-device-count", "The best plan for every n_ipu"),
        ("--as-replicas", "micro-batches/s"),
        ("--chunks 1", "optimal"),
    ],
)
def test_every_answer_has_a_table(query: Query, options: str, line: str) -> None:
    code, printed = query(*options.split())
    assert code == 0
    assert line in printed


def test_every_query_reports_that_nothing_fits(query: Query) -> None:
    for options in ("--explain", "--k-best 2", "--pareto-front", "--as-replicas", "--chunks 1", "--overlap"):
        code, answer = query(*options.split(), "--json", proportion=1e-9)
        assert (code, answer["fits"]) == (3, False)
        assert answer["excess_bytes"] > 0
    code, answer = query("--per-device-count", "--json", proportion=1e-9)
    assert code == 3
    assert not any(plan["fits"] for plan in answer["plans"])


def test_queries_exclude_each_other(query: Query) -> None:
    code, printed = query("--explain", "--as-replicas")
    assert code == 2
    assert "not allowed with" in printed


@pytest.mark.parametrize(
    "options",
    [f"{option} {number}" for option in ("--k-best", "--pareto-front", "--chunks") for number in (0, 10**6, 10**30)],
)
def test_counts_begin_at_1(query: Query, options: str) -> None:
    code, printed = query(*options.split())
    assert code == 2
    assert "from 1" in printed
