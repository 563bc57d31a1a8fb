"""A small real model with a residual connection over all its layers, and a source that cuts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

from autoauto.graph.load import load_graph
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link
from autoauto.records.layers import LayerGraph, LayerRange, Port, SubModel


@dataclass
class ExtractorSource:
    """A `Source` by the extractor of the ONNX package, for models without views."""

    model: onnx.ModelProto

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        inside = [graph.layers[i] for i in range(*layers)]
        inputs = {i for layer in inside for i in layer.inputs if not layers.start <= graph.tensors[i].producer}
        outputs = [i for layer in inside for i in layer.outputs if graph.tensors[i].last_use >= layers.stop]
        ports = [[self._port(graph, i, batch_size) for i in sorted(tensors)] for tensors in (inputs, outputs)]
        names = ([port.name for port in side] for side in ports)
        sub_model = Extractor(at_batch(self.model, batch_size)).extract_model(*names)
        return SubModel(sub_model.SerializeToString(), *map(tuple, ports))

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        weights = {i for layer in graph.layers for i in layer.weights}
        alive = [i for i, t in enumerate(graph.tensors) if t.producer < cut <= t.last_use and i not in weights]
        return tuple(self._port(graph, i, batch_size) for i in alive)

    def _port(self, graph: LayerGraph, index: int, batch_size: int) -> Port:
        tensor = graph.tensors[index]
        return Port(tensor.name, tensor.shape_at(batch_size), "float32")


def unlike_of(*sizes: int) -> Cluster:
    """Single cores that differ in their memory."""
    link = Link(5e9, 20_000)
    kinds = (DeviceKind(Device(f"core of {size}", 1e9, size, 1, size), 1, link, link) for size in sizes)
    return Cluster.of_kinds("unlike", "host", tuple(kinds))


def at_batch(model: onnx.ModelProto, batch_size: int) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in (*copy.graph.input, *copy.graph.output):
        entry.type.tensor_type.shape.dim[0].dim_value = batch_size
    return onnx.shape_inference.infer_shapes(copy)


def residual(n_layers: int, width: int) -> onnx.ModelProto:
    """y = x + relu(... relu(x W0) ... Wn): x is carried over all layers."""
    rng = np.random.default_rng(7)
    nodes, weights = [], []
    for i in range(n_layers):
        weight = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [f"h{i}" if i else "x", f"w{i}"], [f"z{i}"], f"matmul{i}"))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"h{i + 1}"], f"relu{i}"))
    nodes.append(helper.make_node("Add", ["x", f"h{n_layers}"], ["y"], "add"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "residual", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass
class Model:
    """A model as ONNX, as layers, and as a source of sub-models."""

    proto: onnx.ModelProto
    graph: LayerGraph
    source: ExtractorSource

    def outputs(self, inputs: dict[str, Any], batch_size: int) -> list[Any]:
        """Outputs of the whole model in one session."""
        runtime = pytest.importorskip("onnxruntime")
        content = at_batch(self.proto, batch_size).SerializeToString()
        outputs: list[Any] = runtime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
        return outputs


@pytest.fixture
def residual_model(tmp_path: Path) -> Callable[[int, int], Model]:
    """Make a model of `n_layers` layers, each `width` wide."""

    def make(n_layers: int, width: int) -> Model:
        pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
        proto = residual(n_layers, width)
        path = tmp_path / "residual.onnx"
        onnx.save(proto, path)
        return Model(proto, load_graph(str(path)), ExtractorSource(proto))

    return make
