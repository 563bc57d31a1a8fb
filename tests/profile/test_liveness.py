"""Activations that are alive around layers, and those stashed for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.profile.liveness import carried, gradient_pattern, stashed, tensor_uses
from autoauto.records.costs.cost import TensorUse
from autoauto.records.costs.stash import ActivationStash
from autoauto.records.layers import Derivative, Layer, LayerGraph, Tensor, derivative
from autoauto.records.units import Precision

Lifetime = tuple[int, int, int]  # elements of one sample, producer, last use


def graph(n_layers: int, lifetimes: Sequence[Lifetime]) -> LayerGraph:
    """Layers with activations of given lifetimes, and a large weight each, which must not count."""
    activations = [
        Tensor(f"t{i}", (1, n), 0, "float", producer, last_use) for i, (n, producer, last_use) in enumerate(lifetimes)
    ]
    weights = [Tensor(f"w{i}", (10**6,), None, "float", -1, i) for i in range(n_layers)]

    def layer(index: int) -> Layer:
        inputs = tuple(i for i, tensor in enumerate(activations) if tensor.last_use == index > tensor.producer)
        outputs = tuple(i for i, tensor in enumerate(activations) if tensor.producer == index)
        weight = len(activations) + index
        return Layer(f"l{index}", "Op", (), inputs, outputs, (weight,), (*inputs, weight), "kind", None)

    layers = tuple(layer(index) for index in range(n_layers))
    return LayerGraph("hand", layers, (*activations, *weights), None, "digest")


def test_dense_layers_with_a_skip_connection(vectors: Callable[[str], Any]) -> None:
    cases = vectors("auto_pipeline_keras")
    models = [
        [(2048, -1, 0), (1024, 0, 1), (1024, 1, 2), (1024, 2, 3), (1024, 3, 4), (16, 4, 5)],
        [(2048, -1, 0), (1024, 0, 3), (1024, 1, 2), (1024, 2, 3), (1024, 3, 4), (16, 4, 5)],
        [(128 * 768, -1, 1), (128 * 768, 0, 1), (128 * 768, 1, 2)],
        [(128 * 768, -1, 0), (128 * 768, 0, 1)],
    ]
    for lifetimes, case in zip(models, cases["intermediates"], strict=True):
        n_layers = len(case["inputs"])
        liveness = carried(graph(n_layers, lifetimes), cases["batch_size"], Precision.FP32)
        assert liveness.carried_bytes.tolist() == case["carry_over"], case["model"]
        assert liveness.input_bytes.tolist() == case["inputs"], case["model"]
        assert liveness.output_bytes.tolist() == case["outputs"], case["model"]


def test_layers_exchange_all_tensors_but_those_of_the_host() -> None:
    """The helper's layers read a tensor at its last use only; tensor 3 nobody reads."""
    hand = graph(4, [(8, -1, 0), (4, 0, 3), (2, 0, 1), (1, 1, 4)])
    inference = tensor_uses(hand, 3, Precision.FP16, training=False)
    assert inference == [TensorUse(0, (1,), 12), TensorUse(0, (3,), 24)]
    assert tensor_uses(hand, 3, Precision.FP16, training=True)[1].n_bytes == 48


def test_half_precision_halves_every_byte() -> None:
    hand = graph(2, [(8, -1, 0), (4, 0, 2), (2, 0, 1), (2, 1, 2)])
    whole, half = carried(hand, 3, Precision.FP32), carried(hand, 3, Precision.FP16)
    assert whole.carried_bytes.tolist() == [0, 48]
    assert all((a == 2 * b).all() for a, b in zip(whole, half, strict=True))


@st.composite
def drawn_lifetimes(draw: st.DrawFn) -> tuple[int, list[Lifetime]]:
    n_layers = draw(st.integers(1, 8))
    lifetimes = []
    for producer in (*draw(st.lists(st.integers(-1, n_layers - 1), max_size=8)), *range(n_layers)):
        first_use = max(producer, 0)
        lifetimes.append((draw(st.integers(0, 50)), producer, draw(st.integers(first_use, n_layers))))
    return n_layers, lifetimes


@given(drawn_lifetimes())
@settings(deadline=None)
def test_liveness_equals_its_definition(drawn: tuple[int, list[Lifetime]]) -> None:
    n_layers, lifetimes = drawn
    hand = graph(n_layers, lifetimes)
    used = {index for layer in hand.layers for index in (*layer.inputs, *layer.outputs)}
    lives = [(n * 4, producer, last) for i, (n, producer, last) in enumerate(lifetimes) if i in used]
    alive = [sum(n for n, producer, last in lives if producer < b <= last) for b in range(n_layers + 1)]
    liveness = carried(hand, 1, Precision.FP32)
    assert liveness.input_bytes.tolist() == alive[:-1]
    assert liveness.output_bytes.tolist() == alive[1:]
    passing = [sum(n for n, producer, last in lives if producer < i < last) for i in range(n_layers)]
    assert liveness.carried_bytes.tolist() == passing


Choice = tuple[str, int, int]  # operator, and which tensor each operand is


def training_graph(choices: Sequence[Choice]) -> LayerGraph:
    """Layer i writes tensor i + 1 of i + 2 floats and reads the input or earlier tensors; a product has a weight."""
    n = len(choices)
    last = list(range(-1, n))
    layers = []
    for i, (op, *picks) in enumerate(choices):
        operands = [pick % (i + 1) for pick in (picks[:1] if op == "MatMul" else picks)]
        for operand in operands:
            last[operand] = max(last[operand], i)
        inputs, weights = tuple(dict.fromkeys(operands)), (n + 1,) * (op == "MatMul")
        layers.append(Layer(str(i), op, (), inputs, (i + 1,), weights, (*operands, *weights), op, None))
    made = (Tensor(f"t{i}", (1, i + 1), 0, "float", i - 1, use) for i, use in enumerate(last))
    return LayerGraph("hand", tuple(layers), (*made, Tensor("w", (7,), None, "float", -1, n)), None, "hand")


graphs = st.lists(
    st.tuples(st.sampled_from(["MatMul", "Relu", "Add", "Gelu", "MaxPool"]), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=9,
).map(training_graph)


def test_a_tensor_counts_for_the_first_layer_that_stashes_it_and_as_an_input_of_later_ones() -> None:
    backward = derivative(
        training_graph([("MatMul", 0, 0), ("Relu", 1, 1), ("Gelu", 2, 2), ("Add", 3, 3), ("MatMul", 2, 2)])
    )
    stash = stashed(ActivationStash(backward), 1, Precision.FP16)
    assert stash.first_bytes == [2, 6, 0, 0, 0]  # the input, and the output of Relu
    assert stash.input_bytes == [0, 0, 6, 6, 6]  # Gelu and the last product read that output, too


@given(model=graphs, batch_size=st.integers(1, 3))
def test_a_range_stashes_at_most_the_sum_of_its_parts(model: LayerGraph, batch_size: int) -> None:
    backward, n = derivative(model), len(model)
    stash = stashed(ActivationStash(backward), batch_size, Precision.FP16)
    for start in range(n):
        for stop in range(start + 1, n + 1):
            tensors = frozenset[int]().union(*(backward.stashed(i) for i in range(start, stop)))
            n_bytes = sum(model.tensors[i].n_bytes(batch_size, Precision.FP16) for i in tensors)
            bound = sum(stash.first_bytes[start:stop]) + stash.input_bytes[start]
            assert n_bytes <= bound
            assert n_bytes == bound or stop < n
    for first, here, following in zip(stash.first_bytes, stash.input_bytes, stash.input_bytes[1:], strict=False):
        assert following - here <= first


def test_inference_stashes_nothing() -> None:
    model = training_graph([("MatMul", 0, 0), ("Relu", 1, 1)])
    assert stashed(ActivationStash(Derivative(model, frozenset())), 1, Precision.FP16) == ([0, 0], [0, 0])


def test_layers_differ_by_which_operands_have_gradients() -> None:
    model = training_graph([("MatMul", 0, 0), ("Add", 0, 1), ("Add", 2, 1), ("Relu", 0, 0)])
    assert [gradient_pattern(derivative(model), layer) for layer in model.layers] == ["00", "01", "11", "00"]
