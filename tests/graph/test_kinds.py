"""Kinds as in [auto-pipeline, layer_type_equality]: class, configuration and shapes, epsilon and names aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.graph.facts import infer_facts
from autoauto.graph.kinds import attributes, digest, quantise
from autoauto.graph.layers import layers_of
from autoauto.graph.load import load_graph
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_layers_of_one_class_and_shape_share_a_kind(make: Any) -> None:
    nodes = "Gemm x a b > 1; Relu 1 > 2; Gemm 2 c d > 3 beta=1.0; Gemm 3 c > 4; Softmax 4 > 5; Gemm 5 e f > y"
    constants = {"a": ones(4, 4), "b": ones(4), "c": ones(4, 4), "d": ones(4), "e": ones(4, 8), "f": ones(8)}
    gemm, relu, again, unbiased, softmax, wider = layers_of(
        "m", infer_facts(make(nodes, {"x": ["n", 4]}, "y", constants))
    ).layers
    assert gemm.kind == again.kind
    assert len({layer.kind for layer in (gemm, relu, unbiased, softmax, wider)}) == 5


def test_epsilon_changes_no_code(make: Any) -> None:
    nodes = (
        "LayerNormalization x s > 1 epsilon=1e-06; LayerNormalization 1 s > 2 epsilon=1e-10; "
        "LayerNormalization 2 s2 > y axis=1"
    )
    constants = {"s": ones(6), "s2": ones(4, 6)}
    first, second, third = layers_of("m", infer_facts(make(nodes, {"x": ["n", 4, 6]}, "y", constants))).layers
    assert first.kind == second.kind != third.kind


def test_activations_and_weights_give_different_kinds(make: Any) -> None:
    nodes = "MatMul x w > 1; MatMul x z > 2; Add 1 2 > y"
    known = infer_facts(make(nodes, {"x": ["n", 4, 4], "z": [4, 4]}, "y", {"w": ones(4, 4)}))
    first, second, _ = layers_of("m", known).layers
    assert first.kind != second.kind


def test_known_operands_and_defaults_are_attributes(make: Any) -> None:
    nodes = "Slice x a b c > s; ReduceSum s c > r; Relu r > y"
    known = infer_facts(make(nodes, {"x": ["n", 4, 6]}, "y", {"a": [1], "b": [3], "c": [2]}))
    cut, total, relu = (attributes(node, 17, known.facts) for node in known.model.graph.node)
    assert cut == (("axes", (2,)), ("ends", (3,)), ("starts", (1,)))
    assert total == (("axes", (2,)), ("keepdims", 1), ("noop_with_empty_axes", 0))
    assert relu == ()


def test_where_a_slice_starts_is_part_of_the_kind(make: Any) -> None:
    nodes = "Slice x a b c > s; Slice x b d c > t; Slice x a b c > u; Sum s t u > y"
    known = infer_facts(make(nodes, {"x": ["n", 6]}, "y", {"a": [0], "b": [2], "c": [1], "d": [4]}))
    first, second, third, _ = layers_of("m", known).layers
    assert first.kind == third.kind != second.kind


def test_equal_values_have_equal_digests() -> None:
    assert digest("Relu", (1, 2.5)) == digest("Relu", (1, 2.5)) == "b88a3989347ada38" != digest("Relu", (1, 2))


def test_keys_of_stored_profiles_stay() -> None:
    graph = load_graph("resnet50")
    assert graph.content == "d402ea84a5025cbe"
    assert graph.layers[0].kind == "Conv-9aa124459a1ce436"


def marked(graph: LayerGraph) -> list[bool]:
    return [layer.attribute("precision") == "fp8" for layer in graph.layers]


@pytest.mark.parametrize(("name", "op"), [("resnet50", "Conv"), ("bert-base-128", "MatMul")])
def test_products_are_marked_but_the_first_convolution_and_the_last_matrix_product(name: str, op: str) -> None:
    graph = load_graph(name)
    products = [i for i, layer in enumerate(graph.layers) if layer.op in {"Conv", "Gemm", "MatMul"}]
    unmarked = {products[-1]} | ({products[0]} if op == "Conv" else set())
    assert [i for i, is_marked in enumerate(marked(quantise(graph))) if is_marked] == sorted({*products} - unmarked)


def test_weights_of_marked_products_take_one_byte_and_all_else_two(chain: Callable[..., LayerGraph]) -> None:
    graph = quantise(chain(kinds=["a", "b", "c"]))
    n_bytes = [tensor.n_bytes(1, Precision.FP8) for tensor in graph.tensors]
    assert n_bytes == [64 * 2] * 4 + [64 * 64, 64 * 64, 64 * 64 * 2]
    assert marked(graph) == [True, True, False]
    assert [layer.kind for layer in graph.layers] == ["a-fp8", "b-fp8", "c"]


def test_a_weight_that_another_layer_reads_too_stays_in_halves(chain: Callable[..., LayerGraph]) -> None:
    graph = quantise(chain(kinds=["a", "b", "c"], tie=(0, 2)))
    assert graph.tensors[graph.layers[0].weights[0]].n_bytes(1, Precision.FP8) == 64 * 64 * 2


def test_bert_keeps_its_embeddings_in_halves() -> None:
    graph = quantise(load_graph("bert-base-128"))
    tables = [graph.tensors[layer.weights[0]] for layer in graph.layers if layer.op == "Gather" and layer.weights]
    assert {tensor.dtype for tensor in tables} == {"float16"}


def test_a_marked_model_comes_back_unchanged(chain: Callable[..., LayerGraph]) -> None:
    once = quantise(chain(kinds=["a", "b"]))
    assert quantise(once) is once
    assert once.content != chain(kinds=["a", "b"]).content
