from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.profile.carry import carried
from autoauto.records.layers import Layer, LayerGraph, Tensor
from autoauto.records.units import Precision

Lifetime = tuple[int, int, int]  # elements of one sample, producer, last use


def graph(n_layers: int, lifetimes: Sequence[Lifetime]) -> LayerGraph:
    """Layers that make and last read activations as told, and a large weight each that must not count."""
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


def test_half_precision_halves_every_byte() -> None:
    hand = graph(2, [(8, -1, 0), (4, 0, 2), (2, 0, 1), (2, 1, 2)])
    whole, half = carried(hand, 3, Precision.FP32), carried(hand, 3, Precision.FP16)
    assert whole.carried_bytes.tolist() == [0, 48]
    assert all((a == 2 * b).all() for a, b in zip(whole, half, strict=True))


@st.composite
def lives(draw: st.DrawFn) -> tuple[int, list[Lifetime]]:
    n_layers = draw(st.integers(1, 8))
    lifetimes = []
    for producer in (*draw(st.lists(st.integers(-1, n_layers - 1), max_size=8)), *range(n_layers)):
        first_use = max(producer, 0)
        lifetimes.append((draw(st.integers(0, 50)), producer, draw(st.integers(first_use, n_layers))))
    return n_layers, lifetimes


@given(lives())
@settings(deadline=None)
def test_equals_its_definition(drawn: tuple[int, list[Lifetime]]) -> None:
    n_layers, lifetimes = drawn
    hand = graph(n_layers, lifetimes)
    used = {index for layer in hand.layers for index in (*layer.inputs, *layer.outputs)}
    kept = [(n * 4, producer, last) for i, (n, producer, last) in enumerate(lifetimes) if i in used]
    alive = [sum(n for n, producer, last in kept if producer < b <= last) for b in range(n_layers + 1)]
    liveness = carried(hand, 1, Precision.FP32)
    assert liveness.input_bytes.tolist() == alive[:-1]
    assert liveness.output_bytes.tolist() == alive[1:]
    over = [sum(n for n, producer, last in kept if producer < i < last) for i in range(n_layers)]
    assert liveness.carried_bytes.tolist() == over
