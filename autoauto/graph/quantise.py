"""What fp8 leaves in fp16: `quantise`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.layers import Layer, LayerGraph
from autoauto.records.units import Precision

_MATRIX_PRODUCTS = frozenset({"Gemm", "MatMul"})
_MARK = ("precision", str(Precision.FP8))


def quantise(graph: LayerGraph) -> LayerGraph:
    """Mark the products that run in fp8, and fix all that stays in halves.

    As PopRT converts a model: convolutions and matrix products take fp8 weights and activations, cast where they are
    read; the first convolution, whose few channels are slow in fp8, and the last matrix product, which decides the
    answer, stay fp16. A weight is stored in fp8 when only such products read it; activations are stored as halves. A
    model that is marked already comes back as it is.
    """
    if any(_MARK in layer.attributes for layer in graph.layers):
        return graph
    marked = _fp8_layers(graph)
    elsewhere = {i for place, layer in enumerate(graph.layers) if place not in marked for i in layer.weights}
    narrow = {i for place in marked for i in graph.layers[place].weights if len(graph.tensors[i].shape) > 1} - elsewhere
    return replace(
        graph,
        layers=tuple(_mark(layer) if place in marked else layer for place, layer in enumerate(graph.layers)),
        tensors=tuple(
            tensor._replace(dtype="float16") if tensor.is_float and index not in narrow else tensor
            for index, tensor in enumerate(graph.tensors)
        ),
        content=f"{graph.content} fp8",
    )


def _fp8_layers(graph: LayerGraph) -> set[int]:
    convolutions = [place for place, layer in enumerate(graph.layers) if layer.op == "Conv"]
    products = [place for place, layer in enumerate(graph.layers) if layer.op in _MATRIX_PRODUCTS]
    return {*convolutions[1:], *products[:-1]}


def _mark(layer: Layer) -> Layer:
    return replace(layer, attributes=tuple(sorted((*layer.attributes, _MARK))), kind=f"{layer.kind}-{Precision.FP8}")
