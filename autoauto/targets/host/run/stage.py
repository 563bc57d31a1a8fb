"""A stage in a process of its own: `Task`, `serve`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import mean
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple

import numpy as np

from autoauto.records.layers import LayerRange, Port
from autoauto.targets.host.machine.speed_probe import Yardstick
from autoauto.targets.host.measure.session import (
    Content,
    Session,
    check_memory,
    memory_errors,
    onnxruntime,
    shared_array,
)
from autoauto.targets.host.memory_budget import data_bytes
from autoauto.targets.host.transport.array_file import Array
from autoauto.targets.host.transport.ring import ALIGNMENT, Ring

ROWS_A_BLOCK = 4096
LOOK_NS = 250_000_000
"""So often a stage looks how fast its core is."""


class Place(NamedTuple):
    """Where a stage runs: the hardware threads and the number of cores of its device, and what it may hold."""

    cores: tuple[int, ...]
    n_threads: int
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class Task:
    """What the worker of a stage is told.

    Attributes:
        layers: of the stage.
        idle: a model that does next to nothing.
        content: the sub-model of the stage.
        inputs, outputs: of the sub-model.
        received, sent: all tensors of a message in and out: what is carried over the stage is in both.
        receive, send: the rings to its neighbours.
        place: where the worker runs.
    """

    layers: LayerRange
    idle: Content
    content: Content
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    received: tuple[Port, ...]
    sent: tuple[Port, ...]
    receive: Ring
    send: Ring
    place: Place


class Ready(NamedTuple):
    """A stage that is loaded and warm: what it holds, by category, besides the runtime's own `overhead_bytes`."""

    memory_bytes: dict[str, int]
    overhead_bytes: int


class Spans(NamedTuple):
    """What a stage did.

    Attributes:
        times: (m, 4) nanoseconds of the machine's clock: a micro-batch is there and has a place to go to; what is
            carried has been copied; it is computed; it has been sent.
        compute_ns: time of this thread on its core while it computed; less than on the clock: others had the core.
        speed: of the core, beside the best it had, in the mean over the stream; see `yardstick`.
    """

    times: Array
    compute_ns: int
    speed: float

    @property
    def core_fraction(self) -> float:
        """The part of its computing time that a stage had its core, all of it."""
        return self.speed * self.compute_ns / max(int((self.times[:, 2] - self.times[:, 1]).sum()), 1)


def serve(connection: Connection, task: Task) -> None:
    """In a worker: load the stage, say `Ready`, compute every micro-batch that comes, say `Spans`."""
    os.sched_setaffinity(0, task.place.cores)
    yardstick = Yardstick()
    onnxruntime()
    overhead_bytes = data_bytes()
    runtime_bytes = Session(task.idle, (), (), task.place.n_threads, arena=True).parameter_bytes
    session = Session(task.content, task.inputs, task.outputs, task.place.n_threads, arena=True)
    memory_bytes = check_memory(session, runtime_bytes, task.place.budget_bytes, overhead_bytes, task.layers)
    task.content.close()
    connection.send(Ready(memory_bytes, overhead_bytes))
    with memory_errors(task.layers, memory_bytes):
        spans = _stream(session, task, yardstick)
    connection.send(spans)
    connection.recv()  # until the parent has read it


def _stream(session: Session, task: Task, yardstick: Yardstick) -> Spans:
    times, compute_ns = Rows(4), 0
    speeds, looked_ns = [1 / yardstick.factor()], perf_counter_ns()
    carried = [port.name for port in task.sent if port not in task.outputs]
    while (message := task.receive.peek()) is not None:
        inputs, outputs = arrays(message, task.received), arrays(task.send.reserve(), task.sent)
        begin = perf_counter_ns()
        for name in carried:
            outputs[name][...] = inputs[name]
        copied, on_core = perf_counter_ns(), thread_time_ns()
        session.run(inputs, outputs)
        compute_ns += thread_time_ns() - on_core
        computed = perf_counter_ns()
        task.send.commit(message_bytes(task.sent))
        task.receive.release()
        times.append((begin, copied, computed, perf_counter_ns()))
        if computed - looked_ns > LOOK_NS:
            speeds.append(1 / yardstick.factor())
            looked_ns = perf_counter_ns()
    task.send.finish()
    return Spans(times.array(), compute_ns, mean(speeds))


class Rows:
    """Rows of whole numbers in shared memory, so that what is noted of a stage does not count as the stage's own."""

    def __init__(self, width: int) -> None:
        self._width, self._n = width, 0
        self._blocks: list[Array] = []

    def append(self, row: Sequence[int]) -> None:
        """Add a row."""
        place = self._n % ROWS_A_BLOCK
        if place == 0:
            self._blocks.append(shared_array(Port("rows", (ROWS_A_BLOCK, self._width), "int64")))
        self._blocks[-1][place] = row
        self._n += 1

    def array(self) -> Array:
        """All rows, (n, width)."""
        return np.concatenate([np.zeros((0, self._width), np.int64), *self._blocks])[: self._n]


def message_bytes(ports: Sequence[Port]) -> int:
    """Bytes of a message that holds these tensors, each aligned.

    >>> message_bytes([Port("a", (3,), "int8"), Port("b", (1,), "int64")])
    72
    """
    return max((start + port.n_bytes for start, port in _places(ports)), default=0)


def arrays(message: memoryview, ports: Sequence[Port]) -> Mapping[str, Array]:
    """The tensors of a message where they lie, by name."""
    return {
        port.name: np.frombuffer(message, np.uint8, port.n_bytes, start).view(port.dtype).reshape(port.shape)
        for start, port in _places(ports)
    }


def _places(ports: Sequence[Port]) -> list[tuple[int, Port]]:
    places, stop = [], 0
    for port in ports:
        start = -(-stop // ALIGNMENT) * ALIGNMENT
        places.append((start, port))
        stop = start + port.n_bytes
    return places
