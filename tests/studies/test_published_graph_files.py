"""Profiles of other programs as they are read; what their plans cost is in tests/studies/test_published_graphs.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.costs.cost import TensorUse
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link, Period
from studies.published_graphs.dnn_partitioning import read_dnn_partitioning
from studies.published_graphs.pipedream import read_pipedream
from studies.published_graphs.pipeedge import read_pipeedge

LINK = Link(1e9, 0)


def node(number: int, latency: float = 1.0, **other: Any) -> dict[str, Any]:
    return {"id": number, "fpgaLatency": latency, "supportedOnFpga": True, "isBackwardNode": False, **other}


def graph(path: Path, nodes: list[dict[str, Any]], edges: list[tuple[int, int, float]]) -> Path:
    lines = [{"sourceId": a, "destId": b, "cost": cost} for a, b, cost in edges]
    path.write_text(json.dumps({"maxSizePerFPGA": 100.0, "maxFPGAs": 2, "nodes": nodes, "edges": lines}))
    return path


def test_nodes_of_one_colour_are_one_layer(tmp_path: Path) -> None:
    nodes = [node(1, 2.0, colorClass=7, size=3.0, name="a"), node(5, 0.5), node(6, 1.0, colorClass=7, size=4.0)]
    read = read_dnn_partitioning(graph(tmp_path / "g.json", nodes, [(1, 5, 0.25), (6, 5, 0.125)]))
    assert (read.n_layers, read.edges) == (2, frozenset({(0, 1)}))
    profile = read.in_order([0, 1])
    [(layers, cluster)] = profile.kinds
    assert layers.names == ("a and 1 more", "5")
    assert [layer.forward_cycles for layer in layers.layers] == [3_000_000_000, 500_000_000]
    assert layers.layers[0].exclusive == {"parameter": 7}
    assert profile.tensors == (TensorUse(0, (1,), 250_000_000), TensorUse(0, (1,), 125_000_000))
    assert (len(cluster), cluster.devices[0].memory_bytes, profile.period) == (2, 100.0, Period.SERIAL)


@pytest.mark.parametrize("turned", [False, True])
def test_a_backward_node_belongs_to_its_forward_node(tmp_path: Path, turned: bool) -> None:
    """Gradients flow from the last layer to the first; some files have their edges the other way."""
    back = [node(number + 10, 2.0, isBackwardNode=1, colorClass=number) for number in (1, 2, 3)]
    nodes = [*(node(number, colorClass=number) for number in (1, 2, 3)), *back]
    gradients = [(13, 12, 1.0), (12, 11, 1.0)]
    edges = [(1, 2, 1.0), (2, 3, 1.0), (3, 13, 1.0), *((b, a, c) if turned else (a, b, c) for a, b, c in gradients)]
    read = read_dnn_partitioning(graph(tmp_path / "g.json", nodes, edges))
    assert (read.n_layers, read.edges) == (3, frozenset({(0, 1), (1, 2)}))
    layers = read.in_order([0, 1, 2]).kinds[0].profile.layers
    assert [(layer.forward_cycles, layer.backward_cycles) for layer in layers] == [(10**9, 2 * 10**9)] * 3


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        ([node(1), node(1)], [], "nodes need ids that differ"),
        ([], [], "one node at least"),
        ([node(1)], [(1, 2, 0.0)], "an edge must lead from node to node, got 2"),
        ([node(1, supportedOnFpga=0)], [], "node 1 is not"),
        ([node(1, -1.0)], [], "node 1 has others"),
        ([node(1), node(2)], [(1, 2, 1e300)], "cost must be from 0, the edge from node 1 has 1e.300"),
        ([{"id": 1}], [], r"nodes\[0\] must have the field fpgaLatency"),
    ],
)
def test_a_graph_that_cannot_be_planned_is_refused(
    tmp_path: Path, nodes: list[dict[str, Any]], edges: list[tuple[int, int, float]], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        read_dnn_partitioning(graph(tmp_path / "g.json", nodes, edges))


LINE = "forward_compute_time=1.5, backward_compute_time=2.0, activation_size={}, parameter_size=8.0"


def pipedream(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines))
    return path


def test_pipedream_without_input_and_unread_outputs(tmp_path: Path) -> None:
    path = pipedream(
        tmp_path / "graph.txt",
        f"node1 -- Input0 -- {LINE.format(9.0)}",
        f"node2 -- LSTM(1, 2) -- {LINE.format('[4.0; 2.0]')} -- stage_id=3",
        f"node3 -- __getitem__(1) -- {LINE.format(4.0)}",
        f"node4 -- Add(inplace) -- {LINE.format(16.0)}",
        "\tnode1 -- node2",
        "\tnode2 -- node3",
        "\tnode2 -- node4",
    )
    read = read_pipedream(path, 3, LINK)
    assert (read.n_layers, read.edges) == (2, frozenset({(0, 1)}))
    profile = read.in_order([0, 1])
    [(layers, cluster)] = profile.kinds
    assert (layers.names, len(cluster), profile.unit) == (("LSTM(1, 2)", "Add(inplace)"), 3, "ms")
    first, second = layers.layers
    assert (first.forward_cycles, first.backward_cycles, first.exclusive) == (1_500_000, 2_000_000, {"parameter": 8})
    assert (first.input_bytes, first.output_bytes, second.input_bytes, second.output_bytes) == (0, 6, 6, 0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["node1 -- Conv"], "line 1: it must be a node of PipeDream or an edge between two of them"),
        ([f"node1 -- Input0 -- {LINE.format(1.0)}"], "needs a layer at least, got none"),
        ([*(f"{n} -- x -- {LINE.format(1.0)}" for n in "ab"), "a -- b", "b -- a"], "no cycle, this one has"),
    ],
)
def test_no_profile_of_pipedream_is_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_pipedream(pipedream(tmp_path / "graph.txt", *lines), 2, LINK)
    with pytest.raises(BadInput, match="is a text file"):
        read_pipedream(tmp_path / "none.txt", 2, LINK)


TYPES = """
fast: {bw_Mbps: 8, mem_MB: 64, model_profiles: {net: [{batch_size: 2, dtype: torch.float16, time_s: [1, 2]}]}}
slow: {bw_Mbps: 16, mem_MB: 32, model_profiles: {net: [{batch_size: 2, dtype: torch.float16, time_s: [3, 4]}]}}
none: {bw_Mbps: 0, mem_MB: 0, model_profiles: null}
"""
MODELS = """
empty: {layers: 0, mem_MB: [], parameters_in: 0, parameters_out: []}
net: {layers: 2, mem_MB: [5, 6], parameters_in: 10, parameters_out: [20, 30]}
"""


def pipeedge(folder: Path, devices: str, types: str = TYPES) -> Path:
    for name, text in (("device_types", types), ("models", MODELS), ("devices", devices)):
        (folder / f"{name}.yml").write_text(text)
    return folder


def test_pipeedge_has_a_profile_a_type(tmp_path: Path) -> None:
    read = read_pipeedge(pipeedge(tmp_path, "{fast: [a, b], slow: [c], none: []}") / "device_types.yml", "net")
    assert (read.n_layers, read.edges, read.notes) == (2, frozenset({(0, 1)}), ("model net",))
    fast, slow = read.in_order([0, 1]).kinds
    assert [len(kind.cluster) for kind in (fast, slow)] == [2, 1]
    assert fast.cluster.send_links[0] == Link(1024**2, 0)
    assert slow.cluster.devices[0].memory_bytes == 32 * 1024**2
    assert [layer.forward_cycles for layer in slow.profile.layers] == [3 * 10**9, 4 * 10**9]
    assert [(layer.input_bytes, layer.output_bytes) for layer in fast.profile.layers] == [(40, 80), (80, 120)]


def test_devices_of_a_type_without_profile_get_that_of_the_type_without_devices(tmp_path: Path) -> None:
    read = read_pipeedge(pipeedge(tmp_path, "{fast: [a], other: [b, c]}"))
    assert [len(kind.cluster) for kind in read.in_order([0, 1]).kinds] == [1, 2]
    assert read.notes == ("model net", "devices other have no profile; that of slow, which has no devices, is theirs")
    alone = read_pipeedge(pipeedge(tmp_path, "{fast: [a], slow: [b], other: [c]}"))
    assert alone.notes[1:] == ("other have no profile and are not used",)


@pytest.mark.parametrize(
    ("devices", "types", "model", "message"),
    [
        ("{fast: [a]}", TYPES, "nets", "has the models net, got 'nets'"),
        ("{fast: []}", TYPES, None, "no device that there is has a profile of net"),
        ("{fast: [a]}", TYPES.replace("[1, 2]", "[1]"), None, "times and sizes for each of 2 layers, fast has others"),
        ("{fast: [a]}", TYPES.replace("torch.float16", "int3"), None, "a dtype is torch.float32, .*, got int3"),
        ("{fast: [a", TYPES, None, "must be a file of PipeEdge"),
        ("{fast: 1}", TYPES, None, "fast must be a list"),
        ("{none: [a], fast: [b]}", TYPES.replace("bw_Mbps: 8", "bw_Mbps: 0"), None, "bw_Mbps and mem_MB of fast"),
    ],
)
def test_files_of_pipeedge_that_do_not_fit_are_refused(
    tmp_path: Path, devices: str, types: str, model: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        read_pipeedge(pipeedge(tmp_path, devices, types), model)


def test_a_missing_file_of_pipeedge_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"device_types\.yml: it must be a file of PipeEdge, .*No such file"):
        read_pipeedge(tmp_path)
