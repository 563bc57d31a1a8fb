"""A profile after a correction, `corrected`, and the examples that a correction is fitted to, `range_examples`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    classes: list[str] = []
    for layer in graph.layers:
        last = max((graph.tensors[index].producer for index in layer.inputs), default=-1)
        classes.append(layer.op if last < 0 else f"{layer.op} after {graph.layers[last].op}")
    return tuple(classes)


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
    options, examples = profile.options, []
    assert options is not None
    table = cost_table(profile, cluster.first(1), 1.0)
    weighted = _weighted(graph, options.precision)
    for whole in wholes:
        forward, backward = Counter[str](), Counter[str]()
        features = dict.fromkeys((RangeFeature.WEIGHTS, RangeFeature.ENTRY, RangeFeature.MOVED), 0)
        if far_memory and whole.layers.start > 0:
            features[RangeFeature.ENTRY] = profile.layers[whole.layers.start].input_bytes // MOVED_BYTES_PER_CYCLE
        for index in range(*whole.layers):
            layer, layer_class = profile.layers[index], weighted[index].layer_class
            features[RangeFeature.WEIGHTS] += weighted[index].read_cycles(options.batch_size)
            # Cycles that move tensors have a factor of their own, so the class of the layer has the others.
            moved = moved_cycles(layer) if far_memory and alone else 0
            features[RangeFeature.MOVED] += moved
            forward[layer_class] += layer.forward_cycles - moved
            backward[layer_class] += layer.backward_cycles
        memory = table.memory.by_category(*whole.layers, n_stash_entries=0)
        totals = _not_zero(forward), _not_zero(backward), memory, _not_zero(features)
        examples.append(RangeExample(whole, options.batch_size, *totals))
    return examples


def moved_cycles(layer: LayerProfile) -> int:
    """Cycles to read a layer's inputs and write its outputs at `MOVED_BYTES_PER_CYCLE`, at most all that it takes."""
    n_bytes = layer.input_bytes + layer.output_bytes - 2 * layer.carried_bytes
    return min(layer.forward_cycles, n_bytes // MOVED_BYTES_PER_CYCLE)


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
        factor_backward, memory = backward[weighted.layer_class], correction.memory
        of_temporary = memory.get(TEMPORARY, 1.0)
        return replace(
            layer,
            forward_cycles=round(layer.forward_cycles * forward[weighted.layer_class] + extra_cycles),
            backward_cycles=round(layer.backward_cycles * factor_backward),
            weight_cycles=round(layer.weight_cycles * factor_backward),
            shared={key: round(n_bytes * memory.get(category(key), 1.0)) for key, n_bytes in layer.shared.items()},
            exclusive={name: round(n_bytes * memory.get(name, 1.0)) for name, n_bytes in layer.exclusive.items()},
            temporary_bytes=round(layer.temporary_bytes * of_temporary),
            carried_bytes=round(layer.carried_bytes * of_temporary),
        )

    weighted = _weighted(graph, options.precision)
    return replace(profile, layers=labelled_layers(profile.layers, weighted).changed(corrected_layer))


class _Weighted(NamedTuple):
    """The class of a layer and the bytes of its weights at any batch size, which decide how it is corrected."""

    layer_class: str
    fixed_bytes: int
    sample_bytes: int

    def read_cycles(self, batch_size: int) -> int:
        """Cycles to read the weights at `WEIGHTS_BYTES_PER_CYCLE`, rounded down."""
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
