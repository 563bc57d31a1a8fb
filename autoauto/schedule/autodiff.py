"""Layers -> ops, and the gradient of every layer that leads to the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from autoauto.records.errors import BadInput
from autoauto.records.pipeline import OpKind, PipelineGraph, PipelineOp, TensorKind
from autoauto.schedule.pipeline_rules import device_of, stage_of


def forward_ops(graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """An op for every layer of a graph that keeps the rules."""
    return tuple(
        PipelineOp(layer.name, OpKind.MAIN, stage_of(layer), device_of(layer), layer.inputs, layer.outputs)
        for layer in graph.layers
    )


def backward_ops(graph: PipelineGraph) -> tuple[PipelineOp, ...]:
    """An op X' for every layer X: it reads the gradients of what X makes and makes those of what X reads.

    The loss is what the last stage makes and no layer reads. The gradient of stage k is in stage 2 * last - k, on the
    same device, so that of the last stage is part of it (seed 000). What does not lead to the loss has no gradient.

    Raises:
        BadInput: a stage has no gradient.

    >>> from autoauto.schedule.pipeline_input import simple_pipeline
    >>> [(op.name, op.stage, op.inputs, op.outputs) for op in backward_ops(simple_pipeline(3))]
    [("C'", 2, ('B:0',), ('d(B:0)',)), ("B'", 3, ('d(B:0)', 'A:0'), ('d(A:0)',)), ("A'", 4, ('d(A:0)', 'in'), ())]
    """
    last = max(map(stage_of, graph.layers))
    ops = tuple(_gradients(graph, last))
    _check_stages({stage_of(layer) for layer in graph.layers}, {2 * last - op.stage for op in ops})
    return ops


def _gradients(graph: PipelineGraph, last: int) -> Iterator[PipelineOp]:
    """From the loss back; a tensor that several layers read gets a part of its gradient from each."""
    n_readers = Counter(name for layer in graph.layers for name in layer.inputs)
    results = graph.results
    parts: dict[str, list[str]] = {}
    for layer in reversed(graph.layers):
        gradients = [part for name in layer.outputs for part in parts.get(name, [])]
        is_loss = stage_of(layer) == last and not results.isdisjoint(layer.outputs)
        if not gradients and not is_loss:
            continue
        made = []
        for name in layer.inputs:
            if graph.tensors[name].kind is TensorKind.ACTIVATION:
                made.append(f"d({name})" if n_readers[name] == 1 else f"d({name}) of {layer.name}")
                parts.setdefault(name, []).append(made[-1])
        stage, inputs = 2 * last - stage_of(layer), (*gradients, *layer.gradient_needs)
        yield PipelineOp(f"{layer.name}'", OpKind.MAIN, stage, device_of(layer), inputs, tuple(made), backward=True)


def _check_stages(forward: set[int], backward: set[int]) -> None:
    without = sorted(forward - backward)
    if without:
        raise BadInput(
            f"there must be as many backward stages as forward ones, {len(forward)}, got {len(backward)}: "
            f"no layer of stage {', '.join(map(str, without))} leads to the loss in the last stage; connect or drop it"
        )
