"""Apply a correction to a profile: `corrected`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoauto.estimate.correction.features import layer_classes, moved_cycles, weight_read_cycles
from autoauto.estimate.correction.regression import factor
from autoauto.records.correction import Correction, RangeFeature
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import TEMPORARY, LayerProfile, ModelProfile, category


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
    classes, batch_factor = layer_classes(graph), correction.at_batch_size(options.batch_size)
    forward, backward = (
        {name: batch_factor * factor(factors, name) for name in dict.fromkeys(classes)}
        for factors in (correction.forward, correction.backward)
    )
    weights = batch_factor * correction.features.get(RangeFeature.WEIGHTS, 0.0)
    extra_cycles = [weight_read_cycles(graph, layer, options) * weights for layer in graph.layers]
    if RangeFeature.MOVED in correction.features:
        # The moved part of a layer's cycles has the factor of MOVED instead of that of its class.
        changes = [batch_factor * correction.features[RangeFeature.MOVED] - forward[name] for name in classes]
        extra_cycles = [
            n + change * moved_cycles(layer)
            for n, change, layer in zip(extra_cycles, changes, profile.layers, strict=True)
        ]
    return replace(
        profile,
        layers=tuple(
            _layer(layer, forward[name], backward[name], cycles, correction.memory)
            for layer, name, cycles in zip(profile.layers, classes, extra_cycles, strict=True)
        ),
    )


def _layer(
    layer: LayerProfile, forward: float, backward: float, extra_cycles: float, memory: Mapping[str, float]
) -> LayerProfile:
    """One layer multiplied by its factors; `extra_cycles` are then added to its forward pass."""
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
