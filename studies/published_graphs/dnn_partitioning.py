"""Inputs of dnn-partitioning, `read_dnn_partitioning`: graphs of layers or operators [dnn-partitioning]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from msgspec import Struct, field

from autoauto.evaluate.imported import CLOCK_HZ, like_devices
from autoauto.records.costs.cost import TensorUse
from autoauto.records.costs.profile import PARAMETER, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MAX_NUMBER, Positive, PositiveWhole
from autoauto.records.files.json import from_plain, read_json
from autoauto.records.hardware import Cluster, Link, Period
from studies.published_graphs.graph import ImportedGraph, ImportedKind, ImportedProfile, merge_cycles


class _Node(Struct, rename="camel"):
    id: int
    fpga_latency: float
    supported_on_fpga: bool | int
    is_backward_node: bool | int
    size: float = 0.0
    color_class: int | None = None
    name: str = ""


class _Edge(Struct, rename="camel"):
    source_id: int
    dest_id: int
    cost: float


class _Graph(Struct):
    max_size: Positive = field(name="maxSizePerFPGA")
    n_devices: PositiveWhole = field(name="maxFPGAs")
    nodes: list[_Node]
    edges: list[_Edge]


def read_dnn_partitioning(path: Path) -> ImportedGraph:
    """The graph, for the accelerators of the file; its CPUs are not used.

    Its devices do one thing at a time, and a tensor costs its time at either end. Nodes of one colour are one layer,
    and so are nodes on a common cycle.

    Raises:
        BadInput: it is no such file, or a node cannot run on an accelerator.
    """
    graph = from_plain(_Graph, read_json(path), str(path))
    known = {node.id for node in graph.nodes}
    if len(known) < len(graph.nodes) or not known:
        raise BadInput(f"{path}: nodes need ids that differ, one node at least; correct them there")
    for edge in graph.edges:
        if missing := {edge.source_id, edge.dest_id} - known:
            raise BadInput(f"{path}: an edge must lead from node to node, got {missing.pop()}; correct it there")
        if not 0 <= edge.cost * CLOCK_HZ <= MAX_NUMBER:
            raise BadInput(f"{path}: cost must be from 0, the edge from node {edge.source_id} has {edge.cost:g}")
    for node in graph.nodes:
        if not node.supported_on_fpga:
            raise BadInput(f"{path}: every node must be supported on accelerators, node {node.id} is not")
        if not 0 <= node.fpga_latency * CLOCK_HZ <= MAX_NUMBER or not 0 <= node.size <= MAX_NUMBER:
            raise BadInput(f"{path}: fpgaLatency and size must be from 0, node {node.id} has others")
    layer_of, edges = _layers(graph)
    cluster = like_devices("accelerator", graph.n_devices, graph.max_size, Link(CLOCK_HZ, 0))
    in_order = partial(_in_order, path.stem, graph, layer_of, cluster)
    return ImportedGraph(max(layer_of.values()) + 1, frozenset(edges), in_order)


def _layers(graph: _Graph) -> tuple[dict[int, int], set[tuple[int, int]]]:
    """The layer of every node, and the edges between layers.

    A backward node belongs to the layer of its forward node, so edges between backward nodes lead from later layers to
    earlier ones, and are turned round. Some files have them in the direction of the forward pass; there, turning them
    would make cycles of nearly all layers. The direction that merges fewer layers is taken.
    """
    fresh = count(1 + max((node.color_class for node in graph.nodes if node.color_class is not None), default=0))
    colors: dict[int, int] = {}
    color_of = {}
    for node in graph.nodes:
        color = next(fresh) if node.color_class is None else node.color_class
        color_of[node.id] = colors.setdefault(color, len(colors))
    backward = {node.id for node in graph.nodes if node.is_backward_node}

    def edges(*, turned: bool) -> Iterator[tuple[int, int]]:
        for edge in graph.edges:
            ends = color_of[edge.source_id], color_of[edge.dest_id]
            n_backward = (edge.source_id in backward) + (edge.dest_id in backward)
            if ends[0] != ends[1] and n_backward != 1:
                yield ends[::-1] if turned and n_backward else ends

    by_direction = [set(edges(turned=turned)) for turned in (True, False)]
    groups, between = max(((merge_cycles(len(colors), ends), ends) for ends in by_direction), key=lambda g: max(g[0]))
    layer_of = {node: groups[color] for node, color in color_of.items()}
    return layer_of, {(groups[a], groups[b]) for a, b in between if groups[a] != groups[b]}


def _in_order(
    name: str, graph: _Graph, layer_of: dict[int, int], cluster: Cluster, order: Sequence[int]
) -> ImportedProfile:
    """The layers in one order; a tensor that takes t nanoseconds has t bytes, and a link moves a byte a nanosecond."""
    position = {layer: index for index, layer in enumerate(order)}
    members: list[list[_Node]] = [[] for _ in order]
    for node in graph.nodes:
        members[position[layer_of[node.id]]].append(node)
    readers: dict[int, set[int]] = {}
    costs: dict[int, float] = {}
    for edge in graph.edges:
        readers.setdefault(edge.source_id, set()).add(position[layer_of[edge.dest_id]])
        costs[edge.source_id] = max(edge.cost, costs.get(edge.source_id, 0.0))
    profile = ModelProfile(
        model=name,
        target="dnn-partitioning",
        options=None,
        names=tuple(_name(nodes) for nodes in members),
        kinds=tuple(map(str, order)),
        tied=(None,) * len(order),
        layers=tuple(map(_layer, members)),
    )
    tensors = tuple(
        TensorUse(position[layer_of[node]], tuple(sorted(positions)), round(costs[node] * CLOCK_HZ))
        for node, positions in readers.items()
    )
    return ImportedProfile((ImportedKind(profile, cluster),), tensors, False, Period.SERIAL, "", CLOCK_HZ)


def _name(nodes: list[_Node]) -> str:
    """The name of the first node, and how many more there are."""
    first = nodes[0].name or str(nodes[0].id)
    return first if len(nodes) == 1 else f"{first} and {len(nodes) - 1} more"


def _layer(nodes: list[_Node]) -> LayerProfile:
    def cycles(*, backward: bool) -> int:
        return round(CLOCK_HZ * sum(node.fpga_latency for node in nodes if bool(node.is_backward_node) == backward))

    size = round(sum(node.size for node in nodes))
    return LayerProfile(cycles(backward=False), cycles(backward=True), {}, {PARAMETER: size}, 0, 0, 0, 0, 0)
