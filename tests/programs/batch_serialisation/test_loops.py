from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.programs.batch_serialisation.loops import (
    batch_serialise,
    batch_serialise_fwd_and_grad,
    loop_order,
    overlapped_order,
)
from autoauto.programs.batch_serialisation.program import (
    BatchSerialResult,
    ExpectedInput,
    LoopKind,
    LoopOp,
    LoopOrder,
    PhaseGraph,
    RowHandle,
    Stream,
)
from autoauto.records.errors import BadInput
from autoauto.records.plans.phased import BufferLayout, IoMode, loop_cycles

# The order in time.


def order_cycles(order: LoopOrder, load_cycles: int, compute_cycles: int, store_cycles: int) -> int:
    """The cycles of an order: in every group loads and stores follow each other, and compute runs beside them."""
    io_cycles = {LoopKind.LOAD: load_cycles, LoopKind.STORE: store_cycles, LoopKind.COMPUTE: 0}
    total = 0
    for group in order:
        computes = compute_cycles * any(op.kind is LoopKind.COMPUTE for op in group)
        total += max(computes, sum(io_cycles[op.kind] for op in group))
    return total


def test_overlapped_orders_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for steps, groups in vectors("batch_serialise")["overlapped_order"].items():
        assert [[[str(op.kind), op.step] for op in group] for group in overlapped_order(int(steps))] == groups


def test_one_step_cannot_overlap() -> None:
    with pytest.raises(BadInput, match=r"steps must be >=2 if using overlapped IO, got 1"):
        overlapped_order(1)


def test_times_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("batch_serialise")["time_model"]["cases"]:
        n, *parts = (case[name] for name in "NLCS")
        assert order_cycles(loop_order(IoMode.IO, n), *parts) == case["serial"]
        assert order_cycles(overlapped_order(n), *parts) == case["overlapped"]


CYCLES = st.integers(0, 50)


@given(st.integers(2, 40), CYCLES, CYCLES, CYCLES)
def test_the_closed_form_adds_up_the_groups(steps: int, load: int, compute: int, store: int) -> None:
    arrays = [np.array([part]) for part in (load, compute, store)]
    for mode in IoMode:
        total = order_cycles(loop_order(mode, steps), load, compute, store)
        assert int(loop_cycles(mode, steps, *arrays)[0]) == total
    assert order_cycles(overlapped_order(steps), load, compute, store) <= steps * (load + compute + store)


@given(st.integers(2, 40))
def test_every_micro_batch_is_loaded_then_computed_then_stored(steps: int) -> None:
    when = {op: i for i, group in enumerate(overlapped_order(steps)) for op in group}
    assert len(when) == 3 * steps
    for step in range(steps):
        groups = [when[LoopOp(kind, step)] for kind in (LoopKind.LOAD, LoopKind.COMPUTE, LoopKind.STORE)]
        assert groups == [step, step + 1, step + 2]


# One loop.

SCALE = PhaseGraph("scale", ("x",), ("y",), ("factor",))
MODES = pytest.mark.parametrize("mode", [str(mode) for mode in IoMode])
DATA = [np.array([[float(i), i + 0.5]]) for i in range(4)]


def scale(values: dict[str, Any]) -> dict[str, Any]:
    return {"y": values["x"] * values["factor"]}


@MODES
def test_every_entry_is_twice_its_input(machine: Any, mode: str) -> None:
    loop = batch_serialise(SCALE, 4, {"x": Stream("in")}, {}, {"y": RowHandle(BufferLayout("y", 1, 4))}, io_mode=mode)
    machine.inputs["in"] = list(DATA)
    machine.run(loop, 0, scale, factor=2)
    assert loop.inputs == ("row", "scale/factor")
    for i in range(4):
        np.testing.assert_equal(machine.buffers["y"][i], 2 * DATA[i])


@MODES
@pytest.mark.parametrize(
    ("rows", "offset", "call", "entries"),
    [(2, 0, 1, [4, 5, 6, 7]), (1, 1, 0, [4, 5, 6, 7]), (1, lambda row: 1, 0, [4, 5, 6, 7]), (2, None, 1, [0, 1, 2, 3])],
)
def test_rows_choose_the_entries(
    machine: Any, mode: str, rows: int, offset: Any, call: int, entries: list[int]
) -> None:
    y = BufferLayout("y", 2, 4)
    loop = batch_serialise(SCALE, 4, {"x": Stream("in")}, {}, {"y": RowHandle(y, offset)}, rows=rows, io_mode=mode)
    machine.inputs["in"] = list(DATA)
    machine.run(loop, call, scale, factor=2)
    assert sorted(machine.buffers["y"]) == entries
    np.testing.assert_equal([machine.buffers["y"][entry] for entry in entries], [2 * data for data in DATA])


def test_entries_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("batch_serialise")["index_vectors"]:
        handle = RowHandle(BufferLayout("y", case["rows"], case["steps"]), case["row_offset"])
        loop = batch_serialise(SCALE, case["steps"], {}, {}, {"y": handle}, rows=case["rows"])
        touched = [move.entry for group in loop.call(case["call_row"]) for step in group for move in step.moves]
        assert touched == case["entries"]


@MODES
def test_consecutive_loops_pass_tensors_through_rows(machine: Any, mode: str) -> None:
    x = BufferLayout("x", 3, 4)
    first = batch_serialise(SCALE, 4, {"x": Stream("in")}, {}, {"y": RowHandle(x, 0)}, io_mode=mode)
    inner = batch_serialise(SCALE, 4, {"x": RowHandle(x, 0)}, {}, {"y": RowHandle(x, 1)}, rows=2, io_mode=mode)
    last = batch_serialise(SCALE, 4, {"x": RowHandle(x, 2)}, {"y": Stream("out")}, {}, io_mode=mode)
    machine.inputs["in"] = list(DATA)
    for loop, row in ((first, 0), (inner, 0), (inner, 1), (last, 0)):
        machine.run(loop, row, scale, factor=2)
    np.testing.assert_equal(machine.outputs["out"], [data * 2**4 for data in DATA])


def test_an_output_may_go_to_the_host_and_to_a_buffer_or_nowhere(machine: Any) -> None:
    graph = PhaseGraph("two", ("x",), ("y", "unused"))
    handle = RowHandle(BufferLayout("y", 1, 4))
    loop = batch_serialise(graph, 4, {"x": Stream("in")}, {"y": Stream("out")}, {"y": handle})
    machine.inputs["in"] = list(DATA)
    machine.run(loop, 0, lambda values: {"y": values["x"], "unused": 0})
    np.testing.assert_equal(machine.outputs["out"], DATA)
    assert list(machine.buffers) == ["y"]


def test_every_step_gets_a_random_seed_of_its_own(machine: Any) -> None:
    graph = PhaseGraph("dropout", ("x", "seed"), ("y",))
    handle = RowHandle(BufferLayout("y", 2, 4))
    loop = batch_serialise(graph, 4, {"x": Stream("in")}, {}, {"y": handle}, seed_input="seed", rows=2)
    machine.inputs["in"] = DATA * 2
    for row in range(2):
        machine.run(loop, row, lambda values: {"y": values["x"]}, seed=7)
    assert len(set(machine.seeds)) == 8


def test_an_input_from_a_buffer_stays_there() -> None:
    x = RowHandle(BufferLayout("x", 2, 4), 1)
    loop = batch_serialise(SCALE, 4, {"x": x}, {}, {"x": RowHandle(BufferLayout("copy", 1, 4))})
    assert (loop.buffers, loop.store_buffers) == ({}, {"x": x})


def test_an_input_from_the_host_may_be_stored(machine: Any) -> None:
    handle = RowHandle(BufferLayout("copy", 1, 4))
    loop = batch_serialise(SCALE, 4, {"x": Stream("in")}, {}, {"x": handle}, io_mode="io_overlapped")
    machine.inputs["in"] = list(DATA)
    machine.run(loop, 0, scale, factor=2)
    np.testing.assert_equal([machine.buffers["copy"][i] for i in range(4)], DATA)


@MODES
@pytest.mark.parametrize("groups_match", [True, False])
def test_replicas_gather_after_a_load_and_reduce_before_a_store(machine: Any, mode: str, groups_match: bool) -> None:
    n, steps = 4, 2
    before = np.arange(8.0)
    shards = RowHandle(BufferLayout("state", 1, steps), 0, shards=n, groups_match=groups_match)
    add = PhaseGraph("add", ("state", "data"), ("sum",))
    loop = batch_serialise(add, steps, {"state": shards, "data": Stream("in")}, {}, {"sum": shards}, io_mode=mode)
    machine.buffers["state"] = {step: (before + step).reshape(n, -1) for step in range(steps)}
    data = np.stack([np.arange(8.0)[::-1]] * n)
    machine.inputs["in"] = [data, data]
    machine.run(loop, 0, lambda values: {"sum": values["state"] + values["data"]})
    for step in range(steps):
        np.testing.assert_equal(machine.buffers["state"][step].reshape(-1), (before + step + data[0]) * n)


def test_one_step_falls_back_to_io_with_a_warning() -> None:
    loop = batch_serialise(SCALE, 1, {}, {}, {}, io_mode="io_overlapped")
    assert (loop.io_mode, len(loop.order)) == (IoMode.IO, 3)
    assert "io is used" in loop.warning
    assert batch_serialise(SCALE, 2, {}, {}, {}, io_mode="io_overlapped").warning == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "rows must be >0, got 0"),
        ({"io_tiles": 0}, "io_mode io must have IO tiles, got 0"),
        ({"io_mode": "fast"}, "Unknown 'io_mode': it is one of compute, io, io_overlapped, got 'fast'"),
        ({"steps": 0}, "steps must be 1 to"),
        ({"load_handles": {"z": Stream("in")}}, "a load handle is for a tensor of scale: x, factor; got 'z'"),
        ({"store_streams": {"z": Stream("in")}}, "a store stream is for a tensor of scale: x, factor, y; got 'z'"),
        ({"seed_input": "y"}, "a seed input is for a tensor of scale"),
        ({"store_buffers": {"y": RowHandle(BufferLayout("b", 1, 3))}}, "buffer b must have a column for each of 4"),
        (
            {"store_buffers": {"y": RowHandle(BufferLayout("b", 2, 4), 1)}, "rows": 2},
            "the row 2 that row 1 of the loop",
        ),
        ({"load_handles": {"x": RowHandle(BufferLayout("b", 2, 4), -1)}}, "the row -1 that row 0"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"steps": 4, "load_handles": {}, "store_streams": {}, "store_buffers": {}} | changes
    with pytest.raises(BadInput, match=message) as caught:
        batch_serialise(SCALE, **arguments)
    assert "\n" not in str(caught.value)


def test_a_missing_row_is_refused() -> None:
    with pytest.raises(BadInput, match="scale has rows 0 to 1, got row 2"):
        batch_serialise(SCALE, 4, {}, {}, {}, rows=2).call(2)


# A loop and the loop of its gradients.

STEPS, INNER = 4, 2
X, DX = (BufferLayout(name, INNER + 1, STEPS) for name in ("x", "dx"))
FORWARD = PhaseGraph("fc", ("x",), ("y",), ("w",))
NEEDS = {"dy": ExpectedInput("y", True), "x_again": ExpectedInput("x", False), "w_again": ExpectedInput("w", False)}
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
        loaded, saved = loop.loads[load], loop.buffers[stored]
        assert isinstance(loaded, RowHandle)
        assert [loaded.buffer.name, loaded.offset] == handles[name]["load"]
        assert [saved.buffer.name, saved.offset] == handles[name]["store"]
    assert gradient.loads["x_again"] == RowHandle(X, 0)
    assert list(forward.buffers) == ["y"]


def test_an_input_that_is_stored_anyway_is_loaded_from_its_buffer() -> None:
    copy = RowHandle(BufferLayout("copy", 1, STEPS))
    forward, gradient = transform({"x": Stream("in"), "dy": RowHandle(DX, 0)}, {"x": copy})
    assert gradient.loads["x_again"] == forward.buffers["x"] == copy


def test_an_input_from_the_host_gets_a_new_buffer() -> None:
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


def test_a_name_in_both_graphs_is_refused() -> None:
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
            before_relu = values["dy"] * (x @ w > 0)
            self.gradients[layer] += (x[0].T) @ before_relu[0]
            return {"dx": before_relu @ w.T}

        return compute

    def last(self, values: Any) -> Any:
        y = values["x"] @ self.weights[3]
        self.gradients[3] += values["x"][0].T @ y[0]
        return {"dx": y @ self.weights[3].T}

    def whole(self) -> list[Any]:
        """The gradients of all data at once, in one plain backward pass."""
        batch = np.concatenate([data[0] for data in self.data])
        inputs, x = [batch], batch
        for w in self.weights[:3]:
            x = np.maximum(x @ w, 0)
            inputs.append(x)
        dy, gradients = x @ self.weights[3], []
        for layer in (3, 2, 1, 0):
            gradients.append(inputs[layer].T @ dy)
            dy = (dy @ self.weights[layer].T) * (inputs[layer] > 0)
        return gradients[::-1]


@pytest.mark.parametrize("mode", [str(mode) for mode in IoMode])
def test_seven_phases_compute_the_gradients_of_the_whole_network(machine: Any, mode: str) -> None:
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
    for gradient, expected in zip(network.gradients, network.whole(), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-12)
