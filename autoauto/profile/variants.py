"""The layers of a model by what they compile to alone: `Variants`; a layer as a model of its own: `isolate`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.profile.liveness import gradient_pattern
from autoauto.records.layers import Derivative, Layer, LayerGraph, Tensor


class Variants:
    """The layers of a model by what they compile to at equal options.

    Attributes:
        passes: the backward pass; without training nothing has one.
        of_layers: the variant of every layer: its kind, and which of its inputs need gradients.
        first: the first layer of each.
    """

    def __init__(self, passes: Derivative) -> None:
        self.passes = passes
        self.of_layers = [f"{layer.kind}/{gradient_pattern(passes, layer)}" for layer in passes.graph.layers]
        self.first: dict[str, int] = {}
        for index, variant in enumerate(self.of_layers):
            self.first.setdefault(variant, index)
        self._alone: dict[str, LayerGraph] = {}

    def alone(self, variant: str) -> LayerGraph:
        """A layer of a variant as the last of a model of its own."""
        if variant not in self._alone:
            self._alone[variant] = isolate(self.passes.graph, self.first[variant], self.passes)
        return self._alone[variant]


def isolate(graph: LayerGraph, index: int, derivative: Derivative) -> LayerGraph:
    """One layer as the last of a model of its own: its inputs are inputs of the model, its outputs are outputs.

    Inputs that need a gradient are the outputs of a layer before it, which has a parameter.
    """
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    with_gradient = {i for i in used if derivative.needs_gradient(i) and i not in layer.outputs}
    outputs_before = tuple(number[i] for i in layer.inputs if i in with_gradient)
    producers = (_producer(outputs_before, len(used)),) if with_gradient else ()
    alone = replace(
        layer,
        inputs=tuple(number[i] for i in layer.inputs),
        outputs=tuple(number[i] for i in layer.outputs),
        weights=tuple(number[i] for i in layer.weights),
        operands=tuple(number[i] for i in layer.operands),
    )
    n_before = len(producers)
    spans = dict.fromkeys(with_gradient, (0, n_before)) | dict.fromkeys(layer.outputs, (n_before, n_before + 1))
    tensors = [_with_span(graph.tensors[i], *spans.get(i, (-1, n_before))) for i in used]
    parameter = (Tensor("parameter", (2,), None, "float", -1, 0),) * n_before
    return replace(graph, layers=(*producers, alone), tensors=(*tensors, *parameter), blocks=())


def _producer(outputs: tuple[int, ...], weight: int) -> Layer:
    return Layer("before", "Identity", (), (), outputs, (weight,), (weight,), "before", None)


def _with_span(tensor: Tensor, producer: int, last_use: int) -> Tensor:
    return tensor._replace(producer=producer, last_use=last_use)
