from __future__ import annotations

from autoauto.graph.ties import is_matrix, ties


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
