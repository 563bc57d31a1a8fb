"""Models that no other test has, exported from PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_an_unknown_model_is_refused(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    assert "got swin-huge" in run_script("unseen_models", str(tmp_path), "swin-huge", exit_codes=[2])[-1]


@pytest.mark.slow
def test_no_operator_of_an_exported_model_is_above_its_class(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    for package in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(package, reason="exporting needs it")
    files = [line.partition(":")[0] for line in run_script("unseen_models", str(tmp_path), "clip-text")]
    assert files == ["clip-text-dynamo.onnx", "clip-text-script.onnx"]
    lines = run_script("operator_table", *(str(tmp_path / file) for file in files))
    assert sum("layers," in line for line in lines) == len(files)
    assert any(line.startswith("MatMul") for line in lines)
