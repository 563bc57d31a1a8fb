from collections.abc import Callable
from typing import Any

import pytest

from autoauto.records.costs.options import CompileOptions
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.operator_cost import PricedRange
from autoauto.targets.ipu.target import operator_costs
from autoauto.targets.ipu.training import BackwardPass, backward_pass

SHAPE, WEIGHT = (1, 64, 8, 8), (64, 64, 1, 1)
X, SIZE = "x:1x64x8x8", 64 * 8 * 8 * 2

Run = Callable[..., BackwardPass]


@pytest.fixture(scope="session")
def graph(graph_of: Any, node: Any) -> LayerGraph:
    """Two convolutions and a shortcut around the second."""
    made: LayerGraph = graph_of(
        [
            node("Conv", [X, WEIGHT], SHAPE, "a"),  # stashes x
            node("Relu", ["a"], SHAPE, "b"),  # stashes b
            node("Conv", ["b", WEIGHT], SHAPE, "c"),  # stashes b, too
            node("Add", ["c", "b"], SHAPE, "d"),  # stashes nothing
            node("Gelu", ["d"], SHAPE, "e"),  # stashes d
        ]
    )
    return made


@pytest.fixture(scope="session")
def run(graph: LayerGraph, device: Device, options: Callable[..., CompileOptions]) -> Run:
    """The backward pass of a range."""

    def make(start: int, stop: int, batch_size: int = 1) -> BackwardPass:
        layers, chosen = LayerRange(start, stop), options(batch_size, training=True)
        costs = operator_costs(graph, layers, device, chosen)
        return backward_pass(PricedRange(graph, layers, costs, device, chosen))

    return make


def test_every_activation_is_stashed_once(run: Run) -> None:
    ranges = {(0, 5): 3, (0, 1): 1, (1, 2): 1, (1, 3): 1, (2, 3): 1, (3, 4): 0, (2, 5): 2}
    assert {ends: run(*ends).activation_bytes / SIZE for ends in ranges} == ranges
    assert run(0, 5, batch_size=8).activation_bytes == 24 * SIZE


def test_gradients_are_as_large_as_the_weights_at_any_batch_size(run: Run) -> None:
    n_bytes = 64 * 64 * 2
    assert run(0, 5).exclusive == run(0, 5, batch_size=8).exclusive == {"gradient": 2 * n_bytes}
    assert run(0, 2).exclusive == {"gradient": n_bytes}
    assert run(3, 5).exclusive == {"gradient": 0}


def test_the_peak_is_the_stash_and_the_gradients_that_are_alive(run: Run) -> None:
    """At the Gelu: x, b and d are stashed, the gradient of e becomes that of d; at the addition those of c and b."""
    assert run(4, 5).temporary_bytes == (1 + 1) * SIZE
    assert run(3, 4).temporary_bytes == 2 * SIZE
    assert run(3, 5).temporary_bytes == 2 * SIZE
    assert run(1, 2).temporary_bytes == (1 + 1) * SIZE


def test_cycles_of_parts_are_those_of_the_whole(run: Run) -> None:
    whole, parts = run(0, 5), [run(i, i + 1) for i in range(5)]
    assert whole.cycles == sum(part.cycles for part in parts)
    assert whole.weight_cycles == parts[0].weight_cycles + parts[2].weight_cycles
    assert parts[0].cycles == parts[0].weight_cycles  # x has no gradient


def test_inference_has_none() -> None:
    assert (BackwardPass().costs, BackwardPass().cycles, BackwardPass().stashed, BackwardPass().exclusive) == (
        (),
        0,
        frozenset(),
        {},
    )
