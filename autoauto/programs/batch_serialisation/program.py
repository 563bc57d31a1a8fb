"""Batch serialisation [popxl-phased] as values: `PhaseGraph`, handles of its tensors, and `BatchSerialResult`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.plans.phased import BufferLayout, IoMode

RowOffset = int | Callable[[int], int] | None
"""From the row that a loop is called with to the row of a buffer: a number to add, a function, or None for row 0."""


class Stream(NamedTuple):
    """A stream from or to the host, one tensor after the other."""

    name: str


@dataclass(frozen=True, slots=True)
class RowHandle:
    """Rows of a buffer in streaming memory that a loop loads a tensor from, or stores it to.

    Attributes:
        buffer: its entries hold the tensors, or one replica's shards of them.
        offset: how rows of the loop become rows of the buffer.
        shards: how many replicas hold a shard each; 1 for whole tensors.
        groups_match: whether the replicas that hold the shards are those that a stored tensor is reduced over.
    """

    buffer: BufferLayout
    offset: RowOffset = 0
    shards: int = 1
    groups_match: bool = True

    def buffer_row(self, row: int) -> int:
        """The row of the buffer for a row of the loop.

        >>> x = BufferLayout("x", rows=3, steps=4)
        >>> [RowHandle(x, offset).buffer_row(1) for offset in (None, 0, 1, lambda row: 2 - row)]
        [0, 1, 2, 1]
        """
        if self.offset is None:
            return 0
        if isinstance(self.offset, int):
            return row + self.offset
        return self.offset(row)

    def entry(self, row: int, step: int) -> int:
        """The entry of a micro-batch when the loop is called with `row`; raises as `BufferLayout.flat_index`."""
        return self.buffer.flat_index(self.buffer_row(row), step)

    @property
    def after_load(self) -> tuple[str, ...]:
        """The collectives that make the shards whole again."""
        return ("all_gather",) if self.shards > 1 else ()

    @property
    def before_store(self) -> tuple[str, ...]:
        """The collectives that leave every replica its shard of the sum."""
        if self.shards == 1:
            return ()
        return ("reduce_scatter",) if self.groups_match else ("all_reduce", "slice")


LoadHandle = RowHandle | Stream


class ExpectedInput(NamedTuple):
    """The meaning of a gradient graph's input: a tensor of the forward graph, or the gradient of such a tensor."""

    tensor: str
    is_gradient: bool


@dataclass(frozen=True, slots=True)
class PhaseGraph:
    """The program of a phase, by the names of its tensors.

    Attributes:
        inputs: in order; those without a handle become inputs of the loop.
        variables: named inputs, loaded before the loop.
        expected: for a gradient graph, the meaning of its inputs; empty for others.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variables: tuple[str, ...] = ()
    expected: Mapping[str, ExpectedInput] = field(default_factory=dict)


class LoopKind(StrEnum):
    """The kinds of operations in a loop."""

    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"


class LoopOp(NamedTuple):
    """An operation on one micro-batch."""

    kind: LoopKind
    step: int

    def __str__(self) -> str:
        return f"{self.kind} {self.step}"


LoopOrder = tuple[tuple[LoopOp, ...], ...]
"""Groups one after the other; the operations of a group run at the same time."""


class TensorMove(NamedTuple):
    """A tensor that is moved.

    Attributes:
        location: the name of the buffer or the stream.
        entry: of the buffer; None for a stream, which sends or receives the next tensor.
        collectives: those of the replicas after a load or before a store.
    """

    tensor: str
    location: str
    entry: int | None
    collectives: tuple[str, ...] = ()


class LoopStep(NamedTuple):
    """An operation with the tensors that it moves; none when it computes."""

    op: LoopOp
    moves: tuple[TensorMove, ...]


@dataclass(frozen=True, slots=True)
class BatchSerialResult:
    """A graph in a loop over micro-batches.

    Attributes:
        rows: how many rows it may be called with.
        loads: the handle of every input that is loaded.
        streams: the stream of every tensor that is sent to the host.
        buffers: the handle of every tensor that the loop stores in a buffer.
        store_buffers: the handles of tensors after the loop: `buffers`, and inputs that were loaded from a buffer.
        seed_input: the input that gets a new random seed in every step, split off the loop's own seed.
        remap: the loop's input for every input of the graph that is not loaded.
        warning: why the io mode is not the one asked for; empty when it is.
    """

    graph: PhaseGraph
    steps: int
    rows: int
    io_mode: IoMode
    loads: Mapping[str, LoadHandle]
    streams: Mapping[str, Stream]
    buffers: Mapping[str, RowHandle]
    store_buffers: Mapping[str, RowHandle]
    seed_input: str | None
    order: LoopOrder
    remap: Mapping[str, str]
    warning: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the loop: the row, then the tensors that are not loaded."""
        return ("row", *self.remap.values())

    def call(self, row: int) -> tuple[tuple[LoopStep, ...], ...]:
        """The operations in groups, with the entries that they move. Raises BadInput if there is no such row."""
        if not 0 <= row < self.rows:
            raise BadInput(f"{self.graph.name} has rows 0 to {self.rows - 1}, got row {row}; try more rows")
        groups = []
        for group in self.order:
            groups.append(tuple(LoopStep(op, self._moves(op, row)) for op in group))
        return tuple(groups)

    def _moves(self, op: LoopOp, row: int) -> tuple[TensorMove, ...]:
        moves: list[TensorMove] = []
        if op.kind is LoopKind.LOAD:
            for tensor in self.graph.inputs:
                if tensor in self.loads:
                    moves.append(_move(tensor, self.loads[tensor], row, op))
        elif op.kind is LoopKind.STORE:
            moves += [_move(tensor, stream, row, op) for tensor, stream in self.streams.items()]
            moves += [_move(tensor, handle, row, op) for tensor, handle in self.buffers.items()]
        return tuple(moves)


def _move(tensor: str, handle: LoadHandle, row: int, op: LoopOp) -> TensorMove:
    if isinstance(handle, Stream):
        return TensorMove(tensor, handle.name, None)
    collectives = handle.after_load if op.kind is LoopKind.LOAD else handle.before_store
    return TensorMove(tensor, handle.buffer.name, handle.entry(row, op.step), collectives)


class PhasedCall(NamedTuple):
    """A loop that is called with a row."""

    loop: str
    row: int

    def __str__(self) -> str:
        return f"{self.loop}({self.row})"


@dataclass(frozen=True, slots=True)
class PhasedProgram:
    """A whole `PhasedPlan` as loops, which are by name; phases of one graph share one."""

    loops: Mapping[str, BatchSerialResult]
    calls: tuple[PhasedCall, ...]
