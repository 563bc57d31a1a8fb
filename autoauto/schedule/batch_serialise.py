"""Batch serialisation: a phase's graph becomes a loop that loads, computes and stores every micro-batch (seed 002)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autoauto.records.batch_serial import BatchSerialResult, LoadHandle, PhaseGraph, RowHandle, Stream
from autoauto.records.errors import BadInput
from autoauto.records.phased import DEFAULT_IO_TILES, BufferLayout, check_loop
from autoauto.schedule.io_order import loop_order


def batch_serial_buffer(tensor: str, steps: int, rows: int = 1, entry_bytes: int = 0) -> BufferLayout:
    """A buffer for a tensor of every micro-batch in every row."""
    return BufferLayout(tensor, rows, steps, entry_bytes)


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
    """Repeat `graph` for `steps` micro-batches, for every row that it may be called with.

    Inputs without a load handle become inputs of the loop. Inputs may be stored like outputs; one that was loaded from
    a buffer is there already and is not stored again. With one step "io_overlapped" becomes "io" with a warning.

    Raises:
        BadInput: steps, rows, mode or io tiles are impossible, a handle is for no tensor of the graph, or a buffer
            does not have the rows and columns of the loop.

    >>> x = BufferLayout("x", rows=3, steps=2)
    >>> inner = PhaseGraph("inner", ("x",), ("y",), ("w",))
    >>> loop = batch_serialise(inner, 2, {"x": RowHandle(x, 0)}, {}, {"y": RowHandle(x, 1)}, rows=2)
    >>> loop.inputs, [step.touches[0].entry for group in loop.call(1) for step in group if step.touches]
    (('row', 'inner/w'), [2, 4, 3, 5])
    """
    mode, warning = check_loop(io_mode, steps, io_tiles, rows)
    inputs = (*graph.inputs, *graph.variables)
    _check_names(graph, "load handle", load_handles, inputs)
    _check_names(graph, "store stream", store_streams, (*inputs, *graph.outputs))
    _check_names(graph, "store buffer", store_buffers, (*inputs, *graph.outputs))
    if seed_input is not None:
        _check_names(graph, "seed input", (seed_input,), inputs)
    stay = {tensor: handle for tensor, handle in load_handles.items() if isinstance(handle, RowHandle)}
    stored = {tensor: handle for tensor, handle in store_buffers.items() if tensor not in stay}
    for handle in (*stay.values(), *stored.values()):
        _check_buffer(handle, steps, rows)
    return BatchSerialResult(
        graph=graph,
        steps=steps,
        rows=rows,
        io_mode=mode,
        loads=dict(load_handles),
        streams=dict(store_streams),
        buffers=stored,
        store_buffers={tensor: stay.get(tensor, handle) for tensor, handle in store_buffers.items()},
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
    """Refuse a buffer of other columns, or without a row that the loop may be called with."""
    buffer = handle.buffer
    if buffer.steps != steps:
        raise BadInput(f"buffer {buffer.name} must have a column for each of {steps} steps, got {buffer.steps}")
    for row in (0, rows - 1) if isinstance(handle.offset, int) else range(rows):
        found = handle.buffer_row(row)
        if not 0 <= found < buffer.rows:
            raise BadInput(
                f"buffer {buffer.name} must have the row {found} that row {row} of the loop uses, got {buffer.rows} "
                "rows; try another offset or more rows"
            )
