"""Loops over micro-batches [popxl-phased]: their order in time, `batch_serialise`, and the same with gradients.

From a phased plan to its program [popxl-phased]: a loop for every graph, called once for every phase.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from autoauto.programs.batch_serialisation.program import (
    BatchSerialResult,
    LoadHandle,
    LoopKind,
    LoopOp,
    LoopOrder,
    PhasedCall,
    PhasedProgram,
    PhaseGraph,
    RowHandle,
    RowOffset,
    Stream,
)
from autoauto.records.errors import BadInput
from autoauto.records.plans.phased import (
    DEFAULT_IO_TILES,
    BufferLayout,
    BufferRow,
    IoMode,
    Phase,
    PhasedPlan,
    PhaseKind,
    check_loop,
)

# io tiles       load 0 | load 1    | load 2 store 0 | store 1   | store 2
# compute tiles         | compute 0 | compute 1      | compute 2 |


def loop_order(io_mode: IoMode, steps: int) -> LoopOrder:
    """The operations of all steps in the order of an io mode; raises as `overlapped_order`."""
    if io_mode is IoMode.IO_OVERLAPPED:
        return overlapped_order(steps)
    groups = []
    for step in range(steps):
        groups += [(LoopOp(kind, step),) for kind in LoopKind]
    return tuple(groups)


def overlapped_order(steps: int) -> LoopOrder:
    """Every group loads micro-batch i and stores i - 2 in one exchange of the io tiles while i - 1 is computed.

    Raises BadInput if there are fewer than two steps.
    """
    if steps < 2:
        raise BadInput(f"steps must be >=2 if using overlapped IO, got {steps}; try io_mode io")
    behind = ((LoopKind.LOAD, 0), (LoopKind.STORE, 2), (LoopKind.COMPUTE, 1))
    groups = []
    for i in range(steps + 2):
        # The first groups have nothing to store or compute yet, the last ones nothing to load.
        at_this_time = [LoopOp(kind, i - n_behind) for kind, n_behind in behind]
        groups.append(tuple(op for op in at_this_time if 0 <= op.step < steps))
    return tuple(groups)


def batch_serialise(
    graph: PhaseGraph,
    steps: int,
    load_handles: Mapping[str, LoadHandle],
    store_streams: Mapping[str, Stream],
    store_buffers: Mapping[str, RowHandle],
    seed_input: str | None = None,
    rows: int = 1,
    io_mode: str = "io",
    io_tiles: int = DEFAULT_IO_TILES,
) -> BatchSerialResult:
    """Repeat `graph` for `steps` micro-batches, for every row that the loop may be called with.

    Inputs without a load handle become inputs of the loop. Inputs may be stored like outputs; an input that was loaded
    from a buffer is not stored again. With one step "io_overlapped" becomes "io" with a warning. Raises BadInput if
    steps, rows, mode or io tiles are impossible, a handle is for no tensor of the graph, or a buffer does not have the
    rows and columns of the loop.
    """
    mode, warning = check_loop(io_mode, steps, io_tiles, rows)
    inputs = graph.inputs + graph.variables
    _check_names(graph, "load handle", load_handles, inputs)
    _check_names(graph, "store stream", store_streams, inputs + graph.outputs)
    _check_names(graph, "store buffer", store_buffers, inputs + graph.outputs)
    if seed_input is not None:
        _check_names(graph, "seed input", (seed_input,), inputs)
    unchanged = {tensor: handle for tensor, handle in load_handles.items() if isinstance(handle, RowHandle)}
    stored = {tensor: handle for tensor, handle in store_buffers.items() if tensor not in unchanged}
    for handle in chain(unchanged.values(), stored.values()):
        _check_buffer(handle, steps, rows)
    return BatchSerialResult(
        graph=graph,
        steps=steps,
        rows=rows,
        io_mode=mode,
        loads=dict(load_handles),
        streams=dict(store_streams),
        buffers=stored,
        store_buffers={tensor: unchanged.get(tensor, handle) for tensor, handle in store_buffers.items()},
        seed_input=seed_input,
        order=loop_order(mode, steps),
        remap={tensor: f"{graph.name}/{tensor}" for tensor in inputs if tensor not in load_handles},
        warning=warning,
    )


def _check_names(graph: PhaseGraph, what: str, given: Collection[str], known: Collection[str]) -> None:
    for tensor in given:
        if tensor not in known:
            raise BadInput(f"a {what} is for a tensor of {graph.name}: {', '.join(known)}; got {tensor!r}")


def _check_buffer(handle: RowHandle, steps: int, rows: int) -> None:
    """Refuse a buffer with another number of columns, or without a row that the loop may use."""
    buffer = handle.buffer
    if buffer.steps != steps:
        raise BadInput(f"buffer {buffer.name} must have a column for each of {steps} steps, got {buffer.steps}")
    loop_rows: Sequence[int] = range(rows)
    if isinstance(handle.offset, int):  # it is added to all rows: the first and the last show whether they exist
        loop_rows = (0, rows - 1)
    for row in loop_rows:
        used = handle.buffer_row(row)
        if not 0 <= used < buffer.rows:
            raise BadInput(
                f"buffer {buffer.name} must have the row {used} that row {row} of the loop uses, got {buffer.rows} "
                "rows; try another offset or more rows"
            )


Handle = TypeVar("Handle")


def batch_serialise_fwd_and_grad(
    forward: PhaseGraph,
    gradient: PhaseGraph,
    named_inputs_for_grad_graph: Collection[str],
    steps: int,
    load_handles: Mapping[str, LoadHandle],
    store_streams: Mapping[str, Stream],
    store_buffers: Mapping[str, RowHandle],
    seed_input: str | None = None,
    rows: int = 1,
    io_mode: str = "io",
    io_tiles: int = DEFAULT_IO_TILES,
) -> tuple[BatchSerialResult, BatchSerialResult]:
    """The loops of a forward and a gradient graph, which gets every tensor of the forward graph that it needs.

    A tensor in `named_inputs_for_grad_graph`, a variable as a rule, stays an input of the gradient loop. A tensor in
    `store_buffers` is loaded from there, and a tensor that the forward loads from a buffer is loaded from there again.
    Any other tensor, such as a stream from the host, the forward stores in a new buffer. The handles of both graphs are
    given together. Raises BadInput as `batch_serialise`, or if the gradient of an output has no load handle, or the
    graphs share a name.
    """
    both = set(_tensors(forward)) & set(_tensors(gradient))
    if both:
        raise BadInput(
            "the tensors of both graphs must differ in name, as handles go by these, "
            f"got {', '.join(sorted(both))} in both; rename them"
        )
    needed: dict[str, str] = {}  # by input of the gradient graph the tensor of the forward graph
    stores: dict[str, RowHandle] = {}
    for name, expected in gradient.expected.items():
        tensor = expected.tensor
        if not expected.is_gradient and tensor not in named_inputs_for_grad_graph:
            needed[name] = tensor
            # Where the forward loads the tensor from, or a new buffer to store it in.
            handle = load_handles.get(tensor)
            if not isinstance(handle, RowHandle):
                handle = RowHandle(BufferLayout(f"kept/{tensor}", rows, steps))
            stores[tensor] = handle
    stores |= store_buffers
    arriving = {name: load_handles[name] for name in _gradients(gradient, load_handles)}
    loop = batch_serialise(
        forward,
        steps,
        _of(load_handles, forward),
        _of(store_streams, forward),
        _of(stores, forward),
        seed_input,
        rows,
        io_mode,
        io_tiles,
    )
    # What the forward has loaded or stored is where the gradient graph loads it from.
    loads = {name: loop.store_buffers[tensor] for name, tensor in needed.items()} | arriving
    gradient_loop = batch_serialise(
        gradient,
        steps,
        loads,
        _of(store_streams, gradient),
        _of(store_buffers, gradient),
        rows=rows,
        io_mode=io_mode,
        io_tiles=io_tiles,
    )
    return loop, gradient_loop


def _gradients(gradient: PhaseGraph, load_handles: Mapping[str, LoadHandle]) -> list[str]:
    names = [name for name, expected in gradient.expected.items() if expected.is_gradient]
    for name in names:
        if name not in load_handles:
            raise BadInput(
                f"FwdGrad input {name} to gradient graph {gradient.name} must have a load_handle specified, got load "
                f"handles for {', '.join(load_handles) or 'nothing'}; add the buffer that holds {name}"
            )
    return names


def _of(handles: Mapping[str, Handle], graph: PhaseGraph) -> dict[str, Handle]:
    tensors = _tensors(graph)
    return {tensor: handle for tensor, handle in handles.items() if tensor in tensors}


def _tensors(graph: PhaseGraph) -> tuple[str, ...]:
    return graph.inputs + graph.variables + graph.outputs


VARIABLES = "variables"


def phased_program(plan: PhasedPlan, names: Mapping[int, str] | None = None) -> PhasedProgram:
    """The loops of a plan and their calls, in order; `names` are those of graphs, else "graph0" and so on.

    Tensors are named after their buffers: "x" is loaded from a row of "x", and "x_out" stored to one.
    """
    calls, phases = [], dict[str, list[Phase]]()
    for phase in plan.phases:
        name = (names or {}).get(phase.graph, f"graph{phase.graph}")
        if phase.kind is PhaseKind.BACKWARD:
            name += "_grad"
        calls.append(PhasedCall(name, phase.row))
        phases.setdefault(name, []).append(phase)
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    loops = {name: _loop(name, sharing, plan, buffers) for name, sharing in phases.items()}
    return PhasedProgram(loops, tuple(calls))


def _loop(name: str, phases: list[Phase], plan: PhasedPlan, buffers: Mapping[str, BufferLayout]) -> BatchSerialResult:
    """The loop that all phases of one graph call, each with its row."""
    phases = sorted(phases, key=lambda phase: phase.row)
    first = phases[0]
    loads: dict[str, LoadHandle] = dict(_handles([phase.loads for phase in phases], buffers, ""))
    stores = _handles([phase.stores for phase in phases], buffers, "_out")
    streams = {}
    if first.layers.start == 0 and first.kind is not PhaseKind.BACKWARD:
        loads["x"] = Stream("inputs")
    if first.layers.stop == plan.partition[-1] and first.kind is PhaseKind.FORWARD:
        streams["outputs"] = Stream("outputs")
    return batch_serialise(
        PhaseGraph(name, tuple(loads), tuple(stores) + tuple(streams), (VARIABLES,)),
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
