"""From a phased plan to its program [popxl-phased]: a loop for every graph, called once for every phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoauto.records.phased import BufferLayout, BufferRow, Phase, PhasedPlan, PhaseKind
from autoauto.runtimes.batch_serialisation.loops import batch_serialise
from autoauto.runtimes.batch_serialisation.program import (
    BatchSerialResult,
    LoadHandle,
    PhasedCall,
    PhasedProgram,
    PhaseGraph,
    RowHandle,
    RowOffset,
    Stream,
)

VARIABLES = "variables"


def phased_program(plan: PhasedPlan, names: Mapping[int, str] | None = None) -> PhasedProgram:
    """The loops of a plan and their calls, in order; `names` are those of graphs, else "graph0" and so on.

    Tensors are named after their buffers: "x" is loaded from a row of "x", and "x_out" stored to one.
    """
    calls, phases = [], dict[str, list[Phase]]()
    for phase in plan.phases:
        name = (names or {}).get(phase.graph, f"graph{phase.graph}")
        name += "_grad" if phase.kind is PhaseKind.BACKWARD else ""
        calls.append(PhasedCall(name, phase.row))
        phases.setdefault(name, []).append(phase)
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    loops = {name: _loop(name, sharing, plan, buffers) for name, sharing in phases.items()}
    return PhasedProgram(loops, tuple(calls))


def _loop(name: str, phases: list[Phase], plan: PhasedPlan, buffers: Mapping[str, BufferLayout]) -> BatchSerialResult:
    """The loop that all phases of one graph call, each with its row."""
    phases = sorted(phases, key=lambda phase: phase.row)
    loads: dict[str, LoadHandle] = {**_handles([phase.loads for phase in phases], buffers, "")}
    stores = _handles([phase.stores for phase in phases], buffers, "_out")
    streams = {}
    if phases[0].layers.start == 0 and phases[0].kind is not PhaseKind.BACKWARD:
        loads["x"] = Stream("inputs")
    if phases[0].layers.stop == plan.partition[-1] and phases[0].kind is PhaseKind.FORWARD:
        streams["outputs"] = Stream("outputs")
    return batch_serialise(
        PhaseGraph(name, tuple(loads), (*stores, *streams), (VARIABLES,)),
        plan.steps,
        loads,
        streams,
        stores,
        rows=len(phases),
        io_mode=plan.io_mode,
    )


def _handles(
    rows: Sequence[tuple[BufferRow, ...]], buffers: Mapping[str, BufferLayout], suffix: str
) -> dict[str, RowHandle]:
    """A handle for every tensor that the phases move, by the tensor's name."""
    handles = {}
    for column in zip(*rows, strict=True):
        buffer = column[0].buffer
        assert all(row.buffer == buffer for row in column)
        tensor = buffer.rstrip("0123456789") + suffix
        handles[tensor] = RowHandle(buffers[buffer], _offset([row.row for row in column]))
    return handles


def _offset(rows: Sequence[int]) -> RowOffset:
    """How rows 0, 1 and so on of the loop become `rows`: by adding a number, or else by calling a function."""
    if list(rows) == [rows[0] + row for row in range(len(rows))]:
        return rows[0]
    return list(rows).__getitem__
