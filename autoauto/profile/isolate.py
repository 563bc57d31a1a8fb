"""One layer as a model of its own: `isolate`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.derivative import Derivative
from autoauto.records.layers import Layer, LayerGraph, Tensor


def isolate(graph: LayerGraph, index: int, derivative: Derivative) -> LayerGraph:
    """One layer, the last of a model of its own: what it reads comes from outside, what it writes goes out.

    What needs a gradient comes from a layer before it that has something to learn.
    """
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    wanted = {i for i in used if derivative.needs_gradient(i) and i not in layer.outputs}
    makers = (_maker(tuple(place[i] for i in layer.inputs if i in wanted), len(used)),) if wanted else ()
    alone = replace(
        layer,
        inputs=tuple(place[i] for i in layer.inputs),
        outputs=tuple(place[i] for i in layer.outputs),
        weights=tuple(place[i] for i in layer.weights),
        operands=tuple(place[i] for i in layer.operands),
    )
    here = len(makers)
    spans = dict.fromkeys(wanted, (0, here)) | dict.fromkeys(layer.outputs, (here, here + 1))
    tensors = [_moved(graph.tensors[i], *spans.get(i, (-1, here))) for i in used]
    learned = (Tensor("learned before", (2,), None, "float", -1, 0),) * here
    return replace(graph, layers=(*makers, alone), tensors=(*tensors, *learned))


def _maker(outputs: tuple[int, ...], weight: int) -> Layer:
    return Layer("before", "Identity", (), (), outputs, (weight,), (weight,), "before", None)


def _moved(tensor: Tensor, producer: int, last_use: int) -> Tensor:
    return tensor._replace(producer=producer, last_use=last_use)
