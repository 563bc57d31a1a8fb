"""The layers of a model by what they compile to alone: `Variants`; a layer as a model of its own: `isolate`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.profile.liveness import gradient_pattern
from autoauto.records.layers import Derivative, Layer, LayerGraph, Tensor


class Variants:
    """The layers of a model by what they compile to at equal options; without training none has a backward pass.

    The variant of a layer is its kind, and which of its inputs need gradients; `first` is the first layer of each.
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
    number = {old: new for new, old in enumerate(used)} | {-1: -1}  # an operand that is left out is -1
    with_gradient = [i for i in used if derivative.needs_gradient(i) and i not in layer.outputs]
    before = []  # the layers before it: one, or none
    if with_gradient:
        gradients = tuple(number[i] for i in layer.inputs if i in with_gradient)
        parameter = len(used)  # follows all other tensors
        before.append(Layer("before", "Identity", (), (), gradients, (parameter,), (parameter,), "before", None))

    def renumbered(tensors: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(number[i] for i in tensors)

    alone = replace(
        layer,
        inputs=renumbered(layer.inputs),
        outputs=renumbered(layer.outputs),
        weights=renumbered(layer.weights),
        operands=renumbered(layer.operands),
    )
    position = len(before)
    tensors = []
    for i in used:
        producer, last_use = -1, position
        if i in with_gradient:
            producer = 0
        elif i in layer.outputs:
            producer, last_use = position, position + 1
        tensors.append(graph.tensors[i]._replace(producer=producer, last_use=last_use))
    if before:
        tensors.append(Tensor("parameter", (2,), None, "float", producer=-1, last_use=0))
    return replace(graph, layers=(*before, alone), tensors=tuple(tensors), blocks=())
