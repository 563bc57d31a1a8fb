"""Stages of measured traffic as the command line prints them, and how long an hour takes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from studies import traffic_accuracy

STAGE = {
    "id": "a",
    "model": "meta-llama/Llama-2-7b-hf",
    "system": "h100_sxm",
    "engine": "vllm",
    "engine_version": "0.15.1",
    "stage": "0",
    "tensor_parallel": "1",
    "max_num_seqs": "128",
    "max_num_batched_tokens": "2048",
    "max_model_len": "4096",
    "gpu_memory_utilization": "",
    "arrival": "constant",
    "rate_per_s": "5",
    "achieved_rate_per_s": "",
    "n_requests": "500",
    "input_tokens_mean": "591.6",
    "input_tokens_p10": "584.9",
    "input_tokens_p90": "600",
    "output_tokens": "247",
    "shared_prefix_tokens": "100",
    "n_distinct_prefixes": "10",
    "n_distinct_prompts": "100",
    "e2e_mean_s": "1.81032",
    "ttft_mean_s": "0.0250366",
    "ttft_p99_s": "0.0459702",
    "tpot_mean_s": "0.00725726",
    "overloaded": "no",
}
"""As measured, with fewer requests."""
CHANGES: tuple[dict[str, str], ...] = (
    {},
    {"id": "later", "stage": "1"},
    {"id": "new", "n_distinct_prompts": ""},
    {"id": "too many", "rate_per_s": "60", "n_requests": "3000", "overloaded": "yes"},
    {"id": "unknown", "model": "nobody/nothing"},
)


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


@pytest.fixture
def stages(tmp_path: Path) -> str:
    path = tmp_path / "stages.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, STAGE)
        writer.writeheader()
        writer.writerows([{**STAGE, **change} for change in CHANGES])
    return str(path)


@pytest.fixture
def printed(stages: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*options: str) -> str:
        monkeypatch.setattr("sys.argv", ["traffic_accuracy.py", "--rows", stages, *options])
        traffic_accuracy.main()
        return capsys.readouterr().out

    return run


def test_each_stage_has_a_forecast_or_a_reason(printed: Callable[..., str]) -> None:
    answers = {answer["id"]: answer for answer in json.loads(printed("--json"))}
    assert answers["a"].keys() == {"id", "ttft_s", "ttft_p99_s", "tpot_s", "e2e_s", "overloaded"}
    assert "got 'nobody/nothing'" in answers["unknown"]["reason"]
    for key, column in (("tpot_s", "tpot_mean_s"), ("e2e_s", "e2e_mean_s"), ("ttft_s", "ttft_mean_s")):
        assert answers["a"][key] == pytest.approx(float(STAGE[column]), rel=0.15)
    assert [answers[name]["overloaded"] for name in ("a", "later", "new", "too many")] == [False, False, False, True]


def test_prompts_that_are_in_the_cache_wait_less(printed: Callable[..., str]) -> None:
    """At the first stage each prompt is computed once, at a later one none is, and new ones are always computed."""
    answers = {answer["id"]: answer for answer in json.loads(printed("--json"))}
    times = [answers[name]["ttft_s"] for name in ("later", "a", "new")]
    assert times == sorted(times)
    assert times[0] < 0.95 * times[2]


@pytest.mark.slow
def test_errors_are_printed_by_regime(run_script: Callable[..., list[str]], stages: str) -> None:
    lines = run_script("traffic_accuracy", "--rows", stages)
    assert lines[0].split() == ["row", "overloaded", "ttft_s", "ttft_p99_s", "tpot_s", "e2e_s"]
    assert lines[-2].startswith("repeated: 3 of 3 overloaded or stable rightly; mean absolute errors: ttft_s ")
    assert lines[-1].startswith("new: 1 of 1 ")


@pytest.mark.slow
def test_an_hour_is_simulated_and_compared_with_single_steps(run_script: Callable[..., list[str]]) -> None:
    lines = run_script("traffic_speed", "--requests", "100")
    assert lines[1].startswith("19,366 requests on 1 replica: ")
    own, true = (float(word) for word in lines[-1].rsplit("latency p99 ", 1)[1].replace(" s", "").split(" and "))
    assert own == pytest.approx(true, rel=0.05)
