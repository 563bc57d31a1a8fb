import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "auto_pipeline_partition.json").read_text())
Plan = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], expand_profile: Callable[..., Any]) -> Plan:
    def run(case: dict[str, Any], *more: str) -> tuple[int, dict[str, Any], str]:
        model, cluster = tmp_path / "model.json", tmp_path / "cluster.json"
        model.write_text(json.dumps(expand_profile(case["profile"])))
        cluster.write_text(json.dumps(case["cluster"]))
        code = main(["plan", "--model-info", str(model), "--cluster-info", str(cluster), "--json", *more])
        printed = capsys.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


def test_a_profile_of_auto_pipeline_is_planned_or_lacks_memory(plan: Plan) -> None:
    """[auto-pipeline]; all cases are planned in tests/plan/pipeline/test_optimal.py."""
    fits, too_large = (next(case for case in CASES["random"] if case["feasible"] is is_so) for is_so in (True, False))
    code, printed, _ = plan(fits, "--planning-proportion", str(fits["memoryProportion"]))
    assert (code, printed["cost_cycles"]) == (0, fits["optimal_cost"])
    assert printed["partition"] in fits["optimal_partitions"]
    assert printed["cost_cycles"] == printed["compute_cycles"] + printed["transfer_cycles"]
    code, printed, line = plan(too_large, "--planning-proportion", str(too_large["memoryProportion"]))
    assert (code, printed["fits"], line.count("\n")) == (3, False, 1)
    assert printed["excess_bytes"] > 0


def test_a_profile_without_a_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model-info", str(tmp_path / "model.json")]) == 2
    assert "--cluster-info" in capsys.readouterr().err


def test_the_table_shows_the_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], expand_profile: Callable[..., Any]
) -> None:
    case = CASES["random"][0]
    (tmp_path / "m.json").write_text(json.dumps(expand_profile(case["profile"])))
    (tmp_path / "c.json").write_text(json.dumps(case["cluster"]))
    assert main(["plan", "--model-info", str(tmp_path / "m.json"), "--cluster-info", str(tmp_path / "c.json")]) == 0
    printed = capsys.readouterr().out
    assert "[0, 3)" in printed
    assert "estimated" in printed


def test_overlap_hides_the_smaller_part(plan: Plan) -> None:
    case = next(case for case in CASES["random"] if case["feasible"])
    code, printed, _ = plan(case, "--overlap", "--planning-proportion", str(case["memoryProportion"]))
    assert code == 0
    assert printed["cost_cycles"] == max(printed["compute_cycles"], printed["transfer_cycles"])
    assert printed["cost_cycles"] < case["optimal_cost"]


def test_options_that_a_profile_decides_are_refused(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", "--model-info", "m.json", "--cluster-info", "c.json", "bert-base-128", "--n-ipu", "2"]
    assert main(arguments) == 2
    assert "model, n_ipu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("--model-info f --cluster-info g --recompute", "got recompute too"),
    ],
)
def test_options_that_would_not_be_used_are_refused(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments.split()]) == 2
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "predict", "measure", "compare", "search"])
def test_ipus_have_no_stage_replicas(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "resnet50", "--n-ipu", "2", "--stage-replicas"]) == 2
    assert capsys.readouterr().err == (
        "autoauto: --target ipu has no --stage-replicas; leave it out, or try --target host\n"
    )


def test_a_profile_has_no_stage_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model-info", "m.json", "--cluster-info", "c.json", "--stage-replicas"]) == 2
    assert "a profile comes with its model and options, got stage_replicas too" in capsys.readouterr().err


def test_an_auto_pipeline_configuration_sets_the_planning_proportion(plan: Plan, tmp_path: Path) -> None:
    case = CASES["random"][0]
    config = tmp_path / "config.json"
    costs = []
    for proportion in (case["memoryProportion"], 1.0):
        config.write_text(json.dumps({"memoryProportion": proportion, "usePoplarEstimation": True}))
        costs.append(plan(case, "--config-info", str(config))[1]["cost_cycles"])
    assert case["memory_binds"]
    assert costs[1] < costs[0] == case["optimal_cost"]
