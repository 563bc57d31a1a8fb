from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.facts import infer_facts
from autoauto.graph.layers import is_matrix, is_view, is_weight_view, layers_of, ties
from autoauto.graph.load import load_graph
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import LayerGraph

FLAGS = {"on": np.array(True), "half": np.array(0.5, np.float32)}
VIEWS: dict[str, tuple[Any, bool]] = {
    "reshape": (("Reshape x s > y", {"x": ["n", 1, 4]}, "y", {"s": [-1, 4]}), True),
    "expand to itself": (("Expand x s > y", {"x": ["n", 4]}, "y", {"s": [4]}), True),
    "expand": (("Expand x s > y", {"x": ["n", 1]}, "y", {"s": [1, 4]}), False),
    "tile once": (("Tile x s > y", {"x": ["n", 4]}, "y", {"s": [1, 1]}), True),
    "cast to half": (("Cast x > y to=10", {"x": ["n", 4]}, "y"), True),
    "cast to integer": (("Cast x > y to=7", {"x": ["n", 4]}, "y"), False),
    "cast of integers": (("Cast x > y to=6", {"int:x": ["n", 4]}, "y"), True),
    "transpose": (("Transpose x > y perm=0,2,1", {"x": ["n", 3, 4]}, "y"), False),
    "transpose of ones": (("Transpose x > y perm=0,2,1", {"x": ["n", 1, 4]}, "y"), True),
    "transpose of the batch": (("Transpose x > y perm=1,0", {"x": ["n", 4]}, "y"), False),
    "dropout": (("Dropout x > y", {"x": ["n", 4]}, "y"), True),
    "dropout with mask": (("Dropout x > a m; Where m a x > y", {"x": ["n", 4]}, "y"), False),
    "dropout in training": (("Dropout x half on > y", {"x": ["n", 4]}, "y", FLAGS), False),
    "sum of one": (("Sum x > y", {"x": ["n", 4]}, "y"), True),
    "sum of two": (("Sum x x > y", {"x": ["n", 4]}, "y"), False),
    "relu": (("Relu x > y", {"x": ["n", 4]}, "y"), False),
}


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def names(graph: LayerGraph, indices: tuple[int, ...]) -> list[str]:
    return ["-" if index < 0 else graph.tensors[index].name for index in indices]


def build(make: Any, *arguments: Any) -> LayerGraph:
    return layers_of("m", infer_facts(make(*arguments)))


def test_views_have_a_root_and_a_shape_of_their_own(make: Any) -> None:
    nodes = "Relu x > a; Reshape a s > r; MatMul r w > b; Reshape b t > y; Add a a > z"
    graph = build(make, nodes, {"x": ["n", 2, 3]}, "y z", {"s": [-1, 3], "t": [-1, 2, 4], "w": ones(3, 4)})
    relu, product, add = graph.layers
    assert [layer.op for layer in graph.layers] == ["Relu", "MatMul", "Add"]
    assert names(graph, product.operands) == ["r", "w"]
    assert names(graph, product.inputs) == ["a"]
    assert names(graph, product.weights) == ["w"]
    assert names(graph, add.inputs) == ["a"]
    view, root, result = (
        graph.tensors[index] for index in (product.operands[0], product.inputs[0], product.outputs[0])
    )
    assert (view.shape, view.batch_axis, root.shape) == ((2, 3), 0, (1, 2, 3))
    assert (view.producer, view.last_use) == (root.producer, root.last_use) == (0, 2)
    assert result[:] == ("b", (2, 4), 0, "float", 1, 3, False, False)  # its view is an output of the model
    assert graph.tensors[relu.inputs[0]][4:6] == (-1, 0)


def test_constants_and_shapes_leave_no_layer(make: Any) -> None:
    nodes = (
        "ConstantOfShape big > w; Mul w half > v; Shape x > s; Relu x > r; Shape r > q; "
        "ConstantOfShape q > zeros; Add r v > a; Reshape a s > b; Max b zeros > y"
    )
    graph = build(make, nodes, {"x": ["n", 3]}, "y", {"big": [1, 3], "half": np.array(0.5, np.float32)})
    assert [layer.op for layer in graph.layers] == ["Relu", "ConstantOfShape", "Add", "Max"]
    assert names(graph, graph.layers[2].weights) == ["v"]
    assert graph.layers[1].inputs == ()  # as many zeros as samples cannot be a constant


def test_a_layer_read_for_its_shape_only_is_dropped(make: Any) -> None:
    nodes = "Exp x > e; Shape e > s; Relu x > r; Expand r s > y"
    assert [layer.op for layer in build(make, nodes, {"x": ["n", 3]}, "y").layers] == ["Relu"]


def test_the_embedding_is_the_head(make: Any) -> None:
    nodes = (
        "Gather w x > e; LayerNormalization e s s > n; MatMul n v > h; Add h h > g; Transpose w > t; "
        "Cast t > c to=1; MatMul g c > y"
    )
    graph = build(make, nodes, {"int:x": ["n", 5]}, "y", {"w": ones(9, 4), "s": ones(4), "v": ones(4, 4)})
    assert [layer.tied for layer in graph.layers] == ["w", None, None, None, "w"]
    head = graph.layers[-1]
    assert names(graph, head.operands) == ["g", "c"]
    assert names(graph, head.weights) == ["w"]
    assert graph.tensors[head.operands[1]].shape == (4, 9)
    assert graph.tensors[head.weights[0]][1:] == ((9, 4), None, "float", -1, 4, False, False)


def test_equal_vectors_and_masks_tie_nothing(make: Any) -> None:
    nodes = "Add x m > a; LayerNormalization a s s > b; LayerNormalization b s s > c; Add c m > y"
    graph = build(make, nodes, {"x": ["n", 5, 4]}, "y", {"s": ones(4), "m": ones(5, 4)})
    assert {layer.tied for layer in graph.layers} == {None}


def test_omitted_operands_and_unread_outputs(make: Any) -> None:
    nodes = "LSTM x w r - - h > o n c hidden_size=3; Relu n > y"
    constants = {"w": ones(1, 12, 6), "r": ones(1, 12, 3), "h": ones(1, 2, 3)}
    lstm = build(make, nodes, {"x": [5, 2, 6]}, "y", constants)
    assert names(lstm, lstm.layers[0].operands) == ["x", "w", "r", "-", "-", "h"]
    assert names(lstm, lstm.layers[0].outputs) == ["n"]


def test_a_repeated_operand_is_one_input(make: Any) -> None:
    (layer,) = build(make, "Mul x x > y", {"x": ["n", 4]}, "y").layers
    assert (len(layer.inputs), len(layer.operands)) == (1, 2)


def test_names_are_unique(make: Any) -> None:
    model = make("Relu x > a; Relu a > b; Relu b > y", {"x": ["n", 4]}, "y")
    for node, name in zip(model.graph.node, ("same", "same", ""), strict=True):
        node.name = name
    assert [layer.name for layer in layers_of("m", infer_facts(model)).layers] == ["a", "b", "y"]


def test_different_models_have_different_content(make: Any) -> None:
    first, again, other = (build(make, "Relu x > y", {"x": ["n", width]}, "y") for width in (4, 4, 5))
    assert first.content == again.content != other.content


@pytest.mark.parametrize("program", ["Identity x > y", "Reshape x s > y", "Add w w > y"])
def test_a_model_that_computes_nothing_is_refused(program: str, make: Any) -> None:
    with pytest.raises(UnreadableModel, match="needs a node that computes"):
        build(make, program, {"x": ["n", 4]}, "y", {"s": [-1], "w": ones(2)})


def test_layers_without_a_common_matrix_are_not_tied() -> None:
    assert ties([["a"], ["b"], []]) == [None, None, None]


def test_matrices_connect_the_layers_that_read_them() -> None:
    """a ties 0 and 1, b ties 1 and 2: all three are one group."""
    first, second, third, fourth = ties([["a"], ["a", "b"], ["b"], ["c"]])
    assert first == second == third is not None
    assert fourth is None


def test_a_mask_ties_nothing(make: Any) -> None:
    graph = build(make, "Add x m > a; Add a m > b; MatMul b m > y", {"x": ["n", 4, 4]}, "y", {"m": ones(4, 4)})
    assert [layer.tied for layer in graph.layers] == [None, None, None]


def test_reading_a_matrix_twice_in_one_layer_ties_it_to_no_other() -> None:
    assert ties([["w", "w"]]) == [None]


def test_a_matrix_has_two_axes_longer_than_one() -> None:
    assert is_matrix((3, 3), "float")
    assert is_matrix((64, 1, 3, 3), "float")  # a depthwise convolution
    assert not is_matrix((1, 1, 8), "float")
    assert not is_matrix((), "float")


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_its_first_input_under_another_shape(name: str, make: Any) -> None:
    arguments, expected = VIEWS[name]
    known = infer_facts(make(*arguments))
    assert is_view(known.model.graph.node[0], known.facts) is expected


def test_a_weight_is_transposed_once(make: Any) -> None:
    nodes = "Transpose w > t; MatMul x t > y"
    known = infer_facts(make(nodes, {"x": ["n", 4]}, "y", {"w": np.ones((3, 4), np.float32)}))
    assert is_weight_view(known.model.graph.node[0], known.facts)
    assert not is_view(known.model.graph.node[0], known.facts)


def check_invariants(graph: LayerGraph) -> None:
    assert len({layer.name for layer in graph.layers}) == len(graph)
    for number, layer in enumerate(graph.layers):
        assert layer.outputs
        assert len(set(layer.inputs)) == len(layer.inputs)
        assert all(graph.tensors[index].producer < number <= graph.tensors[index].last_use for index in layer.inputs)
        assert all(graph.tensors[index].producer == number for index in layer.outputs)
        assert all(graph.tensors[index].producer == -1 for index in layer.weights)
        assert all(index < 0 or graph.tensors[index].producer < number for index in layer.operands)
    for number, tensor in enumerate(graph.tensors):
        readers = [i for i, layer in enumerate(graph.layers) if number in (*layer.inputs, *layer.weights)]
        if readers:
            assert tensor.last_use in (readers[-1], len(graph))


@pytest.mark.parametrize("name", ["alexnet", "inception_v1", "shufflenet", "squeezenet"])
def test_invariants_of_real_models(name: str, light: Any) -> None:
    check_invariants(load_graph(str(light(name))))
