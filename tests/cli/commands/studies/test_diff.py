"""Two studies side by side."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Prepare, RunCli

SMALL = ("search", "resnet50", "--cluster", "c600", "--n-ipu", "1", "--memory-proportion", "0.6")


def test_two_studies_are_compared(run_cli: RunCli) -> None:
    speeds = []
    for name, size in (("first", "4"), ("second", "8")):
        searched = json.loads(run_cli(*SMALL, "--batch-size", size, "--study-name", name, "--json").out)
        speeds.append(searched["best"]["samples_per_s"])
    shown = json.loads(run_cli("diff", "first", "second", "--json").out)
    results = {row.pop("what"): row for row in shown["What each gave"]}
    assert results["study"] == {"first": "first", "second": "second", "difference_percent": None}
    assert results["throughput"]["first"] == f"{speeds[0]:,.1f} samples/s"
    assert results["throughput"]["difference_percent"] == pytest.approx(100 * (speeds[1] / speeds[0] - 1))
    assert shown["Knobs that differ"] == [
        {"what": "batch_size", "first": "4", "second": "8", "difference_percent": None}
    ]
    assert [row["what"] for row in shown["What was asked for otherwise"]] == ["batch_size"]
    out = run_cli("diff", "first", "second").out
    assert "What each gave" in out
    assert f"{100 * (speeds[1] / speeds[0] - 1):+.1f} %" in out
    same = run_cli("diff", "first", "first").out
    assert "Knobs that differ: nothing, it is the same" in same


def test_an_unknown_study_is_refused(run_cli: RunCli, prepare: Prepare) -> None:
    prepare(*SMALL, "--batch-size", "4", "--study-name", "first")
    refused = run_cli("diff", "first", "secnd")
    assert refused.code == 2
    assert "there is no study 'secnd'" in refused.err


def test_text_on_gpus_is_compared_in_tokens_and_with_no_numbers_of_another_kind(run_cli: RunCli) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    for cluster in ("h100_sxm-2", "h100_sxm-4"):
        gpus = ("--target", "gpu", "--cluster", cluster, "--engine", "vllm", "--batch-size", "8,16")
        run_cli("search", "Qwen/Qwen3-8B", *gpus, "--study-name", cluster)
    run_cli(*SMALL, "--batch-size", "4", "--study-name", "other")
    out = run_cli("diff", "h100_sxm-2", "h100_sxm-4").out
    assert "samples/s" not in out
    for word in ("tokens/s", "TPOT", "TTFT", "GPUs"):
        assert word in out
    rows = json.loads(run_cli("diff", "h100_sxm-2", "other", "--json").out)["What each gave"]
    assert {row["difference_percent"] for row in rows} == {None}, "tokens and samples are not compared"
