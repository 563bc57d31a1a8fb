"""What `autoauto plan` answers about the first case of the seed's own tests and about a random one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "auto_pipeline_partition.json").read_text())
CASE = max((case for case in CASES["random"] if case["feasible"]), key=lambda case: len(case["cluster"]["connection"]))
Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], expand_profile: Callable[..., Any]) -> Ask:
    (tmp_path / "model.json").write_text(json.dumps(expand_profile(CASE["profile"])))
    (tmp_path / "cluster.json").write_text(json.dumps(CASE["cluster"]))
    files = ["--model-info", str(tmp_path / "model.json"), "--cluster-info", str(tmp_path / "cluster.json")]

    def run(*question: str, proportion: float = CASE["memoryProportion"]) -> Any:
        code = main(["plan", *files, "--planning-proportion", str(proportion), *question])
        printed = capsys.readouterr()
        if "--json" in question:
            return code, json.loads(printed.out)
        return code, printed.out + printed.err

    return run


def test_explain_tells_what_binds(ask: Ask) -> None:
    code, told = ask("--explain", "--json")
    explanation = told["explanation"]
    assert code == 0
    assert told["cost_cycles"] == CASE["optimal_cost"]
    assert explanation["next_best"]["cost_cycles"] >= CASE["optimal_cost"]
    (slowest, *_) = explanation["compute_stages"]
    assert told["stages"][slowest]["forward_cycles"] == told["compute_cycles"]
    assert [cut["layer"] for cut in explanation["cuts"]] == told["partition"][1:-1]


def test_the_k_best_begin_with_the_optimum(ask: Ask) -> None:
    _, told = ask("--k-best", "3", "--json")
    costs = [plan["cost_cycles"] for plan in told["plans"]]
    assert costs == sorted(costs)
    assert costs[0] == CASE["optimal_cost"]


def test_the_staircase_holds_the_optimum(ask: Ask) -> None:
    _, told = ask("--staircase", "--json")
    assert told["is_complete"]
    assert min(step["cost_cycles"] for step in told["steps"]) == CASE["optimal_cost"]
    _, first = ask("--staircase", "1", "--json")
    assert first["steps"] == told["steps"][:1]
    assert first["is_complete"] == (len(told["steps"]) == 1)


def test_the_plan_for_every_n_ipu_ends_with_the_whole_cluster(ask: Ask) -> None:
    _, told = ask("--every-n-ipu", "--json")
    assert [plan["n_ipu"] for plan in told["plans"]] == list(range(1, len(CASE["cluster"]["connection"]) + 1))
    assert told["plans"][-1]["cost_cycles"] == CASE["optimal_cost"]
    assert {plan["fits"] for plan in told["plans"]} <= {True, False}


def test_replicas_use_no_more_devices_than_there_are(ask: Ask) -> None:
    _, told = ask("--replicas", "--json")
    assert told["n_ipu"] * told["n_replicas"] <= len(CASE["cluster"]["connection"])
    clock = CASE["cluster"]["clock"]
    speed = sum(clock / plan["cost_cycles"] for plan in told["plans"])
    assert told["micro_batches_per_s"] == pytest.approx(speed)


def test_one_chunk_a_device_is_the_optimum(ask: Ask) -> None:
    _, told = ask("--chunks", "1", "--json")
    assert (told["cost_cycles"], told["bound_cycles"], told["gap"]) == (CASE["optimal_cost"], CASE["optimal_cost"], 0)


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("--explain", "If one cut moved"),
        ("--k-best 2", "The cheapest plans"),
        ("--staircase", "All best trades"),
        ("--every-n-ipu", "The best plan for every n_ipu"),
        ("--replicas", "micro-batches/s"),
        ("--chunks 1", "optimal"),
    ],
)
def test_every_answer_has_a_table(ask: Ask, question: str, line: str) -> None:
    code, printed = ask(*question.split())
    assert code == 0
    assert line in printed


def test_what_does_not_fit_is_told_for_every_question(ask: Ask) -> None:
    for question in ("--explain", "--k-best 2", "--staircase", "--replicas", "--chunks 1", "--overlap"):
        code, told = ask(*question.split(), "--json", proportion=1e-9)
        assert (code, told["fits"]) == (3, False)
        assert told["excess_bytes"] > 0
    code, told = ask("--every-n-ipu", "--json", proportion=1e-9)
    assert code == 3
    assert not any(plan["fits"] for plan in told["plans"])


def test_only_one_question_at_a_time(ask: Ask) -> None:
    code, printed = ask("--explain", "--replicas")
    assert code == 2
    assert "not allowed with" in printed


@pytest.mark.parametrize("question", ["--k-best 0", "--staircase 0", "--chunks 0"])
def test_none_of_something_is_refused(ask: Ask, question: str) -> None:
    code, printed = ask(*question.split())
    assert code == 2
    assert "from 1" in printed
