"""From a planned network of four layers, two of them equal, to the calls of the example in [popxl-mnist]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoauto.estimate.table import cost_table
from autoauto.plan.phased import phased
from autoauto.programs.batch_serialisation.loops import _offset, phased_program
from autoauto.programs.batch_serialisation.program import PhasedProgram, RowHandle, Stream
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.hardware import Cluster, Device, Link, StreamingMemory
from autoauto.records.plans.phased import IoMode, PhasedOptions
from autoauto.records.units import Precision

KINDS = ("fc1", "inner", "inner", "fc4")


def program(*, training: bool) -> PhasedProgram:
    """A device that holds one layer of 100 bytes at a time; 8 bytes between layers."""
    layer = LayerProfile(10, 20 * training, {}, {"parameter": 100}, 20, 0, 8, 8, 0)
    options = CompileOptions(1, Precision.FP16, training)
    profile = ModelProfile("mnist", "ipu", options, KINDS, KINDS, (None,) * 4, (layer,) * 4)
    link = Link(1.0, 0)
    cluster = Cluster("c", "ipu", (Device("d", 1.0, 200, 8, 25),), (link,), (link,), StreamingMemory(1.0, 0, 10**6))
    table = cost_table(profile, cluster, 1.0, in_flight=(1,) if training else None, recompute=training)
    plan = phased(table, profile, cluster, PhasedOptions(4, IoMode.COMPUTE, recompute=training))
    return phased_program(plan, {0: "fc1", 1: "inner", 2: "fc4"})


def row_of(handle: Any) -> list[object]:
    assert isinstance(handle, RowHandle)
    return [handle.buffer.name, handle.offset]


def test_the_calls_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    expected = vectors("phased_mnist")
    phased_calls = program(training=True).calls
    assert len(phased_calls) == expected["phases"]
    called = [str(call) for call in phased_calls]
    assert [name.replace("fc4(0)", "fc4") for name in called] == expected["call_order"]


def test_the_handles_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    expected, loops = vectors("phased_mnist")["handles"], program(training=True).loops
    inner, gradient, output = loops["inner"], loops["inner_grad"], loops["fc4"]
    assert {"load": row_of(inner.loads["x"]), "store": row_of(inner.buffers["x_out"])} == expected["inner fwd"]
    assert {"load": row_of(gradient.loads["dx"]), "store": row_of(gradient.buffers["dx_out"])} == expected["inner bwd"]
    assert {"load": row_of(output.loads["x"]), "store": row_of(output.buffers["dx_out"])} == expected["output layer"]
    assert row_of(gradient.loads["x"]) == ["x", 0]


def test_every_phase_loads_what_an_earlier_one_stored() -> None:
    for training in (False, True):
        phases = program(training=training)
        written: set[tuple[str, int | None]] = set()
        for call in phases.calls:
            moves = [
                (step.op.kind, move)
                for group in phases.loops[call.loop].call(call.row)
                for step in group
                for move in step.moves
            ]
            for kind, move in moves:
                if move.entry is not None and kind == "load":
                    assert (move.location, move.entry) in written
                elif move.entry is not None:
                    assert (move.location, move.entry) not in written
                    written.add((move.location, move.entry))


def test_only_the_first_and_the_last_phase_use_the_host() -> None:
    loops = program(training=False).loops
    assert loops["fc1"].loads == {"x": Stream("inputs")}
    assert loops["fc4"].streams == {"outputs": Stream("outputs")}
    assert not any(isinstance(handle, Stream) for handle in loops["inner"].loads.values())
    assert program(training=True).loops["fc4"].streams == {}


def test_rows_in_another_order_need_a_function() -> None:
    offset = _offset([2, 0, 1])
    assert callable(offset)
    assert [offset(row) for row in range(3)] == [2, 0, 1]
