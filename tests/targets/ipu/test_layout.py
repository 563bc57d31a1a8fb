from collections.abc import Callable
from typing import Any

from autoauto.records.costs.options import CompileOptions
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.operator_cost import PricedRange, relayout_cycles
from autoauto.targets.ipu.target import operator_costs

SHAPE, WEIGHT = (1, 64, 28, 28), (64, 64, 3, 3)
X = "x:1x64x28x28"


def charged(graph: LayerGraph, device: Device, options: CompileOptions, start: int = 0) -> list[int]:
    layers = LayerRange(start, len(graph))
    return relayout_cycles(PricedRange(graph, layers, operator_costs(graph, layers, device, options), device, options))


def test_a_convolution_needs_no_relayout_after_a_convolution(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),
            node("Relu", ["a"], SHAPE, "b"),
            node("Conv", ["b", WEIGHT], SHAPE, "c"),
        ]
    )
    assert charged(graph, device, options())[1:] == [0, 0]
    assert charged(graph, device, options(), start=2)[0] > 0
    assert charged(graph, device, options(), start=1)[1] > 0


def test_an_elementwise_layer_needs_no_relayout_of_operands_of_one_maker(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    def add(second: str) -> int:
        nodes = [
            node("Conv", [X, WEIGHT], SHAPE, "a"),
            node("Relu", ["a"], SHAPE, "b"),
            node("Conv", [X, WEIGHT], SHAPE, "other"),
            node("Add", ["a", second], SHAPE, "sum"),
        ]
        return charged(graph_of(nodes), device, options())[-1]

    assert add("b") == 0
    assert add("other") > 0


def test_rows_of_a_table_are_not_panels(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    graph = graph_of(
        [
            node("Gather", [(1000, 64), "x:1x16"], (1, 16, 64), "row"),
            node("MatMul", ["row", (64, 64)], (1, 16, 64), "y"),
        ]
    )
    assert charged(graph, device, options())[1] > 0


def test_a_maker_saves_its_readers_no_more_than_it_costs(
    graph_of: Any, node: Any, device: Device, options: Callable[..., CompileOptions]
) -> None:
    reads = [node("Conv", ["a", (64, 64, 1, 1)], SHAPE, f"c{i}") for i in range(40)]
    graph = graph_of([node("Slice", [X], SHAPE, "a"), *reads])
    costs = operator_costs(graph, LayerRange(0, 41), device, options(64))
    wanted = sum(relayout.cycles for cost in costs[1:] for relayout in cost.relayouts)
    saved = wanted - sum(charged(graph, device, options(64))[1:])
    assert saved == costs[0].cycles < wanted
