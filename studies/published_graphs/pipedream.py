"""Profiles of PipeDream, `read_pipedream`: a graph of layers with measured times as text [pipedream].

A line a node, then a line an edge:

    node5 -- ReLU() -- forward_compute_time=0.3, backward_compute_time=0.4, activation_size=64.0, parameter_size=0.0
        node4 -- node5

Times are milliseconds, sizes bytes; the activations of a layer with several outputs are a list, [64.0; 32.0].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autoauto.evaluate.imported import CLOCK_HZ, like_devices
from autoauto.records.costs.profile import PARAMETER, LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link, Period
from studies.published_graphs.graph import ImportedGraph, ImportedKind, ImportedProfile, alive_bytes, merge_cycles

CYCLES_PER_MS = CLOCK_HZ / 1000
_NUMBER = r"[0-9.eE+-]+"
_NODE = re.compile(
    rf"(?P<id>\S+) -- (?P<name>.*) -- forward_compute_time=(?P<forward>{_NUMBER}), "
    rf"backward_compute_time=(?P<backward>{_NUMBER}), activation_size=(?P<activation>{_NUMBER}|\[.*\]), "
    rf"parameter_size=(?P<parameter>{_NUMBER})( -- stage_id=\d+)?"
)
_EDGE = re.compile(r"(?P<before>\S+) -- (?P<after>\S+)")


def read_pipedream(path: Path, n_devices: int, link: Link) -> ImportedGraph:
    """The layers, for so many equal devices with these links between neighbours.

    As in PipeDream's optimizer, the input is no layer, outputs of tuples that nothing reads are left out, and devices
    have as much memory as the model needs. Compute is forward and backward together; neighbours move activations one
    way and gradients the other.

    Raises:
        BadInput: a line is neither a node nor an edge, or the graph has a cycle.
    """
    nodes, edges = _read(path)
    unread = set(nodes) - {before for before, _ in edges}
    left_out = {node for node in nodes if nodes[node]["name"].startswith("Input")}
    left_out |= {node for node in unread if nodes[node]["name"].startswith("__getitem__")}
    names = [node for node in nodes if node not in left_out]
    index = {node: number for number, node in enumerate(names)}
    pairs = [(index[a], index[b]) for a, b in edges if a in index and b in index]
    sizes = [sum(map(float, re.findall(_NUMBER, nodes[node]["activation"]))) for node in names]
    if not names:
        raise BadInput(f"{path}: a profile of PipeDream needs a layer at least, got none")
    memory = 1.0 + sum(float(nodes[node]["parameter"]) for node in names)
    cluster = like_devices("device", n_devices, memory, link)

    def in_order(order: Sequence[int]) -> ImportedProfile:
        alive = list(alive_bytes(order, pairs, sizes))
        profile = ModelProfile(
            model=path.stem,
            target="pipedream",
            options=None,
            names=tuple(nodes[names[node]]["name"] for node in order),
            kinds=tuple(names[node] for node in order),
            tied=(None,) * len(order),
            layers=tuple(_layer(nodes[names[node]], *alive[i : i + 2]) for i, node in enumerate(order)),
        )
        kinds = (ImportedKind(profile, cluster),)
        return ImportedProfile(kinds, None, True, Period.DUPLEX, "ms", CYCLES_PER_MS)

    if len(set(merge_cycles(len(names), pairs))) < len(names):
        raise BadInput(f"{path}: a graph of layers has no cycle, this one has")
    return ImportedGraph(len(names), frozenset(pairs), in_order)


def _read(path: Path) -> tuple[dict[str, dict[str, str]], list[tuple[str, str]]]:
    """The nodes by id, each with the texts of its fields, and the edges."""
    nodes: dict[str, dict[str, str]] = {}
    edges = []
    for number, line in enumerate(_lines(path), start=1):
        if node := _NODE.fullmatch(line):
            nodes[node["id"]] = node.groupdict()
        elif (edge := _EDGE.fullmatch(line)) and edge["before"] in nodes and edge["after"] in nodes:
            edges.append((edge["before"], edge["after"]))
        elif line:
            raise BadInput(f"{path}, line {number}: it must be a node of PipeDream or an edge between two of them")
    return nodes, edges


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: a profile of PipeDream is a text file, {error}") from error


def _layer(node: dict[str, str], input_bytes: int, output_bytes: int) -> LayerProfile:
    forward, backward = (round(float(node[name]) * CYCLES_PER_MS) for name in ("forward", "backward"))
    parameters = round(float(node["parameter"]))
    return LayerProfile(forward, backward, {}, {PARAMETER: parameters}, 0, 0, input_bytes, output_bytes, 0)
