"""From a profile to the memory of every range, `range_memory`; limits and stashes of devices.

The state that an optimizer holds on every device is added to the profile: `with_optimizer_state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from autoauto.estimate.sums import prefix_sums
from autoauto.records.costs.memory import RangeMemory, SharedMemory
from autoauto.records.costs.profile import (
    GRADIENT,
    OUTLINED,
    PARAMETER,
    LayerProfile,
    ModelProfile,
    WeightUpdate,
    category,
)
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.units import MAX_EXACT, IntArray, Precision

T = TypeVar("T")

NO_LIMIT = 2**62  # more bytes than any range can need, and still an int64


def range_memory(profile: ModelProfile, recompute: bool = False) -> RangeMemory:
    """The memory of every range of the profile's layers; with `recompute` a stage stashes inputs and checkpoints only.

    Raises:
        BadInput: numbers are too large to be added exactly.
    """
    if profile.outlined:
        alone = range_memory(replace(profile, outlined=()), recompute)
        return replace(alone, outlined=range_memory(with_subgraphs(profile), recompute))
    layers = profile.layers
    return RangeMemory(
        exclusive_prefix_bytes=exclusive_prefix_bytes(profile),
        shared=shared_memory(profile),
        peak_bytes=_column(
            [layer.temporary_bytes + layer.carried_bytes for layer in layers], "temporary and carried bytes"
        ),
        activation_prefix_bytes=prefix_sums([layer.activation_bytes for layer in layers], "activation bytes"),
        stashed_input_bytes=_column([layer.stashed_input_bytes for layer in layers], "stashed input bytes"),
        input_bytes=_column([layer.input_bytes for layer in layers], "input bytes"),
        checkpoint_prefix_bytes=prefix_sums([layer.checkpoint_bytes for layer in layers], "checkpoint bytes"),
        recompute=recompute,
    )


def without_checkpoints(profile: ModelProfile) -> ModelProfile:
    """The profile for ranges that compute all of their forward pass again at once, as phases do."""
    return replace(profile, layers=_of_distinct(profile, lambda layer, _: replace(layer, checkpoint_bytes=0)))


def with_subgraphs(profile: ModelProfile) -> ModelProfile:
    """A profile of layers compiled so that all layers of one kind call one subgraph.

    What such layers store once has a shared key of the kind, and so has the copy of the weights that a call makes:

        layer      kind   exclusive                   shared
        query 0    a      control 5, parameter 80     control_a 5, outlined_a 80
        query 1    a      control 5, parameter 80     the same two
        pool       b      control 7, parameter 60     control_b 7: no equal, no call

    A range with a single layer of a kind that others have too copies nothing when it is compiled. Here it does, so that
    a longer range never needs less.
    """
    count = Counter(profile.kinds)

    def in_subgraph(layer: LayerProfile, kind: str) -> LayerProfile:
        return _in_subgraph(layer, kind, profile.outlined, copies=count[kind] > 1)

    return replace(profile, layers=_of_distinct(profile, in_subgraph), outlined=())


def _of_distinct(profile: ModelProfile, change: Callable[[LayerProfile, str], T]) -> tuple[T, ...]:
    """What `change` makes of every layer and its kind; layers of a kind that are one object are changed once."""
    known: dict[tuple[int, str], T] = {}
    for layer, kind in zip(profile.layers, profile.kinds, strict=True):
        if (id(layer), kind) not in known:
            known[id(layer), kind] = change(layer, kind)
    return tuple(known[id(layer), kind] for layer, kind in zip(profile.layers, profile.kinds, strict=True))


def _in_subgraph(layer: LayerProfile, kind: str, categories: Sequence[str], *, copies: bool) -> LayerProfile:
    once = {f"{name}_{OUTLINED}_{kind}": layer.exclusive.get(name, 0) for name in categories}
    if copies:
        tied = sum(n_bytes for key, n_bytes in layer.shared.items() if category(key) == PARAMETER)
        once[f"{OUTLINED}_{kind}"] = layer.exclusive.get(PARAMETER, 0) + tied
    exclusive = {name: n_bytes for name, n_bytes in layer.exclusive.items() if name not in categories}
    return replace(layer, shared={**layer.shared, **once}, exclusive=exclusive)


def _column(n_bytes: Sequence[int], what: str) -> IntArray:
    if max(n_bytes) > MAX_EXACT:
        raise BadInput(f"{what} of a layer must be at most 2**53, got {max(n_bytes)}")
    return np.array(n_bytes, dtype=np.int64)


def shared_memory(profile: ModelProfile) -> SharedMemory:
    """The shared keys of all layers, numbered; where layers differ in the bytes of a key, the largest counts.

    Raises:
        BadInput: the bytes are too many to be added exactly.
    """
    largest: dict[str, int] = {}
    for layer in {id(layer): layer for layer in profile.layers}.values():
        for key, n_bytes in layer.shared.items():
            largest[key] = max(n_bytes, largest.get(key, 0))
    prefix_sums(list(largest.values()), "shared bytes")
    number = {key: index for index, key in enumerate(largest)}
    keys = _of_distinct(profile, lambda layer, _: tuple(number[key] for key in layer.shared))
    return SharedMemory(keys, tuple(largest.values()), tuple(category(key) for key in largest))


def exclusive_prefix_bytes(profile: ModelProfile) -> dict[str, IntArray]:
    """Running sums of exclusive bytes, {category: (n + 1,)}."""
    names = dict.fromkeys(
        name for layer in {id(layer): layer for layer in profile.layers}.values() for name in layer.exclusive
    )
    return {
        name: prefix_sums([layer.exclusive.get(name, 0) for layer in profile.layers], f"{name} bytes") for name in names
    }


def memory_limit_bytes(cluster: Cluster, planning_proportion: float) -> IntArray:
    """Memory that a planned stage may fill on each device, (P,): `int(memory * memoryProportion)` [auto-pipeline].

    Raises:
        BadInput: `planning_proportion` is not in (0, 1].
    """
    if not 0.0 < planning_proportion <= 1.0:
        raise BadInput(f"planning_proportion must be in (0, 1], got {planning_proportion}; try 0.85")
    limits = [int(device.memory_bytes * planning_proportion) for device in cluster.devices]
    return np.array([min(limit, NO_LIMIT) for limit in limits], dtype=np.int64)


def is_training(profile: ModelProfile, in_flight: Sequence[int] | None, recompute: bool = False) -> bool:
    """Whether there is a backward pass: by the profile's options, or without options if `in_flight` is given.

    Raises:
        BadInput: the profile is for inference, and recomputation or several micro-batches in flight are asked for.
    """
    training = in_flight is not None if profile.options is None else profile.options.training
    if not training and (recompute or max(in_flight or (1,)) > 1):
        raise BadInput(
            f"recompute and in_flight above 1 need a profile for training, got one of {profile.model} for inference; "
            "profile the model for training"
        )
    return training


def stash_entries(n_devices: int, in_flight: Sequence[int] | None) -> tuple[int, ...]:
    """Micro-batches whose activations each device stashes, besides those of the current one.

    Raises:
        BadInput: `in_flight` is not a count from 1 for every device.

    >>> stash_entries(4, (4, 3, 2, 1)), stash_entries(2, None)
    ((3, 2, 1, 0), (0, 0))
    """
    counts = (1,) * n_devices if in_flight is None else tuple(in_flight)
    if len(counts) != n_devices or min(counts) < 1:
        raise BadInput(f"in_flight needs a count from 1 for each of {n_devices} devices, got {list(counts)}")
    return tuple(count - 1 for count in counts)


def with_optimizer_state(profile: ModelProfile, update: WeightUpdate, precision: Precision) -> ModelProfile:
    """A profile with the optimizer's states added to every layer's weights; shared weights have shared states.

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
    """Bytes of the optimizer's states for the entries of a category, also under shared keys "category_identity"."""
    return {
        key.replace(source, name, 1): n
        for key, size in n_bytes.items()
        if category(key) == source
        for name, n in update.state_bytes(size, precision).items()
    }
