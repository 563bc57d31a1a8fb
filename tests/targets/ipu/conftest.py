"""Small models written layer by layer, and a device to compile them for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from autoauto.records.hardware import Device
from autoauto.records.layers import AttributeValue, Layer, LayerGraph, Tensor
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision
from autoauto.targets.ipu.work import Site

Shape = tuple[int, ...]
Graph = Callable[["Sequence[Node]"], LayerGraph]


class Node:
    """One layer: operands are names of earlier nodes, shapes of weights, or "x" + a shape for inputs of the model."""

    def __init__(
        self, op: str, operands: Sequence[str | Shape], shape: Shape, name: str = "", **attributes: AttributeValue
    ) -> None:
        self.op, self.operands, self.shape, self.name = op, operands, shape, name or op
        self.attributes = tuple(sorted(attributes.items()))


def make_graph(nodes: Sequence[Node]) -> LayerGraph:
    """A model of `nodes` in order; the last one's output leaves it."""
    tensors: list[Tensor] = []
    layers: list[Layer] = []
    places: dict[str, int] = {}

    def add(name: str, shape: Shape, batch_axis: int | None, producer: int) -> int:
        tensors.append(Tensor(name, shape, batch_axis, "float", producer, producer))
        return len(tensors) - 1

    for i, node in enumerate(nodes):
        operands = []
        for operand in node.operands:
            if isinstance(operand, tuple):
                operands.append(add("w", operand, None, -1))
            elif operand == "":
                operands.append(-1)
            else:
                if operand.startswith("x:") and operand not in places:
                    shape = tuple(int(n) for n in operand[2:].split("x"))
                    places[operand] = add(operand, shape, 0, -1)
                operands.append(places[operand])
                tensors[operands[-1]] = tensors[operands[-1]]._replace(last_use=i)
        out = add(node.name, node.shape, 0, i)
        inputs = tuple(t for t in dict.fromkeys(operands) if t >= 0 and tensors[t].batch_axis is not None)
        weights = tuple(t for t in dict.fromkeys(operands) if t >= 0 and tensors[t].batch_axis is None)
        places[node.name] = out
        kind = repr((node.op, node.attributes, [tensors[t].shape for t in operands]))
        layers.append(Layer(node.name, node.op, node.attributes, inputs, (out,), weights, tuple(operands), kind, None))
    tensors[layers[-1].outputs[0]] = tensors[layers[-1].outputs[0]]._replace(last_use=len(layers))
    return LayerGraph("small", tuple(layers), tuple(tensors), None, "small")


@pytest.fixture(scope="session")
def node() -> type[Node]:
    """The class of a layer to be."""
    return Node


@pytest.fixture(scope="session")
def graph_of() -> Graph:
    """Make a model of nodes."""
    return make_graph


@pytest.fixture(scope="session")
def device() -> Device:
    """A C600."""
    return Device("c600", 1.5e9, 900 * 1024**2, 1472, 638976)


@pytest.fixture(scope="session")
def options() -> Callable[..., CompileOptions]:
    """Make options, fp16 at batch size 1 and proportion 0.6 unless told."""

    def make(batch_size: int = 1, proportion: float = 0.6, precision: Precision = Precision.FP16) -> CompileOptions:
        return CompileOptions(batch_size, proportion, precision)

    return make


@pytest.fixture(scope="session")
def site(graph_of: Graph, device: Device) -> Callable[..., Site]:
    """Put one node alone on the device."""

    def make(alone: Node, batch_size: int = 1, proportion: float = 0.6, precision: Precision = Precision.FP16) -> Site:
        graph = graph_of([alone])
        return Site(graph, graph.layers[0], device, CompileOptions(batch_size, proportion, precision))

    return make
