"""Every kind of layer compiled once, alone: `profile_model`."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from autoauto.profile.cache import ProfileCache
from autoauto.profile.carry import carried
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import Layer, LayerGraph, LayerRange
from autoauto.records.profile import (
    PARAMETER,
    PROFILE_SCHEMA,
    CompiledRange,
    CompileOptions,
    LayerProfile,
    ModelProfile,
    Target,
)

Progress = Callable[[int, int], None]


def profile_model(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: ProfileCache,
    progress: Progress | None = None,
) -> ModelProfile:
    """Profile all layers of `graph` for one device at one batch size.

    One compile a kind, unless `cache` has it. What layers share is what the target keys alike: equal codelets, which is
    what Poplar shares, or all code of one kind, which is the seed's layer-level sharing. `progress(done, total)` counts
    kinds.

    Raises:
        BadInput: the model cannot run at this batch size.
    """
    check_batch_size(graph, options.batch_size)
    compiled = _compile_kinds(graph, target, device, options, cache, progress)
    liveness = carried(graph, options.batch_size, options.precision)
    readers = Counter(index for layer in graph.layers for index in layer.weights)
    layers = tuple(
        replace(
            alone,
            shared={**alone.shared, **_shared_weights(graph, layer, readers, options)},
            exclusive=_exclusive(graph, layer, readers, options, alone.exclusive),
            carried_bytes=int(carried_bytes),
            input_bytes=int(input_bytes),
            output_bytes=int(output_bytes),
        )
        for layer, alone, carried_bytes, input_bytes, output_bytes in zip(
            graph.layers, (compiled[layer.kind] for layer in graph.layers), *liveness, strict=True
        )
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


def isolate(graph: LayerGraph, index: int) -> LayerGraph:
    """One layer as a model of its own: what it reads comes from outside, what it writes goes out."""
    layer = graph.layers[index]
    used = sorted({*layer.operands, *layer.inputs, *layer.outputs, *layer.weights} - {-1})
    place = {old: new for new, old in enumerate(used)} | {-1: -1}
    alone = replace(
        layer,
        inputs=tuple(place[i] for i in layer.inputs),
        outputs=tuple(place[i] for i in layer.outputs),
        weights=tuple(place[i] for i in layer.weights),
        operands=tuple(place[i] for i in layer.operands),
    )
    made = set(layer.outputs)
    tensors = tuple(
        graph.tensors[i]._replace(producer=0 if i in made else -1, last_use=1 if i in made else 0) for i in used
    )
    return replace(graph, layers=(alone,), tensors=tensors)


def _compile_kinds(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    cache: ProfileCache,
    progress: Progress | None,
) -> dict[str, LayerProfile]:
    """A layer of every kind alone, compiling what the cache does not have."""
    first: dict[str, int] = {}
    for index, layer in enumerate(graph.layers):
        first.setdefault(layer.kind, index)
    digests = {kind: _digest(target, device, options, kind) for kind in first}
    known = cache.read(digests.values())
    compiled = {kind: known[digest] for kind, digest in digests.items() if digest in known}
    missing = [kind for kind in first if kind not in compiled]
    for kind in missing:
        if progress is not None:
            progress(len(compiled), len(first))
        compiled[kind] = _alone(target.compile(isolate(graph, first[kind]), LayerRange(0, 1), device, options))
    if missing:
        cache.write({digests[kind]: compiled[kind] for kind in missing})
    if progress is not None:
        progress(len(first), len(first))
    return compiled


def _digest(target: Target, device: Device, options: CompileOptions, kind: str) -> str:
    content = repr((PROFILE_SCHEMA, target.version, device, options, kind))
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
    )


def _shared_weights(
    graph: LayerGraph, layer: Layer, readers: Mapping[int, int], options: CompileOptions
) -> dict[str, int]:
    """Weights that other layers read too: stored once in a range, so they count as shared."""
    return {
        f"{PARAMETER}_{index}": graph.tensors[index].n_bytes(1, options.precision)
        for index in layer.weights
        if readers[index] > 1
    }


def _exclusive(
    graph: LayerGraph,
    layer: Layer,
    readers: Mapping[int, int],
    options: CompileOptions,
    compiled: Mapping[str, int],
) -> dict[str, int]:
    """The compiled layer's exclusive bytes, without the weights that `_shared_weights` counts."""
    elsewhere = sum(_shared_weights(graph, layer, readers, options).values())
    return dict(compiled) | {PARAMETER: compiled.get(PARAMETER, 0) - elsewhere}
