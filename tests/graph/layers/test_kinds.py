"""Kinds as the seed's `layer_type_equality` has them: class, configuration and shapes, epsilon and names aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.graph.layers.facts import learn
from autoauto.graph.layers.kinds import attributes, digest, is_matrix, is_view, is_weight_view, quantise, ties
from autoauto.graph.layers.layers import layers_of
from autoauto.graph.load import load_graph
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_layers_of_one_class_and_shape_share_a_kind(make: Any) -> None:
    nodes = "Gemm x a b > 1; Relu 1 > 2; Gemm 2 c d > 3 beta=1.0; Gemm 3 c > 4; Softmax 4 > 5; Gemm 5 e f > y"
    constants = {"a": ones(4, 4), "b": ones(4), "c": ones(4, 4), "d": ones(4), "e": ones(4, 8), "f": ones(8)}
    gemm, relu, again, unbiased, softmax, wider = layers_of(
        "m", learn(make(nodes, {"x": ["n", 4]}, "y", constants))
    ).layers
    assert gemm.kind == again.kind
    assert len({layer.kind for layer in (gemm, relu, unbiased, softmax, wider)}) == 5


def test_epsilon_changes_no_code(make: Any) -> None:
    nodes = (
        "LayerNormalization x s > 1 epsilon=1e-06; LayerNormalization 1 s > 2 epsilon=1e-10; "
        "LayerNormalization 2 s2 > y axis=1"
    )
    constants = {"s": ones(6), "s2": ones(4, 6)}
    first, second, third = layers_of("m", learn(make(nodes, {"x": ["n", 4, 6]}, "y", constants))).layers
    assert first.kind == second.kind != third.kind


def test_activations_and_weights_are_told_apart(make: Any) -> None:
    nodes = "MatMul x w > 1; MatMul x z > 2; Add 1 2 > y"
    known = learn(make(nodes, {"x": ["n", 4, 4], "z": [4, 4]}, "y", {"w": ones(4, 4)}))
    first, second, _ = layers_of("m", known).layers
    assert first.kind != second.kind


def test_known_operands_and_defaults_are_attributes(make: Any) -> None:
    nodes = "Slice x a b c > s; ReduceSum s c > r; Relu r > y"
    known = learn(make(nodes, {"x": ["n", 4, 6]}, "y", {"a": [1], "b": [3], "c": [2]}))
    cut, total, relu = (attributes(node, 17, known.facts) for node in known.model.graph.node)
    assert cut == (("axes", (2,)), ("ends", (3,)), ("starts", (1,)))
    assert total == (("axes", (2,)), ("keepdims", 1), ("noop_with_empty_axes", 0))
    assert relu == ()


def test_where_a_slice_starts_is_part_of_the_kind(make: Any) -> None:
    nodes = "Slice x a b c > s; Slice x b d c > t; Slice x a b c > u; Sum s t u > y"
    known = learn(make(nodes, {"x": ["n", 6]}, "y", {"a": [0], "b": [2], "c": [1], "d": [4]}))
    first, second, third, _ = layers_of("m", known).layers
    assert first.kind == third.kind != second.kind


def test_a_digest_is_the_same_everywhere() -> None:
    assert digest("Relu", (1, 2.5)) == digest("Relu", (1, 2.5)) != digest("Relu", (1, 2))


def test_layers_without_a_common_matrix_are_free() -> None:
    assert ties([("MatMul", ["a"]), ("MatMul", ["b"]), ("Relu", [])]) == [None, None, None]


def test_matrices_chain() -> None:
    """a ties 0 and 1, b ties 1 and 2: all three are one group."""
    first, second, third, fourth = ties([("Gemm", ["a"]), ("Einsum", ["a", "b"]), ("Gather", ["b"]), ("Gemm", ["c"])])
    assert first == second == third is not None
    assert fourth is None


def test_a_mask_ties_nothing() -> None:
    assert ties([("Add", ["mask"]), ("Add", ["mask"]), ("MatMul", ["mask"])]) == [None, None, None]


def test_reading_a_matrix_twice_in_one_layer_ties_it_to_no_other() -> None:
    assert ties([("LSTM", ["w", "w"])]) == [None]


def test_what_a_matrix_is() -> None:
    assert is_matrix((3, 3), "float")
    assert is_matrix((64, 1, 3, 3), "float")  # a depthwise convolution
    assert not is_matrix((1, 1, 8), "float")
    assert not is_matrix((), "float")


TRUE = {"on": np.array(True), "half": np.array(0.5, np.float32)}
CASES: dict[str, tuple[Any, bool]] = {
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
    "dropout in training": (("Dropout x half on > y", {"x": ["n", 4]}, "y", TRUE), False),
    "sum of one": (("Sum x > y", {"x": ["n", 4]}, "y"), True),
    "sum of two": (("Sum x x > y", {"x": ["n", 4]}, "y"), False),
    "relu": (("Relu x > y", {"x": ["n", 4]}, "y"), False),
}


@pytest.mark.parametrize("name", CASES)
def test_views(name: str, make: Any) -> None:
    arguments, expected = CASES[name]
    known = learn(make(*arguments))
    assert is_view(known.model.graph.node[0], known.facts) is expected


def test_a_weight_is_transposed_once(make: Any) -> None:
    nodes = "Transpose w > t; MatMul x t > y"
    known = learn(make(nodes, {"x": ["n", 4]}, "y", {"w": np.ones((3, 4), np.float32)}))
    assert is_weight_view(known.model.graph.node[0], known.facts)
    assert not is_view(known.model.graph.node[0], known.facts)


def marked(graph: LayerGraph) -> list[bool]:
    return [layer.attribute("precision") == "fp8" for layer in graph.layers]


@pytest.mark.parametrize(("name", "op"), [("resnet50", "Conv"), ("bert-base-128", "MatMul")])
def test_products_are_marked_but_the_first_convolution_and_the_last_matrix_product(name: str, op: str) -> None:
    graph = load_graph(name)
    products = [i for i, layer in enumerate(graph.layers) if layer.op in {"Conv", "Gemm", "MatMul"}]
    kept = {products[-1]} | ({products[0]} if op == "Conv" else set())
    assert [i for i, is_marked in enumerate(marked(quantise(graph))) if is_marked] == sorted({*products} - kept)


def test_weights_of_marked_products_take_one_byte_and_all_else_two(chain: Callable[..., LayerGraph]) -> None:
    graph = quantise(chain(kinds=["a", "b", "c"]))
    n_bytes = [tensor.n_bytes(1, Precision.FP8) for tensor in graph.tensors]
    assert n_bytes == [64 * 2] * 4 + [64 * 64, 64 * 64, 64 * 64 * 2]
    assert marked(graph) == [True, True, False]
    assert [layer.kind for layer in graph.layers] == ["a-fp8", "b-fp8", "c"]


def test_a_weight_that_something_else_reads_too_stays_as_it_is(chain: Callable[..., LayerGraph]) -> None:
    graph = quantise(chain(kinds=["a", "b", "c"], tie=(0, 2)))
    assert graph.tensors[graph.layers[0].weights[0]].n_bytes(1, Precision.FP8) == 64 * 64 * 2


def test_bert_keeps_its_embeddings_in_halves() -> None:
    graph = quantise(load_graph("bert-base-128"))
    tables = [graph.tensors[layer.weights[0]] for layer in graph.layers if layer.op == "Gather" and layer.weights]
    assert {tensor.dtype for tensor in tables} == {"float16"}


def test_a_marked_model_comes_back_as_it_is(chain: Callable[..., LayerGraph]) -> None:
    once = quantise(chain(kinds=["a", "b"]))
    assert quantise(once) is once
    assert once.content != chain(kinds=["a", "b"]).content
