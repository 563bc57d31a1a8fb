"""Layers profiled in their model, by what a runtime says that each node of it took: `cycles_in_model`.

That is one session instead of one for every kind of layer, and layers take what they take in a stage: their inputs are
where the layer before has left them, and nobody changes their layout. Memory is known of the whole only, so
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
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from autoauto.profile.cache import ProfileCache
from autoauto.profile.importers.onnxruntime_join import bases, has_product
from autoauto.profile.liveness import carried, first_read_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import PROFILE_SCHEMA, LayerProfile, ModelProfile, NodeTime
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.target import CompilingTarget, TimesNodes

IN_MODEL_SCHEMA = 1
"""Schema number of the cached times; raised when they are computed in another way."""
MAX_UNKNOWN = 0.5
"""Maximum share of the time of nodes that the file does not have."""


def cycles_in_model(
    graph: LayerGraph, target: CompilingTarget, device: Device, options: CompileOptions, cache: ProfileCache
) -> tuple[int, ...] | None:
    """The cycles of every layer in its model, (n,); None where the target cannot say. `cache` has what was measured.

    Raises:
        BadInput: the target cannot run the model.
        OutOfMemory: the machine has not enough memory for it.
    """
    if not isinstance(target, TimesNodes):
        return None
    where = target.depends_on(device, options)
    subject = (PROFILE_SCHEMA, IN_MODEL_SCHEMA, graph.content, target.version, where)
    digests = [hashlib.sha256(repr((subject, index)).encode()).hexdigest() for index in range(len(graph))]
    known = cache.read(digests)
    if len(known) < len(digests):
        seconds = layer_seconds(graph, target.node_times(graph, device, options))
        if seconds is None:  # not stored: a disturbed run may have given much time to nodes that the file has not
            return None
        for digest, layer_s in zip(digests, seconds, strict=True):
            # Of these layers nothing but the cycles is known.
            n_cycles = round(layer_s * device.clock_hz)
            known[digest] = LayerProfile(n_cycles, 0, {}, {}, 0, 0, 0, 0, 0)
        cache.write(known)
    return tuple(known[digest].forward_cycles for digest in digests)


def profile_in_model(
    graph: LayerGraph,
    target: CompilingTarget,
    device: Device,
    options: CompileOptions,
    whole: LayerProfile,
    cycles: Sequence[float],
) -> ModelProfile:
    """The profile of a model whose layers were timed inside the whole model, not each alone.

    Args:
        graph, target, device, options: as in `Profiler`.
        whole: the model as one layer. Layers take as long together. Of what it always holds each has a share by the
            weights that it reads first; of its peak by the tensors that are alive around it, the layer with most all.
        cycles: by layer, (n,), at any scale.
    """
    alive = carried(graph, options.batch_size, options.precision)
    around_bytes = (alive.input_bytes + alive.output_bytes - alive.carried_bytes).tolist()
    peak_share = whole.temporary_bytes / max(*around_bytes, 1)  # the layer around which most is alive has it all
    weight_bytes = first_read_bytes(graph, options.precision)
    if not any(weight_bytes):  # then all layers share alike
        weight_bytes = [1] * len(graph)
    all_bytes = sum(weight_bytes)
    cycles_share = whole.forward_cycles / sum(cycles)
    layers = []
    for index, layer_cycles in enumerate(cycles):
        own_bytes = weight_bytes[index]
        carried_bytes = int(alive.carried_bytes[index])
        layer = replace(
            whole,
            forward_cycles=round(cycles_share * layer_cycles),
            exclusive={name: n_bytes * own_bytes // all_bytes for name, n_bytes in whole.exclusive.items()},
            temporary_bytes=max(round(peak_share * around_bytes[index]) - carried_bytes, 0),
            carried_bytes=carried_bytes,
            input_bytes=int(alive.input_bytes[index]),
            output_bytes=int(alive.output_bytes[index]),
        )
        layers.append(layer)
    return ModelProfile.of_graph(graph, f"{target.version} {device.name}", options, layers)


def layer_seconds(graph: LayerGraph, nodes: Sequence[NodeTime]) -> list[float] | None:
    """Seconds of every layer in its model, (n,); None where the names of the nodes say too little.

    The `nodes` are those of the whole model, in the order in which they run.
    """
    # Layers by their names, and by those of the tensors that they write, which are also names of nodes.
    layer_named = {layer.name: index for index, layer in enumerate(graph.layers)}
    layer_named |= {tensor.name: tensor.producer for tensor in graph.tensors if tensor.producer >= 0}
    computed: list[set[int]] = []
    for node in nodes:
        layers = set()
        for name in node.names:
            longest = next((base for base in bases(name) if base in layer_named), None)
            if longest is not None:
                layers.add(layer_named[longest])
        computed.append(layers)
    total_s = sum(node.seconds for node in nodes)
    unknown_s = sum(node.seconds for node, layers in zip(nodes, computed, strict=True) if not layers)
    if not any(computed) or total_s == 0 or unknown_s > MAX_UNKNOWN * total_s:
        return None
    own_s = defaultdict[int, float](float)
    relayout_s = defaultdict[int, float](float)
    kinds = defaultdict[int, list[str]](list)  # by layer, of all layers whose time goes to it
    position = next(min(layers) for layers in computed if layers)  # of relayouts before the first known node
    for node, known, layers in zip(nodes, computed, _with_absorbed(graph, computed), strict=True):
        if not known:
            relayout_s[position] += node.seconds
            continue
        # The first product takes nearly all of the time, so it has it, on whichever side of a cut the others lie.
        products = (layer for layer in sorted(layers) if has_product(graph.layers[layer].op))
        position = next(products, max(known))
        own_s[position] += node.seconds
        kinds[position] += [graph.layers[layer].kind for layer in layers]
    # Layers of one kind whose nodes compute the same share the median of their times.
    alike = defaultdict[tuple[str, ...], list[int]](list)
    for position, computed_there in kinds.items():
        alike[graph.layers[position].kind, *sorted(computed_there)].append(position)
    for same in alike.values():
        middle_s = median(own_s[layer] for layer in same)
        for layer in same:
            own_s[layer] = middle_s
    return [own_s[layer] + relayout_s[layer] for layer in range(len(graph))]


def _with_absorbed(graph: LayerGraph, computed: Sequence[set[int]]) -> list[set[int]]:
    """The layers of every node, with those that have no node of their own."""
    members = [set(layers) for layers in computed]
    node_of = {}
    for node, layers in enumerate(computed):
        node_of.update(dict.fromkeys(layers, node))
    readers = defaultdict[int, list[int]](list)
    for index, layer in enumerate(graph.layers):
        for tensor in layer.inputs:
            readers[graph.tensors[tensor].producer].append(index)
    # Backwards, so that the reader of a layer has its node already, also where that is the node of a later layer.
    for index in reversed(range(len(graph))):
        nearest_reader = min(readers[index], default=-1)
        if index not in node_of and nearest_reader in node_of:
            node_of[index] = node_of[nearest_reader]
            members[node_of[index]].add(index)
    return members
