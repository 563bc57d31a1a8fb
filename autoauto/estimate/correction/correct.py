"""A model's profile with what ranges compiled whole taught: `corrected`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoauto.estimate.correction.features import layer_classes, moved_cycles, weight_units
from autoauto.estimate.correction.regression import factor, fit
from autoauto.records.correction import MOVED, WEIGHTS, Correction, Examples
from autoauto.records.layers import LayerGraph
from autoauto.records.profile import TEMPORARY, LayerProfile, ModelProfile, category


def corrected(profile: ModelProfile, graph: LayerGraph, correction: Correction) -> ModelProfile:
    """Every layer multiplied by its factors, so that sums of layers predict ranges compiled whole, rounded to integers.

    Cycles go by the layer's class, what it moves, its weights and the batch size, memory by category; what is carried
    past a layer has the factor of temporary memory. What is transferred stays, and so does what is kept for a backward
    pass.
    """
    if not correction.n_examples:
        return profile
    options = profile.options
    assert options is not None
    classes, whole = layer_classes(graph), correction.at_batch_size(options.batch_size)
    forward, backward = (
        {name: whole * factor(factors, name) for name in (*dict.fromkeys(classes), WEIGHTS)}
        for factors in (correction.forward, correction.backward)
    )
    more = [weight_units(graph, layer, options) * forward[WEIGHTS] for layer in graph.layers]
    if MOVED in correction.forward:
        moving = [whole * correction.forward[MOVED] - forward[name] for name in classes]
        more = [n + by * moved_cycles(alone) for n, by, alone in zip(more, moving, profile.layers, strict=True)]
    return replace(
        profile,
        layers=tuple(
            _layer(layer, forward[name], backward[name], cycles, correction.memory)
            for layer, name, cycles in zip(profile.layers, classes, more, strict=True)
        ),
    )


def _layer(
    layer: LayerProfile, forward: float, backward: float, more_cycles: float, memory: Mapping[str, float]
) -> LayerProfile:
    """`more_cycles` are besides what the factor of its class tells of the forward pass."""
    comes_and_goes = memory.get(TEMPORARY, 1.0)
    return replace(
        layer,
        forward_cycles=round(layer.forward_cycles * forward + more_cycles),
        backward_cycles=round(layer.backward_cycles * backward),
        weight_cycles=round(layer.weight_cycles * backward),
        shared={key: round(n_bytes * memory.get(category(key), 1.0)) for key, n_bytes in layer.shared.items()},
        exclusive={name: round(n_bytes * memory.get(name, 1.0)) for name, n_bytes in layer.exclusive.items()},
        temporary_bytes=round(layer.temporary_bytes * comes_and_goes),
        carried_bytes=round(layer.carried_bytes * comes_and_goes),
    )


REFIT = 2.0  # times as many examples as taught the last correction


def learned(store: Examples, refit: float = REFIT) -> Correction:
    """What the examples teach; fitted anew when there are `refit` times as many as the last time, and kept."""
    correction = store.correction()
    n_examples = sum(store.batch_sizes().values())
    if n_examples > correction.n_examples and n_examples >= refit * correction.n_examples:
        correction = fit(store.examples())
        store.keep(correction)
    return correction
