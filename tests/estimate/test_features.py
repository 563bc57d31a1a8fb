"""Classes of layers, and examples with the costs of their layers alone."""

from collections.abc import Callable
from dataclasses import replace

from autoauto.estimate.correct import layer_classes, range_examples
from autoauto.records.costs.correction import RangeFeature, WholeRange
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.units import Precision

LINK = Link(1e9, 0)
CLUSTER = Cluster("one", "ipu", (Device("small", 1e6, 10**8, 1, 10**8),), (LINK,), (LINK,))


def test_a_class_names_the_operator_and_the_one_before(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "b", "c"])
    operators = ("Conv", "Relu", "Add")
    graph = replace(
        graph, layers=tuple(replace(layer, op=op) for layer, op in zip(graph.layers, operators, strict=True))
    )
    assert layer_classes(graph) == ("Conv", "Relu after Conv", "Add after Relu")


def test_an_example_has_the_costs_of_its_layers_alone(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "a", "a"])
    layer = LayerProfile(10, 20, {"code_a": 5}, {"parameter": 3}, 7, 1, 0, 0, 0)
    options = CompileOptions(2, Precision.FP16, training=True)
    names = tuple(layer.name for layer in graph.layers)
    profile = ModelProfile("chain", "fake", options, names, ("a", "a", "a"), (None,) * 3, (layer,) * 3)
    whole = WholeRange(LayerRange(0, 3), 25, 50, {"parameter": 9})
    (example,) = range_examples(graph, profile, CLUSTER, [whole])
    assert (example.whole, example.batch_size) == (whole, 2)
    n_bytes = sum(graph.tensors[index].n_bytes(2, Precision.FP16) for index in graph.layers[0].weights)
    assert n_bytes > 10
    assert example.forward_cycles == {"MatMul": 10, "MatMul after MatMul": 20}
    assert example.feature_cycles == {RangeFeature.WEIGHTS: 3 * (n_bytes // 10)}
    assert example.backward_cycles == {"MatMul": 20, "MatMul after MatMul": 40}
    assert example.memory_bytes == {"parameter": 9, "code": 5, "temporary": 8}


def test_moved_tensors_are_a_feature_where_memory_is_far(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "a", "a"])
    layer = LayerProfile(10, 0, {}, {}, 0, 2, 11, 8, 0)  # 9 bytes are read, 6 written, 2 carried
    small = replace(layer, forward_cycles=3)
    options = CompileOptions(2, Precision.FP32)
    names = tuple(layer.name for layer in graph.layers)
    profile = ModelProfile("chain", "fake", options, names, ("a", "a", "a"), (None,) * 3, (layer, small, layer))
    wholes = [WholeRange(LayerRange(*ends), 25, 0, {}) for ends in ((0, 2), (1, 3))]
    both = range_examples(graph, profile, CLUSTER, wholes, far_memory=True)
    assert [example.forward_cycles for example in both] == [{"MatMul": 5}, {"MatMul after MatMul": 5}]
    first, second = (dict(example.feature_cycles) for example in both)
    assert first.pop(RangeFeature.WEIGHTS) == second.pop(RangeFeature.WEIGHTS) > 0
    assert first == {RangeFeature.MOVED: 5 + 3}
    assert second == {RangeFeature.MOVED: 3 + 5, RangeFeature.ENTRY: 11 // 3}
