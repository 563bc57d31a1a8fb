"""Every kind of layer compiled once, alone: `profile_model`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from autoauto.profile.interpolate import interpolate
from autoauto.profile.liveness import carried, gradient_pattern, kept
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, Layer, LayerGraph, LayerRange, Tensor, derivative
from autoauto.records.profile import (
    GRADIENT,
    PARAMETER,
    PROFILE_SCHEMA,
    Cache,
    CompiledRange,
    CompileOptions,
    LayerProfile,
    ModelProfile,
    Target,
    category,
)

Progress = Callable[[int, int], None]


def profile_model(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: Cache,
    progress: Progress | None = None,
) -> ModelProfile:
    """Profile all layers of `graph` for one device at one batch size.

    One compile a kind, unless `cache` has it; for training one more where layers of a kind differ in which of their
    inputs need gradients. A target that compiles at two other batch sizes does so at both, and every number is on the
    line between them. What layers share is what the target keys alike: equal codelets, which is what Poplar shares,
    or all code of one kind, which is the seed's layer-level sharing. `progress(done, total)` counts compiles.

    Raises:
        BadInput: the model cannot run at this batch size.
    """
    check_batch_size(graph, options.batch_size)
    found = derivative(graph) if options.training else Derivative(graph, frozenset())
    variants = [f"{layer.kind}/{gradient_pattern(found, layer)}" for layer in graph.layers]
    compiled = _alone_at(found, variants, target, device, options, cache, progress)
    around = zip(
        *carried(graph, options.batch_size, options.precision),
        *kept(found, options.batch_size, options.precision),
        strict=True,
    )
    readers = Counter(index for layer in graph.layers for index in layer.weights)
    layers = tuple(
        _placed(compiled[variant], _shared_weights(found, layer, readers, options), *map(int, n_bytes))
        for layer, variant, n_bytes in zip(graph.layers, variants, around, strict=True)
    )
    return ModelProfile(
        model=graph.name,
        target=f"{target.version} {device.name}",
        options=options,
        names=tuple(layer.name for layer in graph.layers),
        kinds=tuple(layer.kind for layer in graph.layers),
        tied=tuple(layer.tied for layer in graph.layers),
        layers=layers,
    )


def check_batch_size(graph: LayerGraph, batch_size: int) -> None:
    """Refuse a batch size that the model cannot run at.

    Raises:
        BadInput: the model is fixed to batch size 1.
    """
    if graph.fixed_batch is not None and batch_size > 1:
        raise BadInput(
            f"{graph.name} runs at batch size 1 only ({graph.fixed_batch}), got {batch_size}; "
            "try --batch-size 1, or export the model with a dynamic batch dimension"
        )


def _alone_at(
    found: Derivative,
    variants: Sequence[str],
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: Cache,
    progress: Progress | None,
) -> dict[str, LayerProfile]:
    """A layer of every variant alone, at the batch sizes that the target compiles at or between them."""
    batch_sizes = target.profiled(options.batch_size)
    low, high = batch_sizes[0], batch_sizes[-1]
    assert low <= options.batch_size <= high, batch_sizes
    first: dict[str, int] = {}
    for index, variant in enumerate(variants):
        first.setdefault(variant, index)
    ends = {variant: [_Compile(replace(options, batch_size=n), variant) for n in (low, high)] for variant in first}
    compiles = dict.fromkeys(pair[end] for end in (0, 1) for pair in ends.values())
    compiled = _compile(found, first, compiles, target, device, cache, progress)
    share = Fraction(options.batch_size - low, max(high - low, 1))
    return {variant: interpolate(compiled[a], compiled[b], share) for variant, (a, b) in ends.items()}


class _Compile(NamedTuple):
    """One compile of one layer."""

    options: CompileOptions
    variant: str


def _compile(
    found: Derivative,
    first: Mapping[str, int],
    compiles: Collection[_Compile],
    target: Target,
    device: Device,
    cache: Cache,
    progress: Progress | None,
) -> dict[_Compile, LayerProfile]:
    """Compile what the cache does not have; what is compiled is kept, also when a later compile fails."""
    digests = {one: _digest(target, device, one) for one in compiles}
    known = cache.read(digests.values())
    compiled = {one: known[digest] for one, digest in digests.items() if digest in known}
    missing = [one for one in compiles if one not in compiled]
    new: dict[str, LayerProfile] = {}
    try:
        for one in missing:
            if progress is not None:
                progress(len(compiled), len(compiles))
            model = isolate(found.graph, first[one.variant], found)
            layer = LayerRange(len(model) - 1, len(model))
            compiled[one] = _alone(target.compile(model, layer, device, one.options))
            new[digests[one]] = compiled[one]
    finally:
        if new:
            cache.write(new)
    if progress is not None:
        progress(len(compiles), len(compiles))
    return compiled


def _digest(target: Target, device: Device, one: _Compile) -> str:
    seen = target.depends_on(device, one.options)
    content = repr((PROFILE_SCHEMA, target.version, seen, one.variant))
    return hashlib.sha256(content.encode()).hexdigest()


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


def _placed(
    alone: LayerProfile,
    shared_weights: Mapping[str, int],
    carried_bytes: int,
    input_bytes: int,
    output_bytes: int,
    activation_bytes: int,
    kept_input_bytes: int,
) -> LayerProfile:
    """A layer in its model; weights that other layers read too are shared, so they are not its own."""
    own = Counter(alone.exclusive)
    for key, n_bytes in shared_weights.items():
        own[category(key)] -= n_bytes
    return replace(
        alone,
        shared={**alone.shared, **shared_weights},
        exclusive=dict(own),
        carried_bytes=carried_bytes,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        activation_bytes=activation_bytes,
        kept_input_bytes=kept_input_bytes,
    )


def _shared_weights(
    found: Derivative, layer: Layer, readers: Mapping[int, int], options: CompileOptions
) -> dict[str, int]:
    """Weights that other layers read too, and their gradients: stored once in a range, so they count as shared."""
    learned = found.parameters(layer) if options.training else ()
    return {
        f"{name}_{index}": found.graph.tensors[index].n_bytes(1, options.precision)
        for name, weights in ((PARAMETER, layer.weights), (GRADIENT, learned))
        for index in weights
        if readers[index] > 1
    }


def isolate(graph: LayerGraph, index: int, derivative: Derivative) -> LayerGraph:
    """One layer, the last of a model of its own: what it reads comes from outside, what it writes goes out.

    What needs a gradient comes from a layer before it that has something to learn.
    """
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    wanted = {i for i in used if derivative.needs_gradient(i) and i not in layer.outputs}
    makers = (_maker(tuple(place[i] for i in layer.inputs if i in wanted), len(used)),) if wanted else ()
    alone = replace(
        layer,
        inputs=tuple(place[i] for i in layer.inputs),
        outputs=tuple(place[i] for i in layer.outputs),
        weights=tuple(place[i] for i in layer.weights),
        operands=tuple(place[i] for i in layer.operands),
    )
    here = len(makers)
    spans = dict.fromkeys(wanted, (0, here)) | dict.fromkeys(layer.outputs, (here, here + 1))
    tensors = [_moved(graph.tensors[i], *spans.get(i, (-1, here))) for i in used]
    learned = (Tensor("learned before", (2,), None, "float", -1, 0),) * here
    return replace(graph, layers=(*makers, alone), tensors=(*tensors, *learned))


def _maker(outputs: tuple[int, ...], weight: int) -> Layer:
    return Layer("before", "Identity", (), (), outputs, (weight,), (weight,), "before", None)


def _moved(tensor: Tensor, producer: int, last_use: int) -> Tensor:
    return tensor._replace(producer=producer, last_use=last_use)
