"""Bytes of the tensors that are alive while each layer runs: `live_bytes`, `live_gradient_bytes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from autoauto.records.layers import Derivative, Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.profile import CompileOptions
from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import Family, OperatorCost


def live_bytes(
    graph: LayerGraph,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    options: CompileOptions,
    stashed_until: Mapping[int, int] | None = None,
) -> list[int]:
    """Bytes of tensors on the device while each of the layers runs.

    An input of the range is alive from its start, a tensor that the range writes from the layer that writes it. Both
    are alive until their last use, or to the end of the range when a later layer reads them; those that are stashed for
    the backward pass, until the layer of `stashed_until`, if that is later. A tensor that an earlier layer wrote for a
    later one is alive all the time: a pipeline sends it from device to device.
    """
    return _alive(graph, layers, costs, options, _tensors(graph, layers), stashed_until or {})


def live_gradient_bytes(
    graph: LayerGraph,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    options: CompileOptions,
    derivative: Derivative,
) -> list[int]:
    """Bytes of gradients on the device while each of the layers runs backward.

    The gradient of a tensor is alive during the same layers as the tensor: the layer that read the tensor last writes
    it, and the layer that wrote the tensor reads it.
    """
    wanted = {index for index in _tensors(graph, layers) if derivative.needs_gradient(index)}
    return _alive(graph, layers, costs, options, wanted, {})


def _alive(
    graph: LayerGraph,
    layers: LayerRange,
    costs: Sequence[OperatorCost],
    options: CompileOptions,
    tensors: set[int],
    stashed_until: Mapping[int, int],
) -> list[int]:
    change = [0] * (layers.stop - layers.start + 1)
    for index in tensors:
        tensor = graph.tensors[index]
        n_bytes = tensor.n_bytes(options.batch_size, options.precision)
        first, last = _span(tensor, layers)
        change[first - layers.start] += n_bytes
        change[max(last, stashed_until.get(index, last)) - layers.start] -= n_bytes
    alive = list(accumulate(change[:-1]))
    may_be_overwritten = tensors.difference(stashed_until)
    for step, (index, cost) in enumerate(zip(range(*layers), costs, strict=True)):
        if tensors.issuperset(graph.layers[index].outputs):
            alive[step] -= _written_in_place(graph, index, cost, options, may_be_overwritten)
            alive[step] -= _cast_away(graph, index, options, may_be_overwritten)
    return alive


def _tensors(graph: LayerGraph, layers: LayerRange) -> set[int]:
    return _own_tensors(graph, layers) | _passing_tensors(graph, layers)


def _own_tensors(graph: LayerGraph, layers: LayerRange) -> set[int]:
    return {index for layer in graph.layers[slice(*layers)] for index in (*layer.inputs, *layer.outputs)}


def _passing_tensors(graph: LayerGraph, layers: LayerRange) -> set[int]:
    made = {index for layer in graph.layers[: layers.start] for index in layer.outputs}
    read = {index for layer in graph.layers[layers.stop :] for index in layer.inputs}
    fed = {index for index in read if graph.tensors[index].producer < 0}
    return {index for index in made | fed if graph.tensors[index].last_use >= layers.stop}


def _span(tensor: Tensor, layers: LayerRange) -> tuple[int, int]:
    """The half-open range of layers during which a tensor of the range is alive within it."""
    return max(tensor.producer, layers.start), min(max(tensor.last_use, tensor.producer) + 1, layers.stop)


def _written_in_place(
    graph: LayerGraph, index: int, cost: OperatorCost, options: CompileOptions, may_be_overwritten: set[int]
) -> int:
    """Bytes that an elementwise layer saves by writing over an operand that it is the last to read."""
    layer: Layer = graph.layers[index]
    if cost.family is not Family.ELEMENTWISE or len(layer.outputs) != 1:
        return 0
    dying = (graph.tensors[i] for i in layer.inputs if graph.tensors[i].last_use == index and i in may_be_overwritten)
    n_bytes = graph.tensors[layer.outputs[0]].n_bytes(options.batch_size, options.precision)
    return n_bytes if any(t.n_bytes(options.batch_size, options.precision) == n_bytes for t in dying) else 0


def _cast_away(graph: LayerGraph, index: int, options: CompileOptions, may_be_overwritten: set[int]) -> int:
    """Bytes of halves that a product in fp8 is the last to read: it reads them as quarters, cast before it runs."""
    layer = graph.layers[index]
    if options.precision is not Precision.FP8 or layer.attribute("precision") != Precision.FP8:
        return 0
    dying = (graph.tensors[i] for i in layer.inputs if graph.tensors[i].last_use == index and i in may_be_overwritten)
    return sum(tensor.n_bytes(options.batch_size, options.precision) // 2 for tensor in dying)
