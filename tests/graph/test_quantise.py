from collections.abc import Callable

import pytest

from autoauto.graph import load_graph, quantise
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision


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
