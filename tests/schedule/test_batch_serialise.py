"""Loops are run by the interpreter of `conftest.py`: what they store is what whole batches would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.records.batch_serial import PhaseGraph, RowHandle, Stream
from autoauto.records.errors import BadInput
from autoauto.records.phased import BufferLayout, IoMode
from autoauto.schedule.batch_serialise import batch_serial_buffer, batch_serialise

SCALE = PhaseGraph("scale", ("x",), ("y",), ("factor",))
MODES = pytest.mark.parametrize("mode", [str(mode) for mode in IoMode])
DATA = [np.array([[float(i), i + 0.5]]) for i in range(4)]


def scale(values: dict[str, Any]) -> dict[str, Any]:
    return {"y": values["x"] * values["factor"]}


@MODES
def test_every_entry_is_twice_its_input(machine: Any, mode: str) -> None:
    loop = batch_serialise(
        SCALE, 4, {"x": Stream("in")}, {}, {"y": RowHandle(batch_serial_buffer("y", 4))}, io_mode=mode
    )
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


def test_index_vectors(vectors: Callable[[str], Any]) -> None:
    for case in vectors("batch_serialise")["index_vectors"]:
        handle = RowHandle(BufferLayout("y", case["rows"], case["steps"]), case["row_offset"])
        loop = batch_serialise(SCALE, case["steps"], {}, {}, {"y": handle}, rows=case["rows"])
        touched = [touch.entry for group in loop.call(case["call_row"]) for step in group for touch in step.touches]
        assert touched == case["entries"]


@MODES
def test_loops_in_a_row_hand_on_through_rows(machine: Any, mode: str) -> None:
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
    handle = RowHandle(batch_serial_buffer("y", 4))
    loop = batch_serialise(graph, 4, {"x": Stream("in")}, {"y": Stream("out")}, {"y": handle})
    machine.inputs["in"] = list(DATA)
    machine.run(loop, 0, lambda values: {"y": values["x"], "unused": 0})
    np.testing.assert_equal(machine.outputs["out"], DATA)
    assert list(machine.buffers) == ["y"]


def test_every_step_gets_a_seed_of_its_own(machine: Any) -> None:
    graph = PhaseGraph("dropout", ("x", "seed"), ("y",))
    handle = RowHandle(batch_serial_buffer("y", 4, rows=2))
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
    handle = RowHandle(batch_serial_buffer("copy", 4))
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


def test_one_step_falls_back_to_io_and_says_so() -> None:
    loop = batch_serialise(SCALE, 1, {}, {}, {}, io_mode="io_overlapped")
    assert (loop.io_mode, len(loop.order)) == (IoMode.IO, 3)
    assert "io is used" in loop.warning
    assert batch_serialise(SCALE, 2, {}, {}, {}, io_mode="io_overlapped").warning == ""


@pytest.mark.parametrize(
    ("changes", "told"),
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
def test_what_is_wrong_is_said(changes: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"steps": 4, "load_handles": {}, "store_streams": {}, "store_buffers": {}} | changes
    with pytest.raises(BadInput, match=told) as caught:
        batch_serialise(SCALE, **given)
    assert "\n" not in str(caught.value)


def test_a_row_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadInput, match="scale has rows 0 to 1, got row 2"):
        batch_serialise(SCALE, 4, {}, {}, {}, rows=2).call(2)
