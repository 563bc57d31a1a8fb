"""Batch serialisation of a forward graph and its gradient graph, with what passes from one to the other (seed 002)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from autoauto.records.batch_serial import BatchSerialResult, LoadHandle, PhaseGraph, RowHandle, Stream
from autoauto.records.errors import BadInput
from autoauto.records.phased import DEFAULT_IO_TILES
from autoauto.schedule.batch_serialise import batch_serial_buffer, batch_serialise

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
    """Both loops; every tensor of the forward that the gradient graph needs is found again.

    In this order: one of `named_inputs_for_grad_graph` (variables, most often) stays an input of the gradient loop; one
    in `store_buffers` is loaded from there; one that the forward loads from a buffer is loaded from there again; any
    other, as one that the host streams, the forward stores in a new buffer. Handles of both graphs are given together.

    Raises:
        BadInput: as `batch_serialise`, the gradient of an output has no load handle, or the graphs share a name.

    >>> from autoauto.records.batch_serial import Expected
    >>> forward = PhaseGraph("fc", ("x",), ("y",), ("w",))
    >>> needs = {"dy": Expected("y", True), "x'": Expected("x", False), "w'": Expected("w", False)}
    >>> gradient = PhaseGraph("fc_grad", ("dy", "x'"), ("dx",), ("w'",), needs)
    >>> dx = RowHandle(batch_serial_buffer("dx", 2))
    >>> loops = batch_serialise_fwd_and_grad(forward, gradient, ["w"], 2, {"x": Stream("in"), "dy": dx}, {}, {})
    >>> {tensor: handle.buffer.name for tensor, handle in loops[1].loads.items()}, loops[1].inputs
    ({"x'": 'kept/x', 'dy': 'dx'}, ('row', "fc_grad/w'"))
    """
    _check_apart(forward, gradient)
    needed = {
        name: expected.tensor
        for name, expected in gradient.expected.items()
        if not expected.is_gradient and expected.tensor not in named_inputs_for_grad_graph
    }
    places = {tensor: _place(tensor, load_handles, steps, rows) for tensor in needed.values()}
    stores = places | dict(store_buffers)
    arriving = {name: load_handles[name] for name in _gradients(gradient, load_handles)}
    how = (rows, io_mode, io_tiles)
    kept, sent = _of(stores, forward), _of(store_streams, forward)
    loop = batch_serialise(forward, steps, _of(load_handles, forward), sent, kept, seed_input, *how)
    loads = {name: loop.store_buffers[tensor] for name, tensor in needed.items()} | arriving
    kept, sent = _of(store_buffers, gradient), _of(store_streams, gradient)
    return loop, batch_serialise(gradient, steps, loads, sent, kept, None, *how)


def _check_apart(forward: PhaseGraph, gradient: PhaseGraph) -> None:
    both = set(_tensors(forward)) & set(_tensors(gradient))
    if both:
        raise BadInput(
            f"handles tell graphs apart by their tensors, got {', '.join(sorted(both))} in both; rename them"
        )


def _place(tensor: str, load_handles: Mapping[str, LoadHandle], steps: int, rows: int) -> RowHandle:
    """Where the forward loads a tensor from, or a new buffer to store it in."""
    handle = load_handles.get(tensor)
    return handle if isinstance(handle, RowHandle) else RowHandle(batch_serial_buffer(f"kept/{tensor}", steps, rows))


def _gradients(gradient: PhaseGraph, load_handles: Mapping[str, LoadHandle]) -> list[str]:
    """The inputs that are gradients of outputs."""
    names = [name for name, expected in gradient.expected.items() if expected.is_gradient]
    for name in names:
        if name not in load_handles:
            raise BadInput(
                f"FwdGrad input {name} to gradient graph {gradient.name} must have a load_handle specified, got load "
                f"handles for {', '.join(load_handles) or 'nothing'}; add the buffer that holds {name}"
            )
    return names


def _of(handles: Mapping[str, Handle], graph: PhaseGraph) -> dict[str, Handle]:
    """The handles for tensors of one graph."""
    tensors = _tensors(graph)
    return {tensor: handle for tensor, handle in handles.items() if tensor in tensors}


def _tensors(graph: PhaseGraph) -> tuple[str, ...]:
    return (*graph.inputs, *graph.variables, *graph.outputs)
