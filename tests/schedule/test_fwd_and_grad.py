"""The seed's network, four layers with two equal inner ones: seven phases give the gradients of the whole network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.records.batch_serial import BatchSerialResult, Expected, PhaseGraph, RowHandle, Stream
from autoauto.records.errors import BadInput
from autoauto.records.phased import IoMode
from autoauto.schedule.batch_serialise import batch_serial_buffer, batch_serialise
from autoauto.schedule.fwd_and_grad import batch_serialise_fwd_and_grad

STEPS, INNER = 4, 2
X, DX = (batch_serial_buffer(name, STEPS, rows=INNER + 1) for name in ("x", "dx"))
FORWARD = PhaseGraph("fc", ("x",), ("y",), ("w",))
NEEDS = {"dy": Expected("y", True), "x_again": Expected("x", False), "w_again": Expected("w", False)}
GRADIENT = PhaseGraph("fc_grad", ("dy", "x_again"), ("dx",), ("w_again",), NEEDS)


def transform(
    loads: Any, stores: Any = None, rows: int = 1, **more: Any
) -> tuple[BatchSerialResult, BatchSerialResult]:
    return batch_serialise_fwd_and_grad(FORWARD, GRADIENT, ["w"], STEPS, loads, {}, stores or {}, rows=rows, **more)


def test_inner_layers_share_rows_of_both_buffers(vectors: Callable[[str], Any]) -> None:
    handles = vectors("phased_mnist")["handles"]
    loads = {"x": RowHandle(X, 0), "dy": RowHandle(DX, 1)}
    forward, gradient = transform(loads, {"y": RowHandle(X, 1), "dx": RowHandle(DX, 0)}, rows=INNER)
    for loop, load, stored, name in ((forward, "x", "y", "inner fwd"), (gradient, "dy", "dx", "inner bwd")):
        loaded, kept = loop.loads[load], loop.buffers[stored]
        assert isinstance(loaded, RowHandle)
        assert [loaded.buffer.name, loaded.offset] == handles[name]["load"]
        assert [kept.buffer.name, kept.offset] == handles[name]["store"]
    assert gradient.loads["x_again"] == RowHandle(X, 0)
    assert list(forward.buffers) == ["y"]


def test_what_is_stored_anyway_is_loaded_from_there() -> None:
    place = RowHandle(batch_serial_buffer("place", STEPS))
    forward, gradient = transform({"x": Stream("in"), "dy": RowHandle(DX, 0)}, {"x": place})
    assert gradient.loads["x_again"] == forward.buffers["x"] == place


def test_what_only_the_host_has_gets_a_new_buffer() -> None:
    forward, gradient = transform({"x": Stream("in"), "dy": RowHandle(DX, 0)}, rows=2)
    handle = gradient.loads["x_again"]
    assert handle == forward.buffers["x"]
    assert isinstance(handle, RowHandle)
    assert (handle.buffer.rows, handle.buffer.steps) == (2, STEPS)


def test_variables_are_inputs_of_both() -> None:
    forward, gradient = transform({"x": Stream("in"), "dy": RowHandle(DX, 0)})
    assert (forward.inputs, gradient.inputs) == (("row", "fc/w"), ("row", "fc_grad/w_again"))
    assert gradient.remap == {"w_again": "fc_grad/w_again"}


def test_a_gradient_without_a_handle_is_refused() -> None:
    with pytest.raises(BadInput, match="FwdGrad input dy to gradient graph fc_grad must have a load_handle specified"):
        transform({"x": Stream("in")})


def test_one_name_in_both_graphs_is_refused() -> None:
    gradient = PhaseGraph("grad", ("x",), ("dx",))
    with pytest.raises(BadInput, match="got x in both; rename them"):
        batch_serialise_fwd_and_grad(FORWARD, gradient, [], STEPS, {}, {}, {})


class Network:
    """y = relu(x w) in every layer but the last, and half the sum of squares as the loss."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.weights = [random.normal(size=shape) for shape in ((3, 5), (5, 5), (5, 5), (5, 2))]
        self.gradients = [np.zeros_like(w) for w in self.weights]
        self.data = [random.normal(size=(1, 6, 3)) for _ in range(STEPS)]

    def forward(self, layer: int) -> Callable[[Any], Any]:
        return lambda values: {"y": np.maximum(values["x"] @ self.weights[layer], 0)}

    def backward(self, layer: int) -> Callable[[Any], Any]:
        def compute(values: Any) -> Any:
            x, w = values["x_again"], self.weights[layer]
            made = values["dy"] * (x @ w > 0)
            self.gradients[layer] += (x[0].T) @ made[0]
            return {"dx": made @ w.T}

        return compute

    def last(self, values: Any) -> Any:
        y = values["x"] @ self.weights[3]
        self.gradients[3] += values["x"][0].T @ y[0]
        return {"dx": y @ self.weights[3].T}

    def whole(self) -> list[Any]:
        """The gradients of all data at once, in one plain backward pass."""
        batch = np.concatenate([data[0] for data in self.data])
        kept, x = [batch], batch
        for w in self.weights[:3]:
            x = np.maximum(x @ w, 0)
            kept.append(x)
        dy, found = x @ self.weights[3], []
        for layer in (3, 2, 1, 0):
            found.append(kept[layer].T @ dy)
            dy = (dy @ self.weights[layer].T) * (kept[layer] > 0)
        return found[::-1]


@pytest.mark.parametrize("mode", [str(mode) for mode in IoMode])
def test_seven_phases_find_the_gradients_of_the_whole_network(machine: Any, mode: str) -> None:
    network = Network()
    fc1, fc1_grad = transform({"x": Stream("in"), "dy": RowHandle(DX, 0)}, {"y": RowHandle(X, 0)}, io_mode=mode)
    inner, inner_grad = transform(
        {"x": RowHandle(X, 0), "dy": RowHandle(DX, 1)},
        {"y": RowHandle(X, 1), "dx": RowHandle(DX, 0)},
        rows=INNER,
        io_mode=mode,
    )
    output = PhaseGraph("fc4", ("x",), ("dx",))
    fc4 = batch_serialise(output, STEPS, {"x": RowHandle(X, 2)}, {}, {"dx": RowHandle(DX, 2)}, io_mode=mode)
    machine.inputs["in"] = list(network.data)
    machine.run(fc1, 0, network.forward(0), w=None)
    machine.run(inner, 0, network.forward(1), w=None)
    machine.run(inner, 1, network.forward(2), w=None)
    machine.run(fc4, 0, network.last)
    machine.run(inner_grad, 1, network.backward(2), w_again=None)
    machine.run(inner_grad, 0, network.backward(1), w_again=None)
    machine.run(fc1_grad, 0, network.backward(0), w_again=None)
    for found, expected in zip(network.gradients, network.whole(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
