"""A profile with what the optimizer holds on the devices, `with_optimizer_state`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autoauto.records.profile import GRADIENT, PARAMETER, LayerProfile, ModelProfile, WeightUpdate, category
from autoauto.records.units import Precision


def with_optimizer_state(profile: ModelProfile, update: WeightUpdate, precision: Precision) -> ModelProfile:
    """The same profile with the states of every layer's weights; what several layers share is shared with its states.

    Args:
        profile: in training.
        update: has the states.
        precision: of gradients and weights.
    """
    if not update.state_bytes(1, precision):
        return profile
    sized = any(category(key) == GRADIENT for layer in profile.layers for key in {**layer.shared, **layer.exclusive})
    source = GRADIENT if sized else PARAMETER  # profiles of other programs may have no gradients
    layers = (_layer(layer, source, update, precision) for layer in profile.layers)
    return replace(profile, layers=tuple(layers))


def _layer(layer: LayerProfile, source: str, update: WeightUpdate, precision: Precision) -> LayerProfile:
    return replace(
        layer,
        shared={**layer.shared, **_states(layer.shared, source, update, precision)},
        exclusive={**layer.exclusive, **_states(layer.exclusive, source, update, precision)},
    )


def _states(n_bytes: Mapping[str, int], source: str, update: WeightUpdate, precision: Precision) -> dict[str, int]:
    """The states of what is under a category or under its shared keys "category_identity"."""
    return {
        key.replace(source, name, 1): n
        for key, size in n_bytes.items()
        if category(key) == source
        for name, n in update.state_bytes(size, precision).items()
    }
