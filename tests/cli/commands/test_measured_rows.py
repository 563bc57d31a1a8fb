"""`--measured`: forecasts of text on GPUs by rows that a user measured, with their intervals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli
from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
ROWS = """model,engine,system,precision,tensor_parallel,batch_size,input_tokens,output_tokens,tpot_s
small,vllm,h100_sxm,bf16,1,8,512,128,{}
"""


@pytest.fixture
def predict(run_cli: RunCli, tmp_path: Path) -> RunCli:
    """`autoauto predict` of a small decoder, one H100."""
    decoder_folder(tmp_path / "small")
    requests = ("--input-tokens", "512", "--output-tokens", "128", "--batch-size", "8", "--engine", "vllm")
    fixed = ("predict", "small", "--target", "gpu", "--cluster", "h100_sxm-1", "--n-ipu", "1", *requests)
    return lambda *options: run_cli(*fixed, *options)


def test_forecasts_are_multiplied_and_carry_intervals(predict: RunCli, tmp_path: Path) -> None:
    plain = json.loads(predict("--json").out)
    low, high = plain["tpot_s_error_interval"]
    assert low < plain["tpot_s"] < high
    tokens = [plain["tokens_per_s"] * plain["tpot_s"] / end for end in (high, low)]
    assert plain["tokens_per_s_error_interval"] == pytest.approx(tokens)
    (tmp_path / "rows.csv").write_text(ROWS.format(3 * plain["tpot_s"]))
    slow = json.loads(predict("--measured", "rows.csv", "--json").out)
    assert slow["tpot_s"] > 2.5 * plain["tpot_s"]
    assert slow["tpot_s_error_interval"][0] > high
    assert slow["ttft_s_error_interval"] == plain["ttft_s_error_interval"]
    assert "from 1 measured row of small in bf16 by vllm on h100_sxm" in slow["assumed"][0]
    text = " ".join(predict("--measured", "rows.csv").out.split())
    ends = [f"{1e3 * end:.3g}" for end in slow["tpot_s_error_interval"]]
    assert f"TPOT {1e3 * slow['tpot_s']:.3g} ms ({ends[0]} ms to {ends[1]} ms)" in text


def test_a_bad_row_is_one_line_and_exit_code_2(predict: RunCli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS.format("fast"))
    printed = predict("--measured", "rows.csv")
    assert printed.code == 2
    problem = "rows.csv, line 2, column tpot_s: must be a number above 0, got 'fast'"
    assert printed.err.splitlines() == [f"autoauto: {problem}"]
