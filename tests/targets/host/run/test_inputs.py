"""Inputs of every type, scalars, and inputs that all samples share, in real processes of every runtime."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.graph.cut import onnx_source
from autoauto.records.costs.options import SessionOptions
from autoauto.records.layers import LayerRange
from autoauto.records.units import MIB
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.run.pipelines import Pipelines
from autoauto.targets.host.run.run import inputs_of
from autoauto.targets.host.run.stage import StageResources
from autoauto.targets.host.runtimes.registry import SESSIONS

pytestmark = pytest.mark.slow

INPUTS: dict[str, tuple[int, list[Any]]] = {
    "bytes": (TensorProto.INT8, ["n", 8]),
    "half": (TensorProto.FLOAT16, ["n", 8]),
    "double": (TensorProto.DOUBLE, [8]),
    "mask": (TensorProto.BOOL, ["n", 8]),
    "rate": (TensorProto.FLOAT, []),
    "threshold": (TensorProto.DOUBLE, []),
    "half_lens": (TensorProto.INT64, ["n"]),
}
OUTPUTS = {"y": TensorProto.FLOAT, "short": TensorProto.FLOAT16, "above": TensorProto.BOOL, "mean": TensorProto.FLOAT}


def of_every_type() -> onnx.ModelProto:
    """A model that divides by lengths: each is 0 nowhere."""
    nodes = [
        *(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT) for name in INPUTS if name != "mask"),
        helper.make_node("Add", ["bytes_f", "half_f"], ["sum"]),
        helper.make_node("Add", ["sum", "double_f"], ["added"]),
        helper.make_node("Where", ["mask", "added", "threshold_f"], ["chosen"]),
        helper.make_node("MatMul", ["chosen", "w"], ["h"]),
        helper.make_node("Mul", ["h", "rate_f"], ["y"]),
        helper.make_node("Cast", ["y"], ["short"], to=TensorProto.FLOAT16),
        helper.make_node("Greater", ["y", "threshold_f"], ["above"]),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], keepdims=0),
        helper.make_node("Div", ["total", "half_lens_f"], ["mean"]),
    ]
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    graph = helper.make_graph(
        nodes, "types",
        [helper.make_tensor_value_info(name, *end) for name, end in INPUTS.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in OUTPUTS.items()],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_stages_take_inputs_of_every_type_and_shape(runtime: str, tmp_path: Path) -> None:
    pytest.importorskip(runtime)
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "types.onnx"
    onnx.save(of_every_type(), path)
    source = onnx_source(str(path))
    graph = source.graph
    inputs = inputs_of(source, graph, 3)
    assert {name: array.shape for name, array in inputs.items()} == {
        "bytes": (3, 8), "half": (3, 8), "double": (8,), "mask": (3, 8), "rate": (), "threshold": (), "half_lens": (3,),
    }  # fmt: skip
    assert inputs["half_lens"].tolist() == [8, 8, 8]
    received: dict[str, Any] = {}
    stages = [LayerRange(*layers) for layers in pairwise((0, 3, len(graph)))]
    resources = [[StageResources(cores_of(0, 1), SessionOptions(1, SESSIONS[runtime]()), 256 * MIB) for _ in stages]]
    with Pipelines(graph, source, stages, 3, resources) as pipelines:
        pipelines.stream(iter([inputs]), lambda _, __, batch: received.update({k: v.copy() for k, v in batch.items()}))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for name, expected in zip(OUTPUTS, session.run(None, dict(inputs)), strict=True):
        assert received[name].dtype == expected.dtype
        np.testing.assert_allclose(received[name], expected, rtol=2e-3 if name == "short" else 1e-4, atol=1e-4)
