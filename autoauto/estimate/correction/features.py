"""What the regression knows about a range: the cycles of its layers alone by class, its memory by category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from autoauto.estimate.table import cost_table
from autoauto.records.correction import ENTERED, MOVED, MOVED_SCALE, WEIGHTS, WEIGHTS_SCALE, RangeExample, WholeRange
from autoauto.records.cost import CostTable
from autoauto.records.hardware import Cluster
from autoauto.records.layers import Layer, LayerGraph
from autoauto.records.profile import CompileOptions, LayerProfile, ModelProfile


def layer_classes(graph: LayerGraph) -> tuple[str, ...]:
    """The class of every layer: its operator and that of the layer before it in the data flow, if any.

    What a compiler does across layers depends on both: a Relu after a Conv may be part of it, one after an Add not.
    """
    return tuple(_class(graph, layer) for layer in graph.layers)


def _class(graph: LayerGraph, layer: Layer) -> str:
    producers = [graph.tensors[index].producer for index in layer.inputs]
    last = max(producers, default=-1)
    return layer.op if last < 0 else f"{layer.op} after {graph.layers[last].op}"


def range_examples(
    graph: LayerGraph, profile: ModelProfile, cluster: Cluster, wholes: Iterable[WholeRange], far: bool = False
) -> list[RangeExample]:
    """Ranges beside what their layers took alone, by the profile of the same options.

    With `far`, tensors lie in a memory far from the core, and what moves them is told apart.
    """
    classes, table = layer_classes(graph), cost_table(profile, cluster.first(1), 1.0)
    return [_example(graph, classes, profile, table, whole, far) for whole in wholes]


def weight_units(graph: LayerGraph, layer: Layer, options: CompileOptions) -> int:
    """The bytes of a layer's weights over `WEIGHTS_SCALE`, rounded down."""
    n_bytes = sum(graph.tensors[index].n_bytes(options.batch_size, options.precision) for index in layer.weights)
    return n_bytes // WEIGHTS_SCALE


def moved_cycles(layer: LayerProfile) -> int:
    """What would suffice to read and write all that the layer does, of its cycles alone."""
    n_bytes = layer.input_bytes + layer.output_bytes - 2 * layer.carried_bytes
    return min(layer.forward_cycles, n_bytes // MOVED_SCALE)


def _example(
    graph: LayerGraph, classes: Sequence[str], profile: ModelProfile, table: CostTable, whole: WholeRange, far: bool
) -> RangeExample:
    options = profile.options
    assert options is not None
    alone = list(zip(classes[slice(*whole.layers)], profile.layers[slice(*whole.layers)], strict=True))
    weights = [(WEIGHTS, weight_units(graph, layer, options)) for layer in graph.layers[slice(*whole.layers)]]
    moved = [(name, moved_cycles(layer)) for name, layer in alone] if far else []
    entered = profile.layers[whole.layers.start].input_bytes // MOVED_SCALE if far and whole.layers.start else 0
    more = (*weights, (ENTERED, entered), *((name, -n) for name, n in moved), *((MOVED, n) for _, n in moved))
    return RangeExample(
        whole,
        options.batch_size,
        _by_class(chain(((name, layer.forward_cycles) for name, layer in alone), more)),
        _by_class((name, layer.backward_cycles) for name, layer in alone),
        table.memory_bytes(*whole.layers),
    )


def _by_class(cycles: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, n_cycles in cycles:
        totals[name] = totals.get(name, 0) + n_cycles
    return {name: total for name, total in totals.items() if total}
