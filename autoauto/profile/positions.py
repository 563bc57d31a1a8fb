"""Layers in their model, made of the same layers alone and of the tensors around them: `Positions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from autoauto.profile.liveness import AROUND, Surroundings, surroundings
from autoauto.profile.variants import Variants
from autoauto.records.costs.options import CompileOptions, PlainSession
from autoauto.records.costs.profile import GRADIENT, PARAMETER, LayerProfile, category
from autoauto.records.costs.stash import stash_of
from autoauto.records.layers import Derivative, Layer, LayerGraph
from autoauto.records.units import fixed_and_per_sample

_SharedWeights = tuple[tuple[str, int, int], ...]
"""Shared keys, each with its bytes as a fixed part and a part per sample."""


class _Position(NamedTuple):
    """The variant of layers, and the weights that layers at other positions read too."""

    variant: str
    shared_weights: _SharedWeights


class _Distinct(NamedTuple):
    """The positions of all layers: distinct ones, with the bytes around each, and by layer the number of its own."""

    positions: list[_Position]
    around: Surroundings
    of_layers: list[int]


class Positions:
    """The positions of the layers of a model, for all options.

    The batch size is none of these, since bytes grow evenly with it, and neither is how a device computes.
    """

    def __init__(self, graph: LayerGraph) -> None:
        self._graph = graph
        self._n_readers = Counter(index for layer in graph.layers for index in layer.weights)
        self._distinct: dict[CompileOptions, _Distinct] = {}

    def in_model(
        self, variants: Variants, options: CompileOptions, alone: Mapping[str, LayerProfile]
    ) -> tuple[LayerProfile, ...]:
        """All layers in their model, by their variants alone; equal layers are one object, as of BERT's encoders."""
        any_size = replace(options, batch_size=1, session=PlainSession())
        if any_size not in self._distinct:
            self._distinct[any_size] = self._distinct_at(variants, any_size)
        distinct = self._distinct[any_size]
        size = options.batch_size
        around = (distinct.around.fixed_bytes + size * distinct.around.sample_bytes).tolist()
        layers = []
        for position, row in zip(distinct.positions, around, strict=True):
            around_bytes = dict(zip(AROUND, row, strict=True))
            shared = {key: fixed + size * per_sample for key, fixed, per_sample in position.shared_weights}
            layers.append(_with_tensors_around(alone[position.variant], shared, around_bytes))
        return tuple(layers[number] for number in distinct.of_layers)

    def _distinct_at(self, variants: Variants, options: CompileOptions) -> _Distinct:
        """The layers of a variant among equal tensors are one position, whatever the batch size."""
        around = surroundings(stash_of(self._graph, options), options.precision)
        number: dict[object, int] = {}
        distinct: list[_Position] = []
        of_layers: list[int] = []
        first: list[int] = []  # layer of each position
        for index, (layer, variant) in enumerate(zip(self._graph.layers, variants.of_layers, strict=True)):
            position = _Position(variant, self._shared_weights(variants.passes, layer, options))
            key = position, around.fixed_bytes[index].tobytes(), around.sample_bytes[index].tobytes()
            if key not in number:
                number[key] = len(distinct)
                distinct.append(position)
                first.append(index)
            of_layers.append(number[key])
        return _Distinct(distinct, Surroundings(around.fixed_bytes[first], around.sample_bytes[first]), of_layers)

    def _shared_weights(self, passes: Derivative, layer: Layer, options: CompileOptions) -> _SharedWeights:
        """Weights that other layers read too, and their gradients: stored once in a range, so they count as shared."""
        parameters = passes.parameters(layer) if options.training else ()
        shared = []
        for name, weights in ((PARAMETER, layer.weights), (GRADIENT, parameters)):
            for index in weights:
                if self._n_readers[index] > 1:
                    stored_bytes = partial(self._graph.tensors[index].stored_bytes, precision=options.precision)
                    shared.append((f"{name}_{index}", *fixed_and_per_sample(stored_bytes)))
        return tuple(shared)


def _with_tensors_around(
    alone: LayerProfile, shared_weights: Mapping[str, int], around: Mapping[str, int]
) -> LayerProfile:
    """A layer in its model: weights that other layers read too are shared bytes, no exclusive ones."""
    exclusive = dict(alone.exclusive)
    for key, n_bytes in shared_weights.items():
        name = category(key)
        exclusive[name] = exclusive.get(name, 0) - n_bytes
    return replace(alone, shared={**alone.shared, **shared_weights}, exclusive=exclusive, **around)
