from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autoauto.graph.load import load_graph


@pytest.fixture(scope="module")
def make_models() -> ModuleType:
    path = Path(__file__).parents[2] / "studies" / "make_models.py"
    spec = importlib.util.spec_from_file_location("make_models", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_become_nodes_and_masks_stay(make_models: ModuleType, make: Any, save: Any, execute: Any) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    scale, mask = np.linspace(0.99, 1.01, 32, dtype=np.float32), np.tril(np.ones((32, 32), np.float32))
    program = "Gather w x > e; Mul e s > n; MatMul n m > k; Transpose w > t; MatMul k t > y"
    model = make(program, {"int:x": ["batch", 4]}, "y", {"w": weights, "s": scale, "m": mask})
    light = make_models.lighten(model)
    assert len(light.SerializeToString()) < len(model.SerializeToString()) / 2
    assert [node.op_type for node in light.graph.node[:2]] == ["ConstantOfShape"] * 2
    (result,) = execute(light, {"x": np.zeros((2, 4), np.int64)})
    assert result.shape == (2, 4, 64)
    assert np.allclose(result, 32 / 32**2 * (32 + 1) / 2, rtol=0.5)
    graph = load_graph(save(light))
    assert [layer.tied for layer in graph.layers] == ["w", None, None, "w"]


def test_an_unknown_name_and_a_missing_package_are_one_line(
    make_models: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_models.main(["resnet51"]) == 2
    assert "NAME must be one of resnet50" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "torch", None)
    assert make_models.main(["resnet50"]) == 2
    assert "try: pip install torch==" in capsys.readouterr().err
