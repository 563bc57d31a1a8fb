"""The study of layers timed in their model, on a model of a few products."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from studies.custom_target import model_of
from studies.layers_in_model import COLUMNS, error

pytest.importorskip("onnxruntime")


def test_an_error_is_that_of_the_median() -> None:
    assert error([110.0, 90.0], [[90, 100, 500], [100]]) == pytest.approx(0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_session_has_a_line(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    onnx.save(model_of(n_layers=4, width=512), tmp_path / "small.onnx")
    header, *lines = run_script("layers_in_model", "small.onnx", "--batch-size", "2", "--rounds", "1")
    assert header.split() == " ".join(name for name, _ in COLUMNS).split()
    assert "onnxruntime fp32" in lines[0]
    for line in lines:
        name, *_, ratio, alone, _, in_model, _ = line.split()
        assert name == "small.onnx"
        assert min(float(ratio), float(alone), float(in_model)) >= 0
