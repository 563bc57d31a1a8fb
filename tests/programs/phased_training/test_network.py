"""The network: its data set, the gradients of its functions, Adam, its phases and their buffers."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt
from typing import Any

import numpy as np
import pytest

from autoauto.programs.phased_training.network import (
    BufferEntry,
    Network,
    PhaseCall,
    Samples,
    adam,
    backward,
    first_backward,
    forward,
    gelu,
    gelu_slope,
    output,
)
from autoauto.records.plans.phased import BufferLayout
from autoauto.records.units import Array

NETWORK = Network(n_hidden=6, micro_batch=3, n_inputs=4, n_classes=5)


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape)


def slopes(function: Callable[[Array], float], at: Array) -> Array:
    """Central differences."""
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = 1e-6
        result[index] = (function(at + step) - function(at - step)) / 2e-6
    return result


def test_gelu_is_near_its_exact_form() -> None:
    z = np.linspace(-5, 5, 101)
    exact = [x / 2 * (1 + erf(x / sqrt(2))) for x in z]
    np.testing.assert_allclose(gelu(z), exact, atol=5e-4)


def test_gelu_slope_is_the_derivative_of_gelu() -> None:
    z = np.linspace(-5, 5, 101)
    np.testing.assert_allclose(gelu_slope(z), (gelu(z + 1e-6) - gelu(z - 1e-6)) / 2e-6, atol=1e-8)


def test_backward_is_the_gradient_of_forward() -> None:
    w, b, x, dy = normal(4, 6), normal(6), normal(3, 4), normal(3, 6)
    y, z = forward((w, b), (x,)).stored
    (dx,), (dw, db) = backward((w,), (dy, x, z))

    def loss(w: Array, b: Array, x: Array) -> float:
        return float((dy * forward((w, b), (x,)).stored[0]).sum())

    np.testing.assert_allclose(y, gelu(x @ w + b))
    np.testing.assert_allclose(dx, slopes(lambda x: loss(w, b, x), x), atol=1e-7)
    np.testing.assert_allclose(dw, slopes(lambda w: loss(w, b, x), w), atol=1e-7)
    np.testing.assert_allclose(db, slopes(lambda b: loss(w, b, x), b), atol=1e-7)
    first = first_backward((), (dy, x, z))
    assert first.stored == ()
    np.testing.assert_array_equal(first.gradients[0], dw)
    np.testing.assert_array_equal(first.gradients[1], db)


def test_output_returns_the_cross_entropy_and_its_gradients() -> None:
    w, b, x, labels = normal(6, 5), normal(5), normal(3, 6), np.array([4, 0, 0])
    (dx, loss), (dw, db) = output((w, b), (x, labels))

    def loss_at(w: Array, b: Array, x: Array) -> float:
        return float(output((w, b), (x, labels)).stored[1])

    scores = np.exp(x @ w + b)
    assert loss == pytest.approx(-np.log(scores[[0, 1, 2], labels] / scores.sum(1)).mean())
    np.testing.assert_allclose(dx, slopes(lambda x: loss_at(w, b, x), x), atol=1e-7)
    np.testing.assert_allclose(dw, slopes(lambda w: loss_at(w, b, x), w), atol=1e-7)
    np.testing.assert_allclose(db, slopes(lambda b: loss_at(w, b, x), b), atol=1e-7)


def test_large_logits_do_not_overflow() -> None:
    w = np.eye(2, dtype=np.float32) * 1000
    _, loss = output((w, np.zeros(2, np.float32)), (np.eye(2, dtype=np.float32), np.array([0, 1]))).stored
    assert loss == 0


@pytest.mark.parametrize("shape", [(7,), (2**17 + 3,), (300, 500)])
def test_adam_in_parts_equals_adam_on_the_whole_variable(shape: tuple[int, ...]) -> None:
    gradient, value, first, second = (normal(*shape) for _ in range(4))
    second = abs(second)
    new_first, new_second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    expected = value - 0.01 * new_first / (np.sqrt(new_second) + 1e-5)
    adam(gradient, 0.01, value, first, second)
    np.testing.assert_allclose(first, new_first, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second, new_second, rtol=1e-12)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)


def test_phases_have_the_documented_order(vectors: Callable[[str], Any]) -> None:
    vector = vectors("phased_mnist")
    expected = [name if "(" in name else f"{name}(0)" for name in vector["call_order"]]
    assert [str(call) for call in NETWORK.calls] == expected
    assert len(NETWORK.calls) == vector["phases"]


def test_x_and_dx_connect_the_phases_as_documented(vectors: Callable[[str], Any]) -> None:
    handles = vectors("phased_mnist")["handles"]
    calls = {str(call): call for call in NETWORK.calls}
    for name, key in (("inner(0)", "inner fwd"), ("inner_grad(0)", "inner bwd"), ("fc4(0)", "output layer")):
        assert calls[name].loads[0] == tuple(handles[key]["load"])
        assert calls[name].stores[0] == tuple(handles[key]["store"])
    layouts = {buffer.layout.name: buffer.layout for buffer in NETWORK.buffers()}
    assert layouts["x"] == BufferLayout("x", rows=3, steps=4, entry_bytes=4 * 3 * 6)
    assert layouts["dx"] == BufferLayout("dx", rows=3, steps=4, entry_bytes=4 * 3 * 6)


def test_every_row_is_written_before_it_is_read() -> None:
    written = {BufferEntry("image", 0), BufferEntry("label", 0)}
    for call in Network(n_hidden=6, n_inner=4).calls:
        assert written.issuperset(call.loads), str(call)
        assert written.isdisjoint(call.stores), str(call)
        written.update(call.stores)


def test_equal_layers_share_a_graph_and_buffers() -> None:
    graphs: dict[str, set[object]] = {}
    for call in NETWORK.calls:
        graphs.setdefault(call.name, set()).add(call.graph)
    assert {name: len(functions) for name, functions in graphs.items()} == dict.fromkeys(graphs, 1)
    assert next(buffer for buffer in NETWORK.buffers() if buffer.layout.name == "inner.w").layout.rows == 2


def test_results_of_phases_have_the_shapes_of_their_buffers() -> None:
    buffers = {buffer.layout.name: buffer for buffer in NETWORK.buffers()}

    def arrays(entries: tuple[BufferEntry, ...]) -> list[Array]:
        return [np.zeros(buffers[name].shape, buffers[name].dtype) for name, _ in entries]

    def check(call: PhaseCall) -> None:
        stored, gradients = call.graph(arrays(call.variables), arrays(call.loads))
        assert [array.shape for array in stored] == [buffers[name].shape for name, _ in call.stores]
        assert [array.shape for array in gradients] == [buffers[name].shape for name, _ in call.trained]
        assert {array.dtype for array in (*stored, *gradients)} == {np.dtype("float32")}

    for call in NETWORK.calls:
        check(call)


def test_micro_batches_repeat_the_data_set_in_order() -> None:
    samples = Samples(np.arange(20)[:, None], np.arange(20))
    network = Network(n_hidden=1, steps=2, micro_batch=3)
    labels = [network.micro_batch_of(samples, update, step).labels for update in range(4) for step in range(2)]
    assert np.concatenate(labels).tolist() == [*range(20), 0, 1, 2, 3]


def test_initial_weights_differ_by_layer_row_and_random_seed_only() -> None:
    def weights(layer: str, row: int, seed: int) -> bytes:
        return Network(n_hidden=6, seed=seed).first_weights(layer, row).tobytes()

    keys = [("fc1", 0, 0), ("inner", 0, 0), ("inner", 1, 0), ("fc4", 0, 0), ("inner", 0, 1)]
    assert len({weights(*key) for key in keys}) == len(keys)
    assert weights("inner", 1, 0) == weights("inner", 1, 0)
    assert Network(n_hidden=400).first_weights("inner", 0).std() == pytest.approx((2 / 400) ** 0.5, rel=0.02)
