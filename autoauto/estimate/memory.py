"""From a profile to the memory of every range, `range_memory`; limits and stashes of devices.

The state that an optimizer holds on every device is added to the profile, `with_optimizer_state`, and to what was
compiled whole, `stage_with_optimizer_state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from autoauto.estimate.distinct import distinct_layers, labelled_layers
from autoauto.estimate.sums import prefix_sums
from autoauto.records.costs.memory import RangeMemory, SharedMemory, StageBytes, alone_bytes
from autoauto.records.costs.profile import (
    GRADIENT,
    OUTLINED,
    PARAMETER,
    LayerProfile,
    ModelProfile,
    WeightUpdate,
    category,
    gradient_bytes,
)
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.units import IntArray, Precision

NO_LIMIT = 2**62  # more bytes than any range can need, and still an int64


def range_memory(profile: ModelProfile, recompute: bool = False) -> RangeMemory:
    """The memory of every range of the profile's layers; with `recompute` a stage stashes inputs and checkpoints only.

    Raises:
        BadInput: numbers are too large to be added exactly.
    """
    if profile.outlined:
        alone = range_memory(replace(profile, outlined=()), recompute)
        return replace(alone, outlined=range_memory(with_subgraphs(profile), recompute))
    layers = distinct_layers(profile)
    return RangeMemory(
        exclusive_prefix_bytes=exclusive_prefix_bytes(profile),
        shared=shared_memory(profile),
        peak_bytes=layers.column(
            lambda layer: layer.temporary_bytes + layer.carried_bytes, "temporary and carried bytes"
        ),
        activation_prefix_bytes=layers.prefix_sums(lambda layer: layer.activation_bytes, "activation bytes"),
        stashed_input_bytes=layers.column(lambda layer: layer.stashed_input_bytes, "stashed input bytes"),
        input_bytes=layers.column(lambda layer: layer.input_bytes, "input bytes"),
        checkpoint_prefix_bytes=layers.prefix_sums(lambda layer: layer.checkpoint_bytes, "checkpoint bytes"),
        recompute=recompute,
    )


def without_checkpoints(profile: ModelProfile) -> ModelProfile:
    """The profile for ranges that compute all of their forward pass again at once, as phases do."""
    if not any(layer.checkpoint_bytes for layer in profile.layers):
        return profile
    return replace(
        profile, layers=distinct_layers(profile).changed(lambda layer, _: replace(layer, checkpoint_bytes=0))
    )


def with_subgraphs(profile: ModelProfile) -> ModelProfile:
    """A profile of layers compiled so that all layers of one kind call one subgraph.

    What such layers store once has a shared key of the kind, and so has the copy of the weights that a call makes:

        layer      kind   exclusive                   shared
        query 0    a      control 5, parameter 80     control_a 5, outlined_a 80
        query 1    a      control 5, parameter 80     the same two
        pool       b      control 7, parameter 60     control_b 7: no equal, no call

    A range with one layer of a kind copies nothing when it is compiled, even if the model has more layers of that kind.
    Here it copies, so that a longer range never needs less than a shorter one.
    """
    count = Counter(profile.kinds)

    def in_subgraph(layer: LayerProfile, kind: str) -> LayerProfile:
        once = {f"{name}_{OUTLINED}_{kind}": layer.exclusive.get(name, 0) for name in profile.outlined}
        if count[kind] > 1:  # a call copies its weights
            tied = sum(n_bytes for key, n_bytes in layer.shared.items() if category(key) == PARAMETER)
            once[f"{OUTLINED}_{kind}"] = layer.exclusive.get(PARAMETER, 0) + tied
        exclusive = {name: n_bytes for name, n_bytes in layer.exclusive.items() if name not in profile.outlined}
        return replace(layer, shared={**layer.shared, **once}, exclusive=exclusive)

    return replace(profile, layers=labelled_layers(profile.layers, profile.kinds).changed(in_subgraph), outlined=())


def shared_memory(profile: ModelProfile) -> SharedMemory:
    """The shared keys of all layers, numbered, each with its largest bytes; raises as `prefix_sums`."""
    layers = distinct_layers(profile)
    largest: dict[str, int] = {}
    for layer in layers.layers:
        for key, n_bytes in layer.shared.items():
            largest[key] = max(n_bytes, largest.get(key, 0))
    prefix_sums(list(largest.values()), "shared bytes")  # refuses too many
    number = {key: index for index, key in enumerate(largest)}
    keys = [tuple(map(number.__getitem__, layer.shared)) for layer in layers.layers]
    return SharedMemory(layers.spread(keys), tuple(largest.values()), tuple(map(category, largest)))


def exclusive_prefix_bytes(profile: ModelProfile) -> dict[str, IntArray]:
    """Running sums of exclusive bytes, {category: (n + 1,)}."""
    layers = distinct_layers(profile)
    names = dict.fromkeys(chain.from_iterable(layer.exclusive for layer in layers.layers))

    def prefix(name: str) -> IntArray:
        return layers.prefix_sums(lambda layer: layer.exclusive.get(name, 0), f"{name} bytes")

    return {name: prefix(name) for name in names}


def memory_limit_bytes(cluster: Cluster, planning_proportion: float) -> IntArray:
    """Memory that a planned stage may fill on each device, (P,): `int(memory * memoryProportion)` [auto-pipeline].

    Raises:
        BadInput: `planning_proportion` is not in (0, 1].
    """
    if not 0.0 < planning_proportion <= 1.0:
        raise BadInput(f"planning_proportion must be in (0, 1], got {planning_proportion}; try 0.85")
    limits = [min(int(device.memory_bytes * planning_proportion), NO_LIMIT) for device in cluster.devices]
    return np.array(limits, dtype=np.int64)


def is_training(profile: ModelProfile, in_flight: Sequence[int] | None, recompute: bool = False) -> bool:
    """True if there is a backward pass: by the profile's options, or without options if `in_flight` is given.

    Raises:
        BadInput: the profile is for inference, and recomputation or several micro-batches in flight are asked for.
    """
    training = in_flight is not None
    if profile.options is not None:
        training = profile.options.training
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
    counts = (1,) * n_devices
    if in_flight is not None:
        counts = tuple(in_flight)
    if len(counts) != n_devices or min(counts) < 1:
        raise BadInput(f"in_flight needs a count from 1 for each of {n_devices} devices, got {list(counts)}")
    return tuple(count - 1 for count in counts)


def with_optimizer_state(profile: ModelProfile, update: WeightUpdate, precision: Precision) -> ModelProfile:
    """A profile with the optimizer's states added to every layer's weights, and the memory in which they are updated.

    Shared weights have shared states. The update of a layer's weights counts beside the activations that the stage has
    stashed before the layer, although these are free by then: a stage may be estimated to need more than it does.
    """
    if not update.state_bytes(1, precision) and not update.working_bytes(1, precision):
        return profile
    source = gradient_category(profile.layers)

    def with_state(layer: LayerProfile, _: None) -> LayerProfile:
        working_bytes = update_bytes(layer, source, update, precision) - layer.carried_bytes
        return replace(
            layer,
            shared=dict(layer.shared) | _states(layer.shared, source, update, precision),
            exclusive=dict(layer.exclusive) | _states(layer.exclusive, source, update, precision),
            temporary_bytes=max(layer.temporary_bytes, working_bytes),
        )

    return replace(profile, layers=distinct_layers(profile).changed(with_state))


def stage_with_optimizer_state(
    stage: StageBytes[int],
    own: LayerRange,
    layers: Sequence[LayerProfile],
    update: WeightUpdate,
    precision: Precision,
) -> StageBytes[int]:
    """A stage that was compiled whole, with what `with_optimizer_state` adds to its layers.

    A compiler knows the layers of the stage only, so weights that other layers read too are exclusive in its output. A
    device holds them once.
    """
    source = gradient_category(layers)
    tied: dict[str, int] = {}
    temporary_bytes = stage.temporary_bytes
    for layer in layers[slice(*own)]:
        tied.update((key, n) for key, n in layer.shared.items() if category(key) in (PARAMETER, GRADIENT))
        temporary_bytes = max(temporary_bytes, update_bytes(layer, source, update, precision))
    tied |= _states(tied, GRADIENT, update, precision)
    exclusive = dict(stage.exclusive_bytes)
    exclusive.update(update.state_bytes(gradient_bytes(alone_bytes(stage)), precision))
    for key, n_bytes in tied.items():
        exclusive[category(key)] -= n_bytes  # which the compiler counted there
    shared = dict(stage.shared_bytes) | tied
    return stage._replace(exclusive_bytes=exclusive, shared_bytes=shared, temporary_bytes=temporary_bytes)


def gradient_category(layers: Sequence[LayerProfile]) -> str:
    """The category that says how large gradients are; profiles of other programs may have parameters only."""
    for layer in layers:
        if any(category(key) == GRADIENT for key in chain(layer.shared, layer.exclusive)):
            return GRADIENT
    return PARAMETER


def update_bytes(layer: LayerProfile, source: str, update: WeightUpdate, precision: Precision) -> int:
    """Working bytes while a device updates the largest weights of a layer; it updates one tensor after the other."""
    entries = chain(layer.shared.items(), layer.exclusive.items())
    sizes = [n_bytes for key, n_bytes in entries if category(key) == source]
    return update.working_bytes(max(sizes, default=0), precision)


def _states(n_bytes: Mapping[str, int], source: str, update: WeightUpdate, precision: Precision) -> dict[str, int]:
    """Bytes of the optimizer's states for the entries of a category, also under shared keys "category_identity"."""
    states: dict[str, int] = {}
    for key, size in n_bytes.items():
        if category(key) == source:
            for name, state_bytes in update.state_bytes(size, precision).items():
                states[key.replace(source, name, 1)] = state_bytes
    return states
