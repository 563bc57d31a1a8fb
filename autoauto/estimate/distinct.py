"""The layers of a profile that differ, `DistinctLayers`: what depends on a layer alone is found once for all alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from autoauto.estimate.sums import prefix_sums
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.units import MAX_EXACT, IntArray

L = TypeVar("L", bound=Hashable)
T = TypeVar("T")


class DistinctLayers(NamedTuple, Generic[L]):
    """The different layers of a profile: those of equal encoders of BERT are one object.

        layers       a  b  b  c  b         layers that are one object in the profile, with one label
        of_layers    0  1  1  2  1

    Attributes:
        layers: the different ones, in the order of their first places.
        labels: of each, what else its layers have in common.
        of_layers: (n,) by layer of the profile the number of its own.
    """

    layers: list[LayerProfile]
    labels: list[L]
    of_layers: IntArray

    def column(self, value: Callable[[LayerProfile], int], what: str) -> IntArray:
        """A value of every layer, (n,), `what` in errors; raises BadInput if one is too large to be added exactly."""
        values = [value(layer) for layer in self.layers]
        if max(values) > MAX_EXACT:
            raise BadInput(f"{what} of a layer must be at most 2**53, got {max(values)}")
        return np.array(values, dtype=np.int64)[self.of_layers]

    def prefix_sums(self, value: Callable[[LayerProfile], int], what: str) -> IntArray:
        """Running sums of a value of every layer, (n + 1,); errors are those of `prefix_sums`."""
        values = [value(layer) for layer in self.layers]
        if not any(values):  # as most columns of inference
            return np.zeros(len(self.of_layers) + 1, dtype=np.int64)
        if max(values) * len(self.of_layers) > MAX_EXACT:  # may be too many, which is told exactly
            return prefix_sums([values[number] for number in self.of_layers.tolist()], what)
        return np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(np.array(values, dtype=np.int64)[self.of_layers]))
        )

    def spread(self, values: Sequence[T]) -> tuple[T, ...]:
        """Values of the different layers, repeated for every layer, (n,)."""
        return tuple(map(values.__getitem__, self.of_layers.tolist()))

    def changed(self, change: Callable[[LayerProfile, L], LayerProfile]) -> tuple[LayerProfile, ...]:
        """All layers after a change of each of the different ones, given its label; alike layers stay one object."""
        return self.spread([change(*each) for each in zip(self.layers, self.labels, strict=True)])


def distinct_layers(profile: ModelProfile) -> DistinctLayers[None]:
    """The objects among the layers of a profile; those of the last profiles are known."""
    return _distinct(_Same(profile.layers))


class _Same:
    """Layers as a key of `lru_cache`, equal only to the same object: comparing thousands of layers takes long."""

    __slots__ = ("layers",)

    def __init__(self, layers: tuple[LayerProfile, ...]) -> None:
        self.layers = layers

    def __hash__(self) -> int:
        return id(self.layers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.layers is other.layers


@lru_cache(maxsize=4)
def _distinct(same: _Same) -> DistinctLayers[None]:
    return labelled_layers(same.layers, [None] * len(same.layers))


def labelled_layers(layers: Sequence[LayerProfile], labels: Sequence[L]) -> DistinctLayers[L]:
    """The objects among layers; those of one object differ where their labels do, (n,)."""
    number: dict[tuple[int, L], int] = {}
    different: list[LayerProfile] = []
    of_layers: list[int] = []
    for layer, label in zip(layers, labels, strict=True):
        key = id(layer), label
        if key not in number:
            number[key] = len(different)
            different.append(layer)
        of_layers.append(number[key])
    return DistinctLayers(different, [label for _, label in number], np.array(of_layers, dtype=np.int64))


class PrefixCycles(NamedTuple):
    """Running sums of cycles over layers, (n + 1,): of all, of the backward pass, and of the gradients of weights."""

    compute: IntArray
    backward: IntArray
    weight: IntArray


def prefix_cycles(layers: DistinctLayers[None], recompute: bool) -> PrefixCycles:
    """Cycles of layers; with `recompute` the backward pass has a second forward pass; raises as `prefix_sums`."""

    def backward(layer: LayerProfile) -> int:
        return layer.backward_cycles + recompute * layer.forward_cycles

    return PrefixCycles(
        layers.prefix_sums(lambda layer: layer.forward_cycles + backward(layer), "cycles"),
        layers.prefix_sums(backward, "backward cycles"),
        layers.prefix_sums(lambda layer: layer.weight_cycles, "weight cycles"),
    )
