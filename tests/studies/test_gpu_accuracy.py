"""Forecasts of measured rows as the command line prints them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from autoauto.targets.gpu.calibration import Group
from studies import gpu_accuracy, gpu_fit

COLUMNS = (
    "id backend model_path system mode isl osl gemm_quant_mode batch_size tp_size pp_size attention_dp_size "
    "moe_ep_size silicon_ttft_ms silicon_tpot_ms"
)
ROWS = (
    "a vllm Qwen/Qwen3-32B h100_sxm agg 1024 512 - 32 4.0 1.0 - - 199.9 14.2",
    "b vllm Qwen/Qwen3-32B h100_sxm agg 1024 512 - 64 4.0 1.0 - - 230.0 16.0",
    "c vllm deepseek-ai/DeepSeek-R1 h100_sxm agg 1024 512 fp8_block 8 8.0 1.0 1.0 8.0 100 10",
    "d vllm Qwen/Qwen3-32B h100_sxm disagg 1024 512 - - - - - - 100 10",
    "e trtllm Qwen/Qwen3-32B h100_sxm agg 1024 512 nvfp4 8 2.0 1.0 - - 100 10",
    "f vllm Qwen/Qwen3-32B h100_sxm agg 1024 512 - 8 3.0 1.0 - - 100 10",
)


@pytest.fixture(scope="module", autouse=True)
def package() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the measured times")


def written(path: Path, rows: Sequence[str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS.split())
        writer.writerows([["" if cell == "-" else cell for cell in row.split()] for row in rows])
    return path


@pytest.fixture
def forecasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    def run(*options: str) -> str:
        rows = written(tmp_path / "rows.csv", ROWS)
        monkeypatch.setattr("sys.argv", ["gpu_accuracy.py", "--rows", str(rows), *options])
        gpu_accuracy.main()
        return capsys.readouterr().out

    return run


def test_every_row_has_a_forecast_or_a_reason(forecasts: Callable[..., str]) -> None:
    answers = {answer["id"]: answer for answer in json.loads(forecasts("--json"))}
    assert list(answers) == list("abcdef")
    numbers = ("tpot_s", "ttft_s", "tokens_per_s")
    assert answers["a"].keys() == {"id", *numbers, *(f"{name}_interval" for name in numbers)}
    low, high = answers["a"]["tokens_per_s_interval"]
    assert low < answers["a"]["tokens_per_s"] < high
    assert answers["a"]["tpot_s"] == pytest.approx(0.0142, rel=0.15)
    assert answers["a"]["tokens_per_s"] == pytest.approx(32 / answers["a"]["tpot_s"])
    reasons = [answers[each]["reason"] for each in "cdef"]
    assert "one sequence must fit beside the weights of deepseek-ai/DeepSeek-R1" in reasons[0]
    assert "must say how many servers each has" in reasons[1]
    assert "must have times of Qwen/Qwen3-32B by trtllm with nvfp4 weights" in reasons[2]
    assert "tensor_parallel must divide the 64 heads" in reasons[3]


@pytest.mark.slow
def test_published_pipelines_are_not_over_promised(run_script: Callable[..., list[str]]) -> None:
    """Before stages waited for the host, medians were +20 % with 2 stages, +39 % with 4 and +55 % with 8."""
    rows = Path(gpu_accuracy.__file__).parents[1] / "data" / "measurements" / "tensorrt_llm_throughput.csv"
    lines = [line for line in run_script("gpu_accuracy", "--rows", str(rows)) if line.startswith("trtllm dense")]
    medians = {line.split(":")[0]: float(line.split("signed median")[1].split("%")[0]) for line in lines}
    assert medians.keys() == {f"trtllm dense PP {n}" for n in (1, 2, 4, 8)}
    assert all(abs(median) < 15 for median in medians.values())


def test_measured_rows_change_forecasts_of_their_group(forecasts: Callable[..., str], tmp_path: Path) -> None:
    plain = json.loads(forecasts("--json"))[0]["tpot_s"]
    slow = written(tmp_path / "measured.csv", [row.rsplit(" ", 1)[0] + " 50.0" for row in ROWS[:2]])
    assert json.loads(forecasts("--json", "--measured", str(slow)))[0]["tpot_s"] > 2.5 * plain


def test_errors_are_printed_by_group(forecasts: Callable[..., str]) -> None:
    lines = forecasts().splitlines()
    assert lines[0].startswith("Qwen/Qwen3-32B vllm h100_sxm")
    assert "2 rows  TPOT median" in lines[0]
    assert any(line.startswith("    1 rows: a row of two pools") for line in lines)


def test_the_fit_finds_costs_that_were_put_in() -> None:
    group = Group("model", "vllm", "h100_sxm", "")
    kernels = [(b, 0.005 + 1e-5 * b, 0.02 + 1e-4 * b) for b in (4, 16, 64, 128)]
    samples = [
        gpu_fit.Sample(
            group=group,
            n_clients=b,
            n_answered=b,
            prompts_of_step=b / 100,
            decode_s=d,
            prompt_s=p,
            first_s=d + p,
            behind_s=p,
            together_s=(b - 1) / 2 * p,
            tpot_s=d + b / 100 * p + 0.002 + 3e-5 * b,
            ttft_s=0.05 + d + p + 1.5 * p + 0.1 * (b - 1) / 2 * p,
        )
        for b, d, p in kernels
    ]
    assert gpu_fit.host_costs(samples) == pytest.approx((0.002, 3e-5), rel=1e-3)
    assert gpu_fit.first_tokens(samples) == pytest.approx((0.05, 1.5, 0.1), rel=1e-3)


@pytest.mark.slow
def test_the_programs_run(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    rows = str(
        written(tmp_path / "rows.csv", [row.replace("a vllm", f"a{i} vllm") for i, row in enumerate(ROWS[:1] * 30)])
    )
    answers = json.loads("".join(run_script("gpu_accuracy", "--rows", rows, "--json")))
    assert len(answers) == 30
    assert run_script("gpu_fit", "--rows", rows)[0].startswith("vllm: step ")
