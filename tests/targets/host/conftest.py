"""A small real model with a connection over all its layers, and what cuts it; devices of an engine in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.utils import Extractor

from autoauto.graph.load import load_graph
from autoauto.records.layers import LayerGraph, LayerRange, Port, SubModel
from autoauto.runtimes.sharded_engine.peers import Flag, Peers
from autoauto.targets.host.transport.ring import Ring
from tests.running import PATIENCE_S

T = TypeVar("T")


@dataclass
class Extracted:
    """Sub-models by the ONNX package's own extractor: an oracle of `Source` for models without views."""

    model: onnx.ModelProto

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        inside = [graph.layers[i] for i in range(*layers)]
        read = {i for layer in inside for i in layer.inputs if not layers.start <= graph.tensors[i].producer}
        made = [i for layer in inside for i in layer.outputs if graph.tensors[i].last_use >= layers.stop]
        ends = [[self._port(graph, i, batch_size) for i in sorted(ids)] for ids in (read, made)]
        part = Extractor(at_batch(self.model, batch_size)).extract_model(*([port.name for port in e] for e in ends))
        return SubModel(part.SerializeToString(), *map(tuple, ends))

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> tuple[Port, ...]:
        weights = {i for layer in graph.layers for i in layer.weights}
        alive = [i for i, t in enumerate(graph.tensors) if t.producer < cut <= t.last_use and i not in weights]
        return tuple(self._port(graph, i, batch_size) for i in alive)

    def _port(self, graph: LayerGraph, index: int, batch_size: int) -> Port:
        tensor = graph.tensors[index]
        return Port(tensor.name, tensor.shape_at(batch_size), "float32")


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
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@dataclass
class Model:
    """A model in all its forms."""

    proto: onnx.ModelProto
    graph: LayerGraph
    source: Extracted

    def outputs(self, inputs: dict[str, Any], batch_size: int) -> list[Any]:
        """Of the whole model in one session."""
        runtime = pytest.importorskip("onnxruntime")
        content = at_batch(self.proto, batch_size).SerializeToString()
        outputs: list[Any] = runtime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, inputs)
        return outputs


@pytest.fixture
def residual_model(tmp_path: Path) -> Callable[[int, int], Model]:
    """Make a model of so many layers, each `width` wide."""

    def make(n_layers: int, width: int) -> Model:
        pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
        proto = residual(n_layers, width)
        path = tmp_path / "residual.onnx"
        onnx.save(proto, path)
        return Model(proto, load_graph(str(path)), Extracted(proto))

    return make


@pytest.fixture
def connect() -> Iterator[Callable[..., list[Peers]]]:
    """Connect n devices by small rings."""
    closing: list[Ring | Flag] = []

    def make(n_devices: int, n_slots: int = 2, slot_bytes: int = 256) -> list[Peers]:
        rings = {pair: Ring.create(n_slots, slot_bytes) for pair in permutations(range(n_devices), 2)}
        ended = [Flag() for _ in range(n_devices)]
        closing.extend((*rings.values(), *ended))
        return [
            Peers(
                device,
                {to: ring for (come_from, to), ring in rings.items() if come_from == device},
                {come_from: ring for (come_from, to), ring in rings.items() if to == device},
                ended,
            )
            for device in range(n_devices)
        ]

    yield make
    for shared in closing:
        shared.close()


@pytest.fixture
def together() -> Callable[[Sequence[T], Callable[[T], Any]], list[Any]]:
    """Call a function for every device at once; its results, or the exceptions it raised."""
    return _together


def _together(devices: Sequence[T], function: Callable[[T], Any]) -> list[Any]:
    results: dict[int, Any] = {}

    def run(number: int) -> None:
        try:
            results[number] = function(devices[number])
        except Exception as error:  # noqa: BLE001 (the test looks at it)
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(results) == len(devices), f"only devices {sorted(results)} came to an end"
    return [results[number] for number in range(len(devices))]
