"""The nodes of a profile of ONNX Runtime on the layers of an ONNX file: `join_model`.

ONNX Runtime optimises a file before it runs it, so some nodes of the profile are not in the file. At the default level:

    node of the profile                   node of the file      how it is recognised
    n9                                    n9                    by its name
    r1_nchwc                              n1, which writes r1   by what it writes, without what was appended
    a.dense.MatMul/MatMulAddFusion        a.dense.MatMul        by its name, without what was appended
    fused fc                              fc                    by its name, without what was put before it
    SkipLayerNormalization_token_66       a.LayerNorm           by its neighbours and the shape of its output

A layer of the file without a node of its own was made part of the next one that has one, as a Conv is of its Relu, so
both share a stage; hence the time of a node is never on the other side of a cut.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from autoauto.profile.importers.importer import FileNode, Importer, ProfiledFile
from autoauto.profile.importers.onnxruntime_trace import NodeRecord, line_of_nodes, read_onnxruntime
from autoauto.profile.importers.recorded import Layers, RecordedLayer, RecordedProfile
from autoauto.profile.liveness import carried, first_read_bytes
from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, Tensor

MAX_UNNAMED = 0.5
"""Maximum share of the time of nodes that are recognised by their neighbours only."""
MAX_FOREIGN = 0.1
"""Maximum share of the time of products that are not in the file."""
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN"})
_ADDED = re.compile(r"^fused |(_nchwc|_token_\d+)$")


class _Match(NamedTuple):
    """A node of the profile, and the layer that it belongs to."""

    node: NodeRecord
    layer: int | None = None  # None where its name does not say
    tensor: Tensor | None = None  # the first activation that it writes, if the file has the very node


def join_model(
    file: ProfiledFile, nodes: Sequence[NodeRecord], batch_size: int | None, where: str
) -> tuple[int, Layers]:
    """The layers of a model with the times of the nodes of a profile; sizes and last uses are those of the model.

    The nodes of the profile are in the order in which they ran. Without a `batch_size` it is that of the shapes in it,
    and is returned with the layers. `where` is the start of every error.

    Raises:
        BadInput: the profile is one of another model or batch size, or the optimiser left too few nodes of the file.
    """
    graph = file.graph
    matches = _matches(graph, file.nodes, nodes)
    size = _batch_size(graph, matches, batch_size, where)
    _check_known(graph, matches, where)
    layer_of = _positions(graph, matches, size)
    _check_products(graph, matches, layer_of, where)
    seconds = [0.0] * len(graph)
    allocated = [0] * len(graph)
    for match, layer in zip(matches, layer_of, strict=True):
        seconds[layer] += match.node.seconds
        allocated[layer] = max(allocated[layer], match.node.temporary_bytes)
    return size, _layers(file, size, seconds, allocated, _tied(graph, set(layer_of)))


def _matches(graph: LayerGraph, file_nodes: Sequence[FileNode], nodes: Sequence[NodeRecord]) -> list[_Match]:
    """The nodes with their layers, without those that compute constants, which are weights here."""
    activations = {tensor.name: tensor for tensor in graph.tensors if tensor.producer >= 0}
    by_name = {node.name: node for node in file_nodes if node.name}
    matches = []
    for node in nodes:
        file_node = by_name.get(node.name)
        if file_node is None and node.position < len(file_nodes):
            at_position = file_nodes[node.position]
            if not at_position.name and at_position.op == node.op:
                file_node = at_position
        if file_node is None:
            matches.append(_Match(node, _layer_by_name(node, activations, by_name)))
            continue
        tensor = next((activations[name] for name in file_node.outputs if name in activations), None)
        if tensor is not None:
            matches.append(_Match(node, tensor.producer, tensor))
    return matches


def _layer_by_name(node: NodeRecord, activations: Mapping[str, Tensor], by_name: Mapping[str, FileNode]) -> int | None:
    """The layer of a node that the optimiser made and called after a node of the file or an output; None if unknown."""
    for name in bases(node.name):
        outputs = by_name[name].outputs if name in by_name else (name,)
        for output in outputs:
            if output in activations:
                return activations[output].producer
    return None


def bases(name: str) -> Iterator[str]:
    """Yield what the name of a node may be in the file, without what an optimiser added to it.

    >>> list(bases("r1_nchwc")), list(bases("fused fc")), list(bases("a/b.MatMul/MatMulAddFusion"))
    (['r1_nchwc', 'r1'], ['fused fc', 'fc'], ['a/b.MatMul/MatMulAddFusion', 'a/b.MatMul', 'a'])
    """
    yield name
    base = _ADDED.sub("", name)
    name = base if base != name else name.rpartition("/")[0]
    while name:
        yield name
        name = name.rpartition("/")[0]


def _batch_size(graph: LayerGraph, matches: Sequence[_Match], given: int | None, where: str) -> int:
    """The batch size of the shapes in the profile; all nodes that the file has must agree."""
    size = given
    for node, _, tensor in matches:
        if tensor is None or node.output_shape is None:
            continue
        # The batch size at which the tensor has this shape; None where it never has.
        axis, shape = tensor.batch_axis, node.output_shape
        own: int | None = 1 if axis is None or axis >= len(shape) else shape[axis] // max(tensor.shape[axis], 1)
        if not own or tensor.shape_at(own) != shape:
            own = None
        has_batch = tensor.batch_axis is not None  # else its shape fits any batch size
        if own is None or (has_batch and size is not None and own != size):
            expected = list(tensor.shape_at(size or 1))
            raise BadInput(
                f"{where} is of another model or batch size: node {node.name!r:.80} has the output "
                f"{list(node.output_shape)}, {graph.name} has {expected}; give the file that was profiled"
            )
        if has_batch:
            size = own
    return size or 1


def _check_known(graph: LayerGraph, matches: Sequence[_Match], where: str) -> None:
    total_s = sum(match.node.seconds for match in matches)
    unnamed = [match.node for match in matches if match.layer is None]
    foreign = [node for node in unnamed if node.op in _PRODUCTS]
    foreign_s = sum(node.seconds for node in foreign)
    if len(unnamed) == len(matches) or foreign_s > MAX_FOREIGN * total_s:  # none is named, also where there is none
        example = f", for example {foreign[0].name!r:.80}" if foreign else ""
        raise BadInput(
            f"{where} is of another model: {graph.name} has no nodes of these names{example}; give the file that was "
            "profiled"
        )
    share = sum(node.seconds for node in unnamed) / total_s if total_s else 0.0
    if share > MAX_UNNAMED:
        raise BadInput(
            f"{where}: nodes with {100 * share:.0f} % of the time are not in {graph.name}, since the optimiser made "
            "them; profile with graph_optimization_level = ORT_ENABLE_BASIC"
        )


def _positions(graph: LayerGraph, matches: Sequence[_Match], size: int) -> list[int]:
    """The layer of every node; of one without a known name the last between its neighbours that it can be."""
    following: list[int | None] = []  # by node, the layer of the next node with a known one
    after = None
    for match in reversed(matches):
        after = after if match.layer is None else match.layer
        following.append(after)
    following.reverse()
    named = {match.layer for match in matches}
    positions = []
    before = -1  # the layer of the last node with a known one
    for match, after in zip(matches, following, strict=True):
        if match.layer is not None:
            before = match.layer
            positions.append(before)
            continue
        # The last layer first: a node that the optimiser made stands at the end of the layers that it computes.
        stop = len(graph) if after is None else after
        between = (i for i in range(stop - 1, before, -1) if i not in named and _writes(graph, i, match.node, size))
        neighbour = before if before >= 0 else after or 0
        positions.append(next(between, neighbour))
    return positions


def _writes(graph: LayerGraph, layer: int, node: NodeRecord, size: int) -> bool:
    return any(graph.tensors[output].shape_at(size) == node.output_shape for output in graph.layers[layer].outputs)


def _check_products(graph: LayerGraph, matches: Sequence[_Match], layer_of: Sequence[int], where: str) -> None:
    """Refuse a profile without a product of the file, unless the optimiser made it part of another node."""
    n_covered = defaultdict[int, float](float)  # by layer, how many products its nodes may compute
    for match, position in zip(matches, layer_of, strict=True):
        op = match.node.op
        if match.tensor is not None:  # the very node of the file
            n_covered[position] += op in _PRODUCTS
        else:  # attention has several products
            n_covered[position] += inf if "Attention" in op else has_product(op)
    n_missing = 0  # products since the last layer with a node: the next one with a node must have computed them
    for index, layer in enumerate(graph.layers):
        is_product = layer.op in _PRODUCTS
        n_missing += is_product
        if index in n_covered:
            if n_missing > max(n_covered[index], is_product):
                break
            n_missing = 0
    if n_missing:  # also behind the last layer with a node
        raise BadInput(
            f"{where} is of another model: it has too few products before {layer.name!r:.80} of {graph.name}; give the "
            "file that was profiled, or profile with graph_optimization_level = ORT_ENABLE_BASIC"
        )


def has_product(op: str) -> bool:
    """True if an operator, or a node that was made of several, computes a product.

    >>> has_product("FusedMatMul"), has_product("Relu")
    (True, False)
    """
    return any(product in op for product in _PRODUCTS)


def _tied(graph: LayerGraph, with_node: set[int]) -> list[str | None]:
    """For every layer the key of the group that must share a stage, None for a layer alone.

    Layers that share a weight are a group, and so are layers without a node and the one whose node computes them.
    """
    root = list(range(len(graph)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    first: dict[str, int] = {}
    for index, layer in enumerate(graph.layers):
        if layer.tied is not None:
            root[find(index)] = find(first.setdefault(layer.tied, index))
    # A layer without a node goes with the next one, and what is behind the last node goes with that.
    last = max(with_node)
    for index, after in pairwise(range(len(graph))):
        if index not in with_node or index >= last:
            root[find(after)] = find(index)
    groups = [find(index) for index in range(len(graph))]
    n_layers = Counter(groups)
    return [f"group {group}" if n_layers[group] > 1 else None for group in groups]


def _layers(
    file: ProfiledFile, size: int, seconds: Sequence[float], allocated: Sequence[int], tied: Sequence[str | None]
) -> Layers:
    """The layers with their costs; a weight that several read is that of the first, since all share a stage."""
    graph, precision = file.graph, file.precision
    alive = carried(graph, size, precision)
    weight_bytes = first_read_bytes(graph, precision)
    layers = []
    for index, layer in enumerate(graph.layers):
        before = int(alive.input_bytes[index])
        past = int(alive.carried_bytes[index])
        written = sum(graph.tensors[output].n_bytes(size, precision) for output in layer.outputs)
        # While it runs there are what it is the last to read, what it writes and what it allocates; `past` lies beside.
        layers.append(
            RecordedLayer(
                name=layer.name,
                forward_s=seconds[index],
                parameter_bytes=weight_bytes[index],
                temporary_bytes=before - past + written + allocated[index],
                carried_bytes=past,
                input_bytes=before,
                output_bytes=int(alive.output_bytes[index]),
                tied=tied[index],
            )
        )
    return tuple(layers)


def _join(path: Path, memory: Path | None, batch_size: int | None, file: ProfiledFile) -> RecordedProfile:
    records = read_onnxruntime(path, memory)
    size, layers = join_model(file, records.nodes, batch_size, str(path))
    return RecordedProfile(file.graph.name, {size: layers}, records.notes)


IMPORTER = Importer(
    "onnxruntime",
    lambda path, memory, batch_size: line_of_nodes(path, read_onnxruntime(path, memory), batch_size),
    _join,
)
