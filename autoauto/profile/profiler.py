"""Compile every kind of layer once, alone, and profile a model: `profile_model`, `check_batch_size`, `isolate`.

Batch sizes between two that were compiled are interpolated: `interpolate`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from autoauto.profile.cache import ProfileCache
from autoauto.profile.liveness import carried, checkpointed, gradient_pattern, stashed
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import (
    GRADIENT,
    PARAMETER,
    PROFILE_SCHEMA,
    CompiledRange,
    LayerProfile,
    ModelProfile,
    category,
)
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, Layer, LayerGraph, LayerRange, Tensor, derivative
from autoauto.records.target import Target, traits_of

Progress = Callable[[int, int], None]
"""Called with the number of finished and of all compiles."""


def interpolate(low: LayerProfile, high: LayerProfile, share: Fraction) -> LayerProfile:
    """One layer, compiled alone, interpolated linearly at `share` of the way from `low` to `high`.

    A key that is missing in one of them has 0 bytes there. Numbers are rounded up: memory is not underestimated. The
    tensors around the layer in its model are not interpolated: their sizes are exact at any batch size.

    >>> low = LayerProfile(10, 0, {"code_a": 4}, {"parameter": 8}, 100, 0, 0, 0, 0)
    >>> high = LayerProfile(17, 0, {"code_a": 4}, {"parameter": 8}, 400, 0, 0, 0, 0)
    >>> third = interpolate(low, high, Fraction(1, 3))
    >>> third.forward_cycles, third.temporary_bytes, dict(third.exclusive)
    (13, 200, {'parameter': 8})
    """

    def between(first: int, second: int) -> int:
        return -((first * (share - 1) - second * share) // 1)

    def by_key(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
        return {key: between(first.get(key, 0), second.get(key, 0)) for key in {**first, **second}}

    return LayerProfile(
        forward_cycles=between(low.forward_cycles, high.forward_cycles),
        backward_cycles=between(low.backward_cycles, high.backward_cycles),
        shared=by_key(low.shared, high.shared),
        exclusive=by_key(low.exclusive, high.exclusive),
        temporary_bytes=between(low.temporary_bytes, high.temporary_bytes),
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=between(low.weight_cycles, high.weight_cycles),
    )


def profile_model(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: ProfileCache,
    progress: Progress | None = None,
) -> ModelProfile:
    """Profile all layers of `graph` for one device at one batch size.

    Every kind is compiled once, unless `cache` has it; for training once more where layers of a kind differ in which of
    their inputs need gradients. When the target compiles at two other batch sizes, every number is interpolated between
    them. Layers share the bytes to which the target gives equal keys: equal codelets, which Poplar shares, or all code
    of one kind, as with the layer-level sharing of [auto-pipeline].

    Raises:
        Infeasible: the model cannot run at this batch size.
    """
    check_batch_size(graph, options.batch_size)
    backward = derivative(graph) if options.training else Derivative(graph, frozenset())
    variants = [f"{layer.kind}/{gradient_pattern(backward, layer)}" for layer in graph.layers]
    compiled = _alone_at(backward, variants, target, device, options, cache, progress)
    around = zip(
        *carried(graph, options.batch_size, options.precision),
        *stashed(backward, options.batch_size, options.precision),
        checkpointed(graph, options.batch_size, options.precision) if options.training else [0] * len(graph),
        strict=True,
    )
    readers = Counter(index for layer in graph.layers for index in layer.weights)
    same: dict[object, LayerProfile] = {}  # equal layers are one object, as those of BERT's encoders are

    def in_model(layer: Layer, variant: str, around: Sequence[int]) -> LayerProfile:
        shared = _shared_weights(backward, layer, readers, options)
        key = (variant, tuple(shared.items()), around)
        if key not in same:
            same[key] = _in_model(compiled[variant], shared, *map(int, around))
        return same[key]

    layers = tuple(map(in_model, graph.layers, variants, around))
    return ModelProfile(
        model=graph.name,
        target=f"{target.version} {device.name}",
        options=options,
        names=tuple(layer.name for layer in graph.layers),
        kinds=tuple(layer.kind for layer in graph.layers),
        tied=tuple(layer.tied for layer in graph.layers),
        layers=layers,
        outlined=() if options.training else traits_of(target).outlined,
    )


def check_batch_size(graph: LayerGraph, batch_size: int) -> None:
    """Refuse a batch size that the model cannot run at.

    Raises:
        Infeasible: the model is fixed to batch size 1.
    """
    if graph.fixed_batch is not None and batch_size > 1:
        raise Infeasible(
            f"{graph.name} runs at batch size 1 only ({graph.fixed_batch}), got {batch_size}; "
            "try --batch-size 1, or export the model with a dynamic batch dimension",
            0,
        )


def _alone_at(
    backward: Derivative,
    variants: Sequence[str],
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: ProfileCache,
    progress: Progress | None,
) -> dict[str, LayerProfile]:
    """A layer of every variant alone, interpolated between the batch sizes at which the target compiles."""
    batch_sizes = target.profiled(options.batch_size)
    low, high = batch_sizes[0], batch_sizes[-1]
    assert low <= options.batch_size <= high, batch_sizes
    first: dict[str, int] = {}
    for index, variant in enumerate(variants):
        first.setdefault(variant, index)
    ends = {variant: [_Compile(replace(options, batch_size=n), variant) for n in (low, high)] for variant in first}
    compiles = dict.fromkeys(pair[end] for end in (0, 1) for pair in ends.values())
    compiled = _compile(backward, first, compiles, target, device, cache, progress)
    if low == high:
        return {variant: compiled[only] for variant, (only, _) in ends.items()}
    share = Fraction(options.batch_size - low, high - low)
    return {variant: interpolate(compiled[a], compiled[b], share) for variant, (a, b) in ends.items()}


class _Compile(NamedTuple):
    """One compile of one layer."""

    options: CompileOptions
    variant: str


def _compile(
    backward: Derivative,
    first: Mapping[str, int],
    compiles: Collection[_Compile],
    target: Target,
    device: Device,
    cache: ProfileCache,
    progress: Progress | None,
) -> dict[_Compile, LayerProfile]:
    """Compile what the cache does not have; the cache stores the results, also when a later compile fails."""
    digests = _digests(target, device, compiles)
    cached = cache.read(digests.values())
    compiled = {job: cached[digest] for job, digest in digests.items() if digest in cached}
    missing = [job for job in compiles if job not in compiled]
    new: dict[str, LayerProfile] = {}
    try:
        for job in missing:
            if progress is not None:
                progress(len(compiled), len(compiles))
            model = isolate(backward.graph, first[job.variant], backward)
            layer = LayerRange(len(model) - 1, len(model))
            compiled[job] = _alone(target.compile(model, layer, device, job.options))
            new[digests[job]] = compiled[job]
    finally:
        if new:
            cache.write(new)
    if progress is not None:
        progress(len(compiles), len(compiles))
    return compiled


def _digests(target: Target, device: Device, compiles: Iterable[_Compile]) -> dict[_Compile, str]:
    """By compile the digest of all that its result depends on, one tuple; all but its variant is written down once."""
    written: dict[CompileOptions, str] = {}
    digests = {}
    for job in compiles:
        if job.options not in written:
            depends_on = target.depends_on(device, job.options)
            written[job.options] = repr((PROFILE_SCHEMA, target.version, depends_on)).removesuffix(")")
        content = f"{written[job.options]}, {job.variant!r})"
        digests[job] = hashlib.sha256(content.encode()).hexdigest()
    return digests


def _alone(compiled: CompiledRange) -> LayerProfile:
    """A compiled layer with nothing around it."""
    return LayerProfile(
        forward_cycles=compiled.forward_cycles,
        backward_cycles=compiled.backward_cycles,
        shared=dict(compiled.shared),
        exclusive=dict(compiled.exclusive),
        temporary_bytes=compiled.temporary_bytes,
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=compiled.weight_cycles,
    )


def _in_model(
    alone: LayerProfile,
    shared_weights: Mapping[str, int],
    carried_bytes: int,
    input_bytes: int,
    output_bytes: int,
    activation_bytes: int,
    stashed_input_bytes: int,
    checkpoint_bytes: int,
) -> LayerProfile:
    """A layer in its model: weights that other layers read too are shared bytes, no exclusive ones."""
    exclusive = Counter(alone.exclusive)
    for key, n_bytes in shared_weights.items():
        exclusive[category(key)] -= n_bytes
    return replace(
        alone,
        shared={**alone.shared, **shared_weights},
        exclusive=dict(exclusive),
        carried_bytes=carried_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        activation_bytes=activation_bytes,
        stashed_input_bytes=stashed_input_bytes,
        checkpoint_bytes=checkpoint_bytes,
    )


def _shared_weights(
    backward: Derivative, layer: Layer, readers: Mapping[int, int], options: CompileOptions
) -> dict[str, int]:
    """Weights that other layers read too, and their gradients: stored once in a range, so they count as shared."""
    parameters = backward.parameters(layer) if options.training else ()
    return {
        f"{name}_{index}": backward.graph.tensors[index].stored_bytes(options.batch_size, options.precision)
        for name, weights in ((PARAMETER, layer.weights), (GRADIENT, parameters))
        for index in weights
        if readers[index] > 1
    }


def isolate(graph: LayerGraph, index: int, derivative: Derivative) -> LayerGraph:
    """One layer as the last of a model of its own: its inputs are inputs of the model, its outputs are outputs.

    Inputs that need a gradient are the outputs of a layer before it, which has a parameter.
    """
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    number = {old: new for new, old in enumerate(used)} | {-1: -1}
    with_gradient = {i for i in used if derivative.needs_gradient(i) and i not in layer.outputs}
    outputs_before = tuple(number[i] for i in layer.inputs if i in with_gradient)
    producers = (_producer(outputs_before, len(used)),) if with_gradient else ()
    alone = replace(
        layer,
        inputs=tuple(number[i] for i in layer.inputs),
        outputs=tuple(number[i] for i in layer.outputs),
        weights=tuple(number[i] for i in layer.weights),
        operands=tuple(number[i] for i in layer.operands),
    )
    n_before = len(producers)
    spans = dict.fromkeys(with_gradient, (0, n_before)) | dict.fromkeys(layer.outputs, (n_before, n_before + 1))
    tensors = [_with_span(graph.tensors[i], *spans.get(i, (-1, n_before))) for i in used]
    parameter = (Tensor("parameter", (2,), None, "float", -1, 0),) * n_before
    return replace(graph, layers=(*producers, alone), tensors=(*tensors, *parameter), blocks=())


def _producer(outputs: tuple[int, ...], weight: int) -> Layer:
    return Layer("before", "Identity", (), (), outputs, (weight,), (weight,), "before", None)


def _with_span(tensor: Tensor, producer: int, last_use: int) -> Tensor:
    return tensor._replace(producer=producer, last_use=last_use)
