"""Times of the nodes that a runtime ran, as times of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.profile.cache import ProfileCache
from autoauto.profile.in_model import cycles_in_model, layer_seconds, profile_in_model
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, NodeTime
from autoauto.records.hardware import Device
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.units import Precision
from tests.evaluate.linear import DEVICE, LinearTarget

OPTIONS = CompileOptions(2, Precision.FP16)


def line(*operators: str, alike: bool = False) -> LayerGraph:
    """Layers a, b, c ... in a row; layer i reads tensor i, and writes tensor i + 1, which is called A, B, C ...

    Those of one operator are `alike`, of one kind, or every layer has a kind of its own.
    """
    tensors = [Tensor("input", (4,), 0, "float", -1, 0)]
    tensors += [Tensor(chr(65 + i), (4,), 0, "float", i, i + 1) for i in range(len(operators))]
    layers = [
        Layer(chr(97 + i), op, (), (i,), (i + 1,), (), (i,), op if alike else chr(97 + i), None)
        for i, op in enumerate(operators)
    ]
    return LayerGraph("line", tuple(layers), tuple(tensors), None, "content of " + " ".join(operators))


def test_a_node_has_the_name_of_its_layer_or_of_what_it_writes_with_something_appended() -> None:
    nodes = [NodeTime(("a/WithoutBiases",), 1.0), NodeTime(("B_nchwc",), 2.0), NodeTime(("c_token_7",), 3.0)]
    assert layer_seconds(line("Conv", "Conv", "Conv"), nodes) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("position", range(3))
def test_every_layer_is_known_by_the_tensor_that_it_writes(position: int) -> None:
    nodes = [NodeTime((name,), seconds) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    nodes[position] = nodes[position]._replace(names=(f"{'ABC'[position]}_nchwc",))
    assert layer_seconds(line("Conv", "Conv", "Conv"), nodes) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("names", [("c",), ("C_nchwc",), ("b", "c"), ("fused", "a", "b", "c")])
def test_a_fused_node_costs_its_product_whichever_of_its_layers_has_its_name(names: tuple[str, ...]) -> None:
    """Conv, Add and Relu are one node: cut between them, the Conv takes nearly all of it still."""
    nodes = [NodeTime(names, 5.0), NodeTime(("d",), 1.0)]
    assert layer_seconds(line("Conv", "Add", "Relu", "Conv"), nodes) == [5.0, 0.0, 0.0, 1.0]


def test_a_fused_node_without_a_product_costs_its_last_known_layer() -> None:
    assert layer_seconds(line("Add", "Sqrt", "Div"), [NodeTime(("b", "c"), 2.0)]) == [0.0, 0.0, 2.0]


def test_a_relayout_costs_the_layer_before_it() -> None:
    nodes = [NodeTime((name,), seconds) for name, seconds in (("new", 0.1), ("a", 4.0), ("reorder", 0.2), ("b", 4.0))]
    assert layer_seconds(line("Conv", "Conv"), nodes) == pytest.approx([4.3, 4.0])


def test_a_layer_without_a_node_is_part_of_that_of_the_nearest_reader() -> None:
    """Layer a, a product without a node, is read by b and d: it is part of the node of b, the nearest."""
    graph = line("MatMul", "Relu", "Relu", "Add")
    layers = (*graph.layers[:3], replace(graph.layers[3], inputs=(1, 3)))
    nodes = [NodeTime(("b",), 1.0), NodeTime(("c",), 2.0), NodeTime(("d",), 3.0)]
    assert layer_seconds(replace(graph, layers=layers), nodes) == [1.0, 0.0, 2.0, 3.0]


def test_layers_of_one_kind_whose_nodes_compute_the_same_have_their_median() -> None:
    """The third Conv is disturbed; the fourth has a Relu in its node, so that it is of no kind with the others."""
    nodes = [NodeTime((name,), seconds) for name, seconds in (("a", 1.0), ("b", 1.1), ("c", 5.0), ("e", 2.0))]
    assert layer_seconds(line("Conv", "Conv", "Conv", "Conv", "Relu", alike=True), nodes) == [1.1, 1.1, 1.1, 2.0, 0.0]


def test_the_median_keeps_relayouts_and_all_that_a_layer_has_in_other_nodes() -> None:
    """The second Conv has a node more, so that it is not like the others."""
    times = (("a", 1.0), ("reorder", 0.5), ("b", 2.0), ("b/Bias", 0.5), ("c", 1.2))
    nodes = [NodeTime((name,), seconds) for name, seconds in times]
    assert layer_seconds(line("Conv", "Conv", "Conv", alike=True), nodes) == pytest.approx([1.6, 2.5, 1.1])


def test_a_layer_in_two_nodes_counts_in_both() -> None:
    nodes = [NodeTime(("a", "b"), 5.0), NodeTime(("a", "b"), 1.0)]
    assert layer_seconds(line("Conv", "Relu"), nodes) == [6.0, 0.0]


@pytest.mark.parametrize(
    "nodes", [[], [NodeTime(("a",), 0.0)], [NodeTime(("x",), 1.0)], [NodeTime(("a",), 1.0), NodeTime(("x",), 1.1)]]
)
def test_names_that_say_too_little_say_nothing(nodes: list[NodeTime]) -> None:
    assert layer_seconds(line("Conv", "Conv"), nodes) is None


class Timed(LinearTarget):
    """Layer i takes i + 1 milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.n_asked = 0

    def node_times(self, graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[NodeTime, ...]:
        self.n_asked += 1
        return tuple(NodeTime((layer.name,), (index + 1) / 1e3) for index, layer in enumerate(graph.layers))


def test_what_was_measured_is_in_the_cache(tmp_path: Path) -> None:
    cache, target, graph = ProfileCache(tmp_path / "cache.db"), Timed(), line("Conv", "Relu")
    asked = (graph, target, DEVICE, OPTIONS, cache)
    assert cycles_in_model(*asked) == cycles_in_model(*asked) == (1000, 2000)
    assert target.n_asked == 1
    assert cycles_in_model(graph, target, DEVICE, replace(OPTIONS, batch_size=4), cache) == (1000, 2000)
    assert target.n_asked == 2


def test_a_target_that_times_no_nodes_says_nothing(tmp_path: Path) -> None:
    assert cycles_in_model(line("Conv"), LinearTarget(), DEVICE, OPTIONS, ProfileCache(tmp_path / "cache.db")) is None


def test_layers_share_the_memory_of_the_whole(chain: Callable[..., LayerGraph]) -> None:
    """Three equal weights, of which the last two layers read one, and tensors of 256 bytes a sample in fp16."""
    graph = chain(kinds=["a", "b", "c"], tie=(1, 2))
    whole = LayerProfile(60, 0, {"session": 7}, {"parameter": 100, "state": 10}, 1000, 0, 0, 0, 0)
    profile = profile_in_model(graph, LinearTarget(), DEVICE, OPTIONS, whole, (1, 2, 3))
    assert [layer.forward_cycles for layer in profile.layers] == [10, 20, 30]
    assert [layer.exclusive for layer in profile.layers] == [
        {"parameter": 50, "state": 5},
        {"parameter": 50, "state": 5},
        {"parameter": 0, "state": 0},
    ]
    assert [layer.temporary_bytes for layer in profile.layers] == [1000, 1000, 1000]
    assert {layer.input_bytes for layer in profile.layers} == {layer.output_bytes for layer in profile.layers} == {256}
    assert all(layer.shared == {"session": 7} for layer in profile.layers)
    assert profile.tied == (None, "shared", "shared")
