from __future__ import annotations

from collections.abc import Callable

from autoauto.profile.isolate import isolate
from autoauto.records.derivative import Derivative, derivative
from autoauto.records.layers import LayerGraph

MakeChain = Callable[..., LayerGraph]


def test_a_layer_alone_reads_from_outside_and_writes_outside(chain: MakeChain) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 1, Derivative(graph, frozenset()))
    (layer,) = alone.layers
    assert [alone.tensors[i].producer for i in layer.inputs] == [-1]
    assert [(alone.tensors[i].producer, alone.tensors[i].last_use) for i in layer.outputs] == [(0, 1)]
    shapes = [graph.tensors[i].shape for i in graph.layers[1].operands]
    assert [alone.tensors[i].shape for i in layer.operands] == shapes


def test_what_needs_a_gradient_comes_from_a_layer_before(chain: MakeChain) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 1, derivative(graph))
    before, layer = alone.layers
    assert before.outputs == layer.inputs
    assert [alone.tensors[i][-2:] for i in (*layer.inputs, *layer.outputs)] == [(0, 1), (1, 2)]
    assert derivative(alone).trained == {0, 1}


def test_a_layer_that_is_fed_stays_alone(chain: MakeChain) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 0, derivative(graph))
    assert len(alone) == 1
    assert not derivative(alone).needs_gradient(alone.layers[0].inputs[0])


def test_as_much_is_kept_alone_as_in_the_model(chain: MakeChain) -> None:
    graph = chain(kinds=["a", "b", "a"])
    for index in range(3):
        alone = isolate(graph, index, derivative(graph))
        (here,), (there,) = derivative(alone).kept(len(alone) - 1), derivative(graph).kept(index)
        assert alone.tensors[here].name == graph.tensors[there].name
