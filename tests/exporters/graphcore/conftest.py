"""Deployments of a small chain of matrix multiplications, and stand-ins for Graphcore's modules that record calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.exporter import Deployment
from autoauto.space.knobs import Knobs

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> Deploy:
    """The best plan of a model, by default of `save_model`, on so many IPUs; further knobs by name."""

    def plan(n_ipu: int, model: str = "", precision: str = "fp16", **knobs: Any) -> Deployment:
        path = model or str(save_model(tmp_path / "chain.onnx"))
        flow = load_flow(path, "bow-pod16", precision=precision)
        return deployment(flow, path, flow.expect(Knobs(n_ipu, 2, **{"memory_proportion": 0.6, **knobs})))

    return plan


def save_model(path: Path, n: int = 6) -> Path:
    """A model of `n` modules, each a MatMul, an Add of a constant that all share, and a Relu behind a reshape."""
    rng = np.random.default_rng(0)
    nodes, values = [], "x"
    weights = [numpy_helper.from_array(np.full(1, 0.5, np.float32), "half")]
    weights.append(numpy_helper.from_array(np.array([-1, 4, 8], np.int64), "shape"))
    weights.append(numpy_helper.from_array(np.array([-1, 32], np.int64), "back"))
    for i in range(n):
        weights.append(numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32), f"w{i}"))
        block = f"net.blocks.{i}"
        nodes.append(helper.make_node("MatMul", [values, f"w{i}"], [f"m{i}"], f"{block}.dense.MatMul"))
        nodes.append(helper.make_node("Add", [f"m{i}", "half"], [f"a{i}"], f"{block}.dense.Add"))
        nodes.append(helper.make_node("Reshape", [f"a{i}", "shape"], [f"r{i}"], f"{block}.Reshape"))
        nodes.append(helper.make_node("Relu", [f"r{i}"], [f"y{i}"], f"{block}.act.Relu"))
        nodes.append(helper.make_node("Reshape", [f"y{i}", "back"], [f"z{i}"], f"{block}.Reshape_1"))
        values = f"z{i}"
    entry = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 32])
    result = helper.make_tensor_value_info(values, onnx.TensorProto.FLOAT, ["batch", 32])
    graph = helper.make_graph(nodes, "chain", [entry], [result], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)
    return path


def with_cuts(plan: Deployment, *cuts: int) -> Deployment:
    """The same with other cuts."""
    bounds = (0, *cuts, len(plan.graph))
    stages = (
        replace(stage, layers=type(stage.layers)(first, last))
        for stage, (first, last) in zip(plan.plan.stages, pairwise(bounds), strict=True)
    )
    return replace(plan, plan=replace(plan.plan, stages=tuple(stages)))


class Recorder:
    """Has every attribute and can be called; it records what is set and called, by dotted names."""

    _name: str
    _calls: dict[str, Any]

    def __init__(self, name: str = "", calls: dict[str, Any] | None = None) -> None:
        self.__dict__.update(_name=name, _calls={} if calls is None else calls)

    def __getattr__(self, name: str) -> Recorder:
        return Recorder(f"{self._name}.{name}".lstrip("."), self._calls)

    def __setattr__(self, name: str, value: object) -> None:
        self._calls[f"{self._name}.{name}"] = getattr(value, "_name", value)

    def __call__(self, *args: object, **options: object) -> Recorder:
        plain = [getattr(value, "_name", value) for value in args]
        self._calls[self._name] = (plain, {key: getattr(value, "_name", value) for key, value in options.items()})
        return self


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Execute a program of a folder with stand-ins for the modules of these names; returns what it defines."""

    def run(program: Path, **modules: Any) -> dict[str, Any]:
        for name, content in modules.items():
            module = ModuleType(name)
            module.__getattr__ = content.__getattr__  # type: ignore[method-assign]
            monkeypatch.setitem(sys.modules, name.replace("__", "."), module)
        monkeypatch.syspath_prepend(str(program.parent))
        monkeypatch.delitem(sys.modules, "stage_assignment", raising=False)
        values: dict[str, Any] = {"__file__": str(program)}
        exec(compile(program.read_text(encoding="utf-8"), program.name, "exec"), values)
        return values

    return run
