from collections.abc import Callable
from typing import Any

from autoauto.records.costs.options import CompileOptions
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange, derivative
from autoauto.targets.ipu.memory import live_bytes, live_gradient_bytes
from autoauto.targets.ipu.operator_cost import PricedRange
from autoauto.targets.ipu.target import operator_costs

SHAPE, WEIGHT = (1, 64, 8, 8), (64, 64, 1, 1)
X, SIZE = "x:1x64x8x8", 64 * 8 * 8 * 2


def alive(graph: LayerGraph, device: Device, options: CompileOptions, start: int, stop: int) -> list[float]:
    layers = LayerRange(start, stop)
    priced = PricedRange(graph, layers, operator_costs(graph, layers, device, options), device, options)
    return [n / SIZE for n in live_bytes(priced)]


def test_tensors_live_from_the_layer_that_writes_them_to_the_last_reader(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),  # x a
            node("Conv", ["a", WEIGHT], SHAPE, "b"),  # a b
            node("Relu", ["b"], SHAPE, "c"),  # a b, c over b
            node("Add", ["c", "a"], SHAPE, "d"),  # c a, d over c
        ]
    )
    assert alive(graph, device, options(), 0, 4) == [2, 2, 2, 2]
    assert alive(graph, device, options(), 0, 2) == [2, 2]
    assert alive(graph, device, options(), 1, 2) == [2]
    assert alive(graph, device, options(), 2, 3) == [2]  # a passes by
    assert alive(graph, device, options(), 2, 4) == [2, 2]  # a is received at the start
    assert alive(graph, device, options(8), 3, 4) == [16]


def test_an_operand_that_a_later_layer_reads_is_not_overwritten(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),
            node("Relu", ["a"], SHAPE, "b"),
            node("Conv", ["b", WEIGHT], SHAPE, "c"),
            node("Add", ["c", "a"], SHAPE, "d"),
        ]
    )
    assert alive(graph, device, options(), 0, 4) == [2, 2, 3, 2]


def test_an_output_that_no_layer_reads_lives_while_it_is_written(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of([node("Conv", [X, WEIGHT], SHAPE, "a"), node("Conv", [X, WEIGHT], SHAPE, "b")])
    assert alive(graph, device, options(), 0, 2) == [2, 2]


def test_stashed_tensors_live_to_the_end_and_are_not_overwritten(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),
            node("Gelu", ["a"], SHAPE, "b"),
            node("Conv", ["b", WEIGHT], SHAPE, "c"),
            node("Relu", ["c"], SHAPE, "d"),
        ]
    )
    layers, chosen = LayerRange(0, 4), options()
    costs = operator_costs(graph, layers, device, chosen)
    stashed = {layer.inputs[0] for layer in graph.layers[:3]}
    priced = PricedRange(graph, layers, costs, device, chosen)
    alive_bytes = live_bytes(priced, dict.fromkeys(stashed, 4))
    assert [n / SIZE for n in alive_bytes] == [2, 3, 4, 4]  # x a, x a b, x a b c, d over c
    assert [n / SIZE for n in live_bytes(priced)] == [2, 1, 2, 1]


def test_gradients_live_during_the_same_layers_as_their_tensors(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),  # of a; x needs none
            node("Conv", ["a", WEIGHT], SHAPE, "b"),  # of b into that of a, which the addition made first
            node("Relu", ["b"], SHAPE, "c"),  # of c, written over by that of b; of a passes by
            node("Add", ["c", "a"], SHAPE, "d"),  # of d as that of c; of a
        ]
    )
    layers, chosen = LayerRange(0, 4), options()
    costs = operator_costs(graph, layers, device, chosen)
    alive_bytes = live_gradient_bytes(PricedRange(graph, layers, costs, device, chosen), derivative(graph))
    assert [n / SIZE for n in alive_bytes] == [1, 2, 2, 2]
