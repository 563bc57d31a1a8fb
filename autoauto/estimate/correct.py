"""A profile after a correction, `corrected`, and the examples that a correction is fitted to, `range_examples`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

from autoauto.estimate.distinct import labelled_layers
from autoauto.estimate.regression import factor
from autoauto.estimate.table import cost_table
from autoauto.records.costs.correction import (
    MOVED_BYTES_PER_CYCLE,
    WEIGHTS_BYTES_PER_CYCLE,
    Correction,
    RangeExample,
    RangeFeature,
    WholeRange,
)
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import TEMPORARY, LayerProfile, ModelProfile, category
from autoauto.records.hardware import Cluster
from autoauto.records.layers import Layer, LayerGraph
from autoauto.records.units import Precision, fixed_and_per_sample

K = TypeVar("K")


@lru_cache(maxsize=16)
def layer_classes(graph: LayerGraph) -> tuple[str, ...]:
    """The class of every layer: its operator and that of the layer before it in the data flow, if any.

    How a compiler fuses layers depends on both: a Relu may become part of a Conv before it, but not of an Add.
    """
    return tuple(_class(graph, layer) for layer in graph.layers)


def _class(graph: LayerGraph, layer: Layer) -> str:
    producers = [graph.tensors[index].producer for index in layer.inputs]
    last = max(producers, default=-1)
    return layer.op if last < 0 else f"{layer.op} after {graph.layers[last].op}"


def range_examples(
    graph: LayerGraph,
    profile: ModelProfile,
    cluster: Cluster,
    wholes: Iterable[WholeRange],
    far_memory: bool = False,
    alone: bool = True,
) -> list[RangeExample]:
    """An example for every range that was compiled whole: its cost, and the costs of its layers by `profile`.

    The profile has the compile options of the ranges, and layers that were measured `alone`, or in their model. With
    `far_memory` tensors lie in a memory far from the core, as on the host; the cycles that move them are then the
    features `MOVED`, of layers alone, and `ENTRY` of `RangeFeature`.
    """
    classes, table = layer_classes(graph), cost_table(profile, cluster.first(1), 1.0)
    return [_example(graph, classes, profile, table, whole, far_memory, alone) for whole in wholes]


def weight_read_cycles(graph: LayerGraph, layer: Layer, options: CompileOptions) -> int:
    """Cycles to read a layer's weights at `WEIGHTS_BYTES_PER_CYCLE`, rounded down."""
    n_bytes = sum(graph.tensors[index].n_bytes(options.batch_size, options.precision) for index in layer.weights)
    return n_bytes // WEIGHTS_BYTES_PER_CYCLE


def moved_cycles(layer: LayerProfile) -> int:
    """Cycles to read a layer's inputs and write its outputs at `MOVED_BYTES_PER_CYCLE`, at most all that it takes."""
    n_bytes = layer.input_bytes + layer.output_bytes - 2 * layer.carried_bytes
    return min(layer.forward_cycles, n_bytes // MOVED_BYTES_PER_CYCLE)


def _example(
    graph: LayerGraph,
    classes: Sequence[str],
    profile: ModelProfile,
    table: CostTable,
    whole: WholeRange,
    far_memory: bool,
    measured_alone: bool,
) -> RangeExample:
    options = profile.options
    assert options is not None
    forward, backward = Counter[str](), Counter[str]()
    features = dict.fromkeys((RangeFeature.WEIGHTS, RangeFeature.ENTRY, RangeFeature.MOVED), 0)
    if far_memory and whole.layers.start > 0:
        features[RangeFeature.ENTRY] = profile.layers[whole.layers.start].input_bytes // MOVED_BYTES_PER_CYCLE
    for index in range(*whole.layers):
        layer, layer_class = profile.layers[index], classes[index]
        features[RangeFeature.WEIGHTS] += weight_read_cycles(graph, graph.layers[index], options)
        # Cycles that move tensors have a factor of their own, so the class of the layer has the others.
        moved = moved_cycles(layer) if far_memory and measured_alone else 0
        features[RangeFeature.MOVED] += moved
        forward[layer_class] += layer.forward_cycles - moved
        backward[layer_class] += layer.backward_cycles
    memory = table.memory.by_category(*whole.layers, n_stash_entries=0)
    return RangeExample(whole, options.batch_size, _not_zero(forward), _not_zero(backward), memory, _not_zero(features))


def _not_zero(totals: Mapping[K, int]) -> dict[K, int]:
    return {name: total for name, total in totals.items() if total}


def corrected(profile: ModelProfile, graph: LayerGraph, correction: Correction) -> ModelProfile:
    """Every layer multiplied by its factors and rounded, so that sums of layers predict ranges compiled whole.

    Cycles have factors by the layer's class, for the tensors that it moves, for its weights and for the batch size.
    Memory has factors by category; tensors carried past a layer have the factor of temporary memory. Transfers and the
    stash of a backward pass do not change. The entry overhead belongs to ranges: `with_entry_overhead` adds it.
    """
    if not correction.n_examples:
        return profile
    options = profile.options
    assert options is not None
    batch_factor = correction.at_batch_size(options.batch_size)
    classes = dict.fromkeys(layer_classes(graph))
    forward = {name: batch_factor * factor(correction.forward, name) for name in classes}
    backward = {name: batch_factor * factor(correction.backward, name) for name in classes}
    weights = batch_factor * correction.features.get(RangeFeature.WEIGHTS, 0.0)
    moved = correction.features.get(RangeFeature.MOVED)

    def corrected_layer(layer: LayerProfile, weighted: _Weighted) -> LayerProfile:
        extra_cycles = weighted.read_cycles(options.batch_size) * weights
        if moved is not None:  # of the layer's cycles that part has this factor instead of that of its class
            extra_cycles += (batch_factor * moved - forward[weighted.layer_class]) * moved_cycles(layer)
        factors = forward[weighted.layer_class], backward[weighted.layer_class]
        return _layer(layer, *factors, extra_cycles, correction.memory)

    weighted = _weighted(graph, options.precision)
    return replace(profile, layers=labelled_layers(profile, weighted).changed(corrected_layer))


class _Weighted(NamedTuple):
    """The class of a layer and the bytes of its weights at any batch size, which decide how it is corrected."""

    layer_class: str
    fixed_bytes: int
    sample_bytes: int

    def read_cycles(self, batch_size: int) -> int:
        return (self.fixed_bytes + batch_size * self.sample_bytes) // WEIGHTS_BYTES_PER_CYCLE


@lru_cache(maxsize=16)
def _weighted(graph: LayerGraph, precision: Precision) -> tuple[_Weighted, ...]:
    """Class and weights of every layer; equal ones are one object."""

    def weighted(layer: Layer, layer_class: str) -> _Weighted:
        tensors = [graph.tensors[index] for index in layer.weights]
        n_bytes = fixed_and_per_sample(lambda n: sum(tensor.n_bytes(n, precision) for tensor in tensors))
        return _Weighted(layer_class, *n_bytes)

    of_layers = tuple(map(weighted, graph.layers, layer_classes(graph)))
    same = {each: each for each in of_layers}
    return tuple(map(same.__getitem__, of_layers))


def _layer(
    layer: LayerProfile, forward: float, backward: float, extra_cycles: float, memory: Mapping[str, float]
) -> LayerProfile:
    temporary = memory.get(TEMPORARY, 1.0)
    return replace(
        layer,
        forward_cycles=round(layer.forward_cycles * forward + extra_cycles),
        backward_cycles=round(layer.backward_cycles * backward),
        weight_cycles=round(layer.weight_cycles * backward),
        shared={key: round(n_bytes * memory.get(category(key), 1.0)) for key, n_bytes in layer.shared.items()},
        exclusive={name: round(n_bytes * memory.get(name, 1.0)) for name, n_bytes in layer.exclusive.items()},
        temporary_bytes=round(layer.temporary_bytes * temporary),
        carried_bytes=round(layer.carried_bytes * temporary),
    )
