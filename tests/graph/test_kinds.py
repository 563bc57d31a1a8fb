"""Kinds as the seed's `layer_type_equality` has them: class, configuration and shapes, epsilon and names aside."""

from __future__ import annotations

from typing import Any

import numpy as np

from autoauto.graph.facts import learn
from autoauto.graph.kinds import attributes, digest
from autoauto.graph.layers import layers_of


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
