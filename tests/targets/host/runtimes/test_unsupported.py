"""Models that every runtime reads, and those that one refuses: files, layers, plans and whole searches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.graph.cut import onnx_source, with_weights
from autoauto.records.layers import LayerRange

FLOAT = TensorProto.FLOAT


def model_of(nodes: list[onnx.NodeProto], shape: list[Any], output: list[Any], **domains: int) -> onnx.ModelProto:
    """A model from "x" to "y" with a weight "w" of 4 times 4."""
    ends = [helper.make_tensor_value_info(*end) for end in (("x", FLOAT, shape), ("y", FLOAT, output))]
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "model", ends[:1], ends[1:], [weight])
    versions = [("", 17), *((domain.replace("_", "."), version) for domain, version in domains.items())]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions], ir_version=8)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[onnx.ModelProto], Path]:
    def save(model: onnx.ModelProto) -> Path:
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return save


def test_openvino_reads_what_is_cut_out_of_a_file_with_several_versions_of_operators(
    saved: Callable[[onnx.ModelProto], Path],
) -> None:
    openvino = pytest.importorskip("openvino")
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], ["n", 4], ["n", 4], ai_onnx_ml=2)
    source = onnx_source(str(saved(model)))
    sub_model = source.cut(source.graph, LayerRange(0, 1), 2)
    assert openvino.Core().read_model(sub_model.content).inputs[0].shape == (2, 4)
    assert with_weights(model, []) == model.SerializeToString()
