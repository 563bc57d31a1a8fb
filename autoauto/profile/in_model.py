"""Layers profiled in their model, by what a runtime says that each node of it took: `cycles_in_model`.

That is one run of the model instead of one of every kind of layer, and layers take what they take in a stage: their
inputs are where the layer before has left them, and nobody changes their layout. Memory is known of the whole only, so
`profile_in_model` is for where a device has plenty.

A runtime rewrites a model before it runs it, so one node may compute several layers, and some nodes compute none:

    layers of the file      MatMul ── Add ── Relu ── MatMul ── Softmax
    nodes that run          ╰── MatMul+Add+Relu ──╯   MatMul    Softmax      and a relayout between them

A layer without a node of its own is computed by that of the next layer that reads what it writes. The time of a node
goes to the first product among its layers, since that takes nearly all of it, and so wherever a cut lies between them.
The time of a node of which the file has nothing, a relayout, goes to the layer of the node before it. Layers of one
kind whose nodes compute the same all have the median of their times: what disturbs a run disturbs some of them.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from autoauto.profile.cache import ProfileCache
from autoauto.profile.importers.onnxruntime_join import bases
from autoauto.profile.liveness import carried
from autoauto.records.costs.profile import (
    PROFILE_SCHEMA,
    CompileOptions,
    LayerProfile,
    ModelProfile,
    NodeTime,
)
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.target import Target, TimesNodes

MAX_UNKNOWN = 0.25
"""Share of the time that nodes may have of which the file has nothing."""
_PRODUCT = re.compile("Conv|MatMul|Gemm|Einsum|LSTM|GRU|RNN")


def cycles_in_model(
    graph: LayerGraph, target: Target, device: Device, options: CompileOptions, cache: ProfileCache
) -> tuple[int, ...] | None:
    """The cycles of every layer in its model, (n,); None where the target cannot say. `cache` has what was measured.

    Raises:
        BadInput: the target cannot run the model.
        OutOfMemory: the machine has not enough memory for it.
    """
    if not isinstance(target, TimesNodes):
        return None
    subject = (PROFILE_SCHEMA, "in model", graph.content, target.version, target.depends_on(device, options))
    digests = [hashlib.sha256(repr((subject, index)).encode()).hexdigest() for index in range(len(graph))]
    known = cache.read(digests)
    if len(known) < len(digests):
        seconds = layer_seconds(graph, target.node_times(graph, device, options))
        if seconds is None:
            return None
        known = {
            digest: LayerProfile(round(layer_s * device.clock_hz), 0, {}, {}, 0, 0, 0, 0, 0)
            for digest, layer_s in zip(digests, seconds, strict=True)
        }
        cache.write(known)
    return tuple(known[digest].forward_cycles for digest in digests)


def profile_in_model(
    graph: LayerGraph,
    target: Target,
    device: Device,
    options: CompileOptions,
    whole: LayerProfile,
    cycles: Sequence[int],
) -> ModelProfile:
    """The profile of layers that take `cycles` in their model.

    Args:
        graph, target, device, options: as in `profile_model`.
        whole: the model as one layer. Of what it always holds each layer has a share by the weights that it reads
            first; of its peak a layer has a share by the tensors that are alive around it, the one with most all.
        cycles: by layer.
    """
    alive = carried(graph, options.batch_size, options.precision)
    around_bytes = (alive.input_bytes + alive.output_bytes - alive.carried_bytes).tolist()
    peak_share = whole.temporary_bytes / max(*around_bytes, 1)
    weight_bytes = _first_read_bytes(graph, options)
    layers = tuple(
        replace(
            whole,
            forward_cycles=n_cycles,
            exclusive={name: n_bytes * own // sum(weight_bytes) for name, n_bytes in whole.exclusive.items()},
            temporary_bytes=max(round(peak_share * around) - past, 0),
            carried_bytes=past,
            input_bytes=before,
            output_bytes=after,
        )
        for n_cycles, own, around, past, before, after in zip(
            cycles, weight_bytes, around_bytes, *(column.tolist() for column in alive), strict=True
        )
    )
    return ModelProfile(
        graph.name,
        f"{target.version} {device.name}",
        options,
        tuple(layer.name for layer in graph.layers),
        tuple(layer.kind for layer in graph.layers),
        tuple(layer.tied for layer in graph.layers),
        layers,
    )


def _first_read_bytes(graph: LayerGraph, options: CompileOptions) -> list[int]:
    """Bytes of the weights that no earlier layer reads, by layer; all have the same where there are no weights."""
    read: set[int] = set()
    n_bytes = []
    for layer in graph.layers:
        own = set(layer.weights) - read
        read |= own
        n_bytes.append(sum(graph.tensors[index].n_bytes(1, options.precision) for index in own))
    return n_bytes if any(n_bytes) else [1] * len(graph)


def layer_seconds(graph: LayerGraph, nodes: Sequence[NodeTime]) -> list[float] | None:
    """The time of every layer in its model, (n,); None where the names of the nodes say too little.

    Args:
        graph: the model.
        nodes: of the whole model, in the order in which they run.
    """
    layer_named = _layers_by_name(graph)
    computed = [{layer_named[base] for name in node.names for base in _known_base(name, layer_named)} for node in nodes]
    unknown_s = sum(node.seconds for node, layers in zip(nodes, computed, strict=True) if not layers)
    if unknown_s > MAX_UNKNOWN * sum(node.seconds for node in nodes) or not any(computed):
        return None
    members = _with_absorbed(graph, computed)
    seconds: dict[int, float] = defaultdict(float)
    kinds: dict[int, list[str]] = defaultdict(list)  # of the layers that are computed where this one is
    position = next(min(layers) for layers in computed if layers)
    for node, own, layers in zip(nodes, computed, members, strict=True):
        if own:
            products = (layer for layer in sorted(layers) if _PRODUCT.search(graph.layers[layer].op))
            position = next(products, max(own))
            kinds[position] += [graph.layers[layer].kind for layer in layers]
        seconds[position] += node.seconds
    alike: dict[object, list[int]] = defaultdict(list)
    for layer, computed_there in kinds.items():
        alike[graph.layers[layer].kind, *sorted(computed_there)].append(layer)
    for same in alike.values():
        middle = median(seconds[layer] for layer in same)
        seconds.update((layer, middle) for layer in same)
    return [seconds[layer] for layer in range(len(graph))]


def _layers_by_name(graph: LayerGraph) -> dict[str, int]:
    """Layers by their names, and by those of the tensors that they write."""
    writers = {tensor.name: tensor.producer for tensor in graph.tensors if tensor.producer >= 0}
    return writers | {layer.name: index for index, layer in enumerate(graph.layers)}


def _known_base(name: str, layer_named: Mapping[str, int]) -> list[str]:
    return [base for base in bases(name) if base in layer_named][:1]


def _with_absorbed(graph: LayerGraph, computed: Sequence[set[int]]) -> list[set[int]]:
    """The layers of every node, with those that have no node of their own."""
    node_of = {layer: node for node, layers in enumerate(computed) for layer in layers}
    readers = defaultdict[int, list[int]](list)
    for index, layer in enumerate(graph.layers):
        for tensor in layer.inputs:
            readers[graph.tensors[tensor].producer].append(index)
    for index in reversed(range(len(graph))):
        if index not in node_of and (nearest := min(readers[index], default=-1)) in node_of:
            node_of[index] = node_of[nearest]
    members: list[set[int]] = [set() for _ in computed]
    for index, node in node_of.items():
        members[node].add(index)
    return members
