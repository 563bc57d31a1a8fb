"""Nodes of a profile of ONNX Runtime on the layers of a model that is written down here, with all numbers by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.profile.importers.importer import FileNode, ProfiledFile
from autoauto.profile.importers.onnxruntime_join import IMPORTER, join_model
from autoauto.profile.importers.onnxruntime_trace import NodeRecord
from autoauto.profile.importers.recorded import Layers
from autoauto.records.errors import BadInput
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.units import Precision

Named = tuple[str, str, str]  # a node of the file: its name, operator, and output


def chain(nodes: Sequence[Named], n_elements: Sequence[int]) -> LayerGraph:
    """Layers in a row after an input of 4 elements a sample; layer i writes `n_elements[i]`, and has a weight of 10."""
    lengths = [4, *n_elements]
    names = ["x", *(output for _, _, output in nodes)]
    tensors = [
        Tensor(name, (1, n), 0, "float", i - 1, i) for i, (name, n) in enumerate(zip(names, lengths, strict=True))
    ]
    weights = [Tensor(f"w{i}", (10,), None, "float", -1, i) for i in range(len(nodes))]
    n_tensors = len(tensors)
    layers = [
        Layer(name or output, op, (), (i,), (i + 1,), (n_tensors + i,), (i, n_tensors + i), op, None)
        for i, (name, op, output) in enumerate(nodes)
    ]
    return LayerGraph("hand", tuple(layers), (*tensors, *weights), None, "digest")


def ran(name: str, op: str, seconds: float, *shape: int, position: int = 99, temporary_bytes: int = 0) -> NodeRecord:
    return NodeRecord(name, op, position, seconds, 0, 0, 0, temporary_bytes, shape or None)


NODES: tuple[Named, ...] = (
    ("n0", "Conv", "c0"),
    ("n1", "Relu", "r1"),
    ("fc.MatMul", "MatMul", "m2"),
    ("norm", "LayerNormalization", "l3"),
    ("", "Gemm", "y"),
)
GRAPH = chain(NODES, [8, 8, 3, 3, 5])
FILE = [FileNode("k", "ConstantOfShape", ("k",)), *(FileNode(name, op, (output,)) for name, op, output in NODES)]
RAN = (
    ran("k", "ConstantOfShape", 0.5),  # makes a constant, which is a weight here
    ran("r1_nchwc", "Conv", 0.004, 2, 8, temporary_bytes=100),  # computes n0 and n1
    ran("fc.MatMul/MatMulAddFusion", "FusedMatMul", 0.003, 2, 3),
    ran("SkipLayerNormalization_token_66", "SkipLayerNormalization", 0.002, 2, 3),
    ran("renamed", "Gemm", 0.001, 2, 5, position=5),
)


def join(nodes: Sequence[NodeRecord], batch_size: int | None = None, graph: LayerGraph = GRAPH) -> tuple[int, Layers]:
    return join_model(ProfiledFile(graph, FILE, Precision.FP32), nodes, batch_size, "p.json")


def test_every_node_has_its_layer_and_the_shapes_say_the_batch_size() -> None:
    size, layers = join(RAN)
    assert size == 2
    assert [layer.name for layer in layers] == ["n0", "n1", "fc.MatMul", "norm", "y"]
    assert [layer.forward_s for layer in layers] == [0.0, 0.004, 0.003, 0.002, 0.001]
    # Two samples of 4, 8, 8, 3, 3 and 5 elements of 4 bytes; the node of n1 allocates 100 bytes of its own.
    assert [layer.input_bytes for layer in layers] == [32, 64, 64, 24, 24]
    assert [layer.output_bytes for layer in layers] == [64, 64, 24, 24, 40]
    assert [layer.temporary_bytes for layer in layers] == [96, 128 + 100, 88, 48, 64]
    assert [layer.parameter_bytes for layer in layers] == [40] * 5
    assert [layer.carried_bytes for layer in layers] == [0] * 5
    # The layer without a node is in the node of the next one, and no other layers share a stage.
    assert layers[0].tied is not None
    assert [layer.tied for layer in layers] == [layers[0].tied, layers[0].tied, None, None, None]


def test_nodes_of_one_layer_add_their_times_and_its_memory_is_the_largest() -> None:
    twice = (RAN[1], ran("n1", "Relu", 0.010, 2, 8, temporary_bytes=60), *RAN[2:])
    _, layers = join(twice)
    assert layers[1].forward_s == pytest.approx(0.014)
    assert layers[1].temporary_bytes == 128 + 100


def test_a_tensor_that_passes_a_layer_is_carried_and_no_temporary_memory() -> None:
    longer = GRAPH.tensors[1]._replace(last_use=3)  # what layer 0 writes
    reads_it = replace(GRAPH.layers[3], inputs=(3, 1), operands=(3, 1, 9))
    graph = replace(
        GRAPH,
        tensors=(GRAPH.tensors[0], longer, *GRAPH.tensors[2:]),
        layers=(*GRAPH.layers[:3], reads_it, GRAPH.layers[4]),
    )
    _, layers = join(RAN, graph=graph)
    assert [layer.carried_bytes for layer in layers] == [0, 64, 64, 0, 0]
    assert [layer.temporary_bytes for layer in layers] == [96, 64 + 100, 64 + 24, 24 + 64 + 24, 64]


@pytest.mark.parametrize(
    ("nodes", "given", "message"),
    [
        (RAN, 3, r"node 'renamed' has the output \[2, 5\], hand has \[3, 5\]"),
        (
            (*RAN[:4], ran("renamed", "Gemm", 0.001, 2, 6, position=5)),
            None,
            r"has the output \[2, 6\], hand has \[1, 5\]",
        ),
        ((*RAN, ran("norm", "LayerNormalization", 0.001, 4, 3)), None, r"has the output \[4, 3\], hand has \[2, 3\]"),
    ],
)
def test_another_batch_size_or_shape_is_refused(nodes: Sequence[NodeRecord], given: int | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        join(nodes, given)


def test_a_given_batch_size_holds_where_no_node_of_the_file_has_a_shape() -> None:
    shapeless = [node._replace(output_shape=None) for node in RAN]
    assert join(shapeless, 7)[0] == 7
    assert join(shapeless)[0] == 1


def test_a_node_with_another_operator_or_at_a_named_node_is_not_the_node_at_its_index() -> None:
    """Index 5 has a Gemm without a name, index 1 a Conv with one; elsewhere a node of this shape has the last place."""
    for op, position in (("Softmax", 5), ("Gemm", 6), ("Conv", 1)):
        with pytest.raises(BadInput, match="is of another model: it has too few products before 'y'"):
            join((*RAN[:4], ran("other", op, 0.0, 2, 3, position=position)))


@pytest.mark.parametrize(("other_s", "refused"), [(0.0011, False), (0.0012, True)])
def test_other_products_may_take_a_tenth_of_the_time(other_s: float, *, refused: bool) -> None:
    """The nodes of the file take 10 ms, so a product beside them takes 10 % from 1.111 ms on."""
    nodes = (*RAN[:3], ran("other", "MatMul", other_s, 2, 3), *RAN[3:])
    if not refused:
        assert sum(layer.forward_s for layer in join(nodes)[1]) == pytest.approx(0.010 + other_s)
        return
    with pytest.raises(BadInput, match="has no nodes of these names, for example 'other'"):
        join(nodes)


@pytest.mark.parametrize(("norm_s", "share"), [(0.0079, None), (0.0082, "51 %"), (0.024, "75 %")])
def test_nodes_that_the_optimiser_made_may_take_half_of_the_time(norm_s: float, share: str | None) -> None:
    """The others take 8 ms."""
    nodes = (*RAN[:3], RAN[3]._replace(seconds=norm_s), RAN[4])
    if share is None:
        assert join(nodes)[1][3].forward_s == norm_s
        return
    with pytest.raises(BadInput, match=f"nodes with {share} of the time are not in hand"):
        join(nodes)


def test_nothing_but_unknown_names_is_another_model() -> None:
    for nodes in ((), (RAN[0],), (ran("a", "Relu", 0.0, 2, 3), ran("b", "Add", 0.0, 2, 3))):
        with pytest.raises(BadInput, match="hand has no nodes of these names; give"):
            join(nodes)


ROW: tuple[Named, ...] = tuple((f"n{i}", "MatMul" if i in (1, 4) else "Relu", f"t{i}") for i in range(6))


@pytest.mark.parametrize(
    ("lengths", "names", "expected"),
    [
        ([4, 4, 4, 4, 4, 4], ["n1", "?", "n4"], [1, 3, 4]),  # the last that fits
        ([4, 4, 4, 9, 4, 4], ["n1", "?", "n4"], [1, 2, 4]),
        ([4, 4, 9, 9, 4, 4], ["n1", "?", "n4"], [1, 1, 4]),  # none fits: that of the node before it
        ([4, 4, 4, 4, 4, 4], ["n1", "n4", "?"], [1, 4, 5]),
        ([4, 4, 4, 4, 4, 9], ["n1", "n4", "?"], [1, 4, 4]),
        ([4, 4, 4, 4, 4, 4], ["?", "n1", "n4"], [0, 1, 4]),
        ([9, 4, 4, 4, 4, 4], ["?", "n1", "n4"], [1, 1, 4]),  # and without one before it, that of the one behind it
    ],
)
def test_a_node_without_a_known_name_is_the_last_between_its_neighbours_that_writes_its_shape(
    lengths: list[int], names: list[str], expected: list[int]
) -> None:
    """Nodes take 4, 2 and 1 s in their order, so that a sum says which of them a layer has."""
    graph = chain(ROW, lengths)
    nodes = [
        ran(name, "Relu" if name == "?" else "MatMul", s, 1, 4) for name, s in zip(names, (4.0, 2.0, 1.0), strict=True)
    ]
    nodes = [node._replace(seconds=node.seconds / 1000) if node.name == "?" else node for node in nodes]
    file = ProfiledFile(graph, [FileNode(*row[:2], row[2:]) for row in ROW], Precision.FP32)
    _, layers = join_model(file, nodes, None, "p")
    seconds = [0.0] * 6
    for node, layer in zip(nodes, expected, strict=True):
        seconds[layer] += node.seconds
    assert [layer.forward_s for layer in layers] == seconds


PRODUCTS: tuple[Named, ...] = (
    ("a", "MatMul", "ta"),
    ("b", "MatMul", "tb"),
    ("c", "MatMul", "tc"),
    ("d", "Relu", "td"),
    ("e", "Add", "te"),
)


@pytest.mark.parametrize(
    ("nodes", "lacks"),
    [
        ([("a", "MatMul"), ("b", "MatMul"), ("c", "MatMul"), ("d", "Relu")], None),
        ([("a", "MatMul"), ("b", "MatMul"), ("other", "FusedMatMul"), ("d", "Relu")], None),  # c, by its neighbours
        ([("a", "MatMul"), ("b", "MatMul"), ("td_nchwc", "FusedMatMul")], None),  # c is in what writes td
        ([("a", "MatMul"), ("td_nchwc", "FusedMatMul")], "d"),  # one product cannot be two
        ([("td_nchwc", "Attention")], None),  # an attention is several
        ([("a", "MatMul"), ("c", "MatMul"), ("d", "Relu")], "c"),  # a node of the file is that node alone
        ([("a", "MatMul"), ("b", "MatMul"), ("d", "Relu")], "d"),
        ([("a", "MatMul"), ("b", "MatMul")], "e"),  # and there is none behind the last
    ],
)
def test_every_product_of_the_file_has_a_node_or_is_in_the_next_one(
    nodes: list[tuple[str, str]], lacks: str | None
) -> None:
    graph = chain(PRODUCTS, [4] * 5)
    file = ProfiledFile(graph, [FileNode(*row[:2], row[2:]) for row in PRODUCTS], Precision.FP32)
    recorded = [ran(name, op, 0.0 if name == "other" else 1.0, 1, 4) for name, op in nodes]
    if lacks is None:
        _, layers = join_model(file, recorded, None, "p")
        assert sum(layer.forward_s for layer in layers) == sum(node.seconds for node in recorded)
        return
    with pytest.raises(BadInput, match=f"it has too few products before '{lacks}' of hand"):
        join_model(file, recorded, None, "p")


def test_layers_that_share_a_weight_share_a_stage_with_all_that_their_nodes_compute() -> None:
    """n0 and l4 share a weight; the node of n0's follower computes n0 as well."""
    first, *rest, last = GRAPH.layers
    graph = replace(GRAPH, layers=(replace(first, tied="w"), *rest, replace(last, tied="w")))
    tied = [layer.tied for layer in join(RAN, graph=graph)[1]]
    assert tied[0] is not None
    assert tied == [tied[0], tied[0], None, None, tied[0]]


def test_the_first_layer_is_known_by_what_it_writes_and_an_input_is_no_layer() -> None:
    """A node that brings the input into another order takes 0.1 ms, and is part of the next node."""
    nodes = (
        ran("x", "ReorderInput", 0.0001, 2, 4),
        ran("c0_nchwc", "Conv", 0.004, 2, 8),
        ran("n1", "Relu", 0.002, 2, 8),
    )
    _, layers = join((*nodes, *RAN[2:]))
    assert [layer.forward_s for layer in layers] == [0.0041, 0.002, 0.003, 0.002, 0.001]


def test_samples_along_an_axis_of_several_entries_count_once() -> None:
    """Each sample has 3 rows, so that 6 rows are two of them."""
    rows = GRAPH.tensors[5]._replace(shape=(3, 5))
    graph = replace(GRAPH, tensors=(*GRAPH.tensors[:5], rows, *GRAPH.tensors[6:]))
    assert join((*RAN[:4], ran("renamed", "Gemm", 0.001, 6, 5, position=5)), graph=graph)[0] == 2
    with pytest.raises(BadInput, match=r"has the output \[7, 5\], hand has \[3, 5\]"):
        join((*RAN[:4], ran("renamed", "Gemm", 0.001, 7, 5, position=5)), graph=graph)


def test_a_file_is_joined_or_read_as_a_line(tmp_path: Path) -> None:
    """A run of two nodes, of 30 and 20 microseconds, of which the memory file says what the first allocates."""
    path, memory = tmp_path / "p.json", tmp_path / "memory.csv"
    events: list[dict[str, object]] = [{"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}]
    for name, op, start, duration in (("n0", "Conv", 10, 30), ("n1", "Relu", 40, 20)):
        shapes = [{"float": [2, 8]}]
        arguments = {"op_name": op, "output_type_shape": shapes, "output_size": "64", "activation_size": "32"}
        events.append({"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": arguments})
    path.write_text(json.dumps(events))
    header = "#name,input_sizes,initializers_sizes,total_dynamic_sizes,total_temp_allocations"
    memory.write_text(f"{header}\nn0_123,1,2,3,100\n")
    graph = chain(NODES[:2], [8, 8])
    assert IMPORTER.join is not None
    joined = IMPORTER.join(path, memory, None, ProfiledFile(graph, FILE[1:3], Precision.FP32))
    assert (joined.name, joined.batch_sizes) == ("hand", (2,))
    assert joined.notes == ("p.json: times are one run, its first",)
    assert [layer.forward_s for layer in joined.at(2)] == [30e-6, 20e-6]
    assert [layer.temporary_bytes for layer in joined.at(2)] == [32 + 64 + 100, 128]
    line = IMPORTER.read(path, memory, 2)
    assert (line.name, line.batch_sizes) == ("p", (2,))
    assert [layer.forward_s for layer in line.at(2)] == [30e-6, 20e-6]
    assert [layer.temporary_bytes for layer in line.at(2)] == [32 + 64 + 100, 128]
    with pytest.raises(BadInput, match=r"must write an axis of the batch size 1, got \[2, 8\] of the first"):
        IMPORTER.read(path, memory, None)
