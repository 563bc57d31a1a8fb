"""The worker process of a stage: `serve` performs a `StageTask`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import mean
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np

from autoauto.processes.channel import Channel
from autoauto.records.costs.options import SessionOptions
from autoauto.records.layers import LayerRange, Port
from autoauto.records.units import Array
from autoauto.targets.host.machine import SpeedProbe
from autoauto.targets.host.measure.session import (
    OpenModel,
    check_memory,
    load_in_budget,
    memory_errors,
    refusals,
)
from autoauto.targets.host.memory_budget import data_bytes, shared_array
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.transport.messages import FailedMessage, MessageReader, MessageWriter
from autoauto.targets.host.transport.shared_memory import (
    SubModelFile,
    arrays,
    arrays_in,
    message_bytes,
    writable,
)

ROWS_PER_BLOCK = 4096

PROBE_INTERVAL_NS = 250_000_000


class StageResources(NamedTuple):
    """The resources of a stage: the hardware threads of its device, its session, and its memory budget."""

    cores: tuple[int, ...]
    session: SessionOptions
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class StageTask:
    """The arguments of a stage's worker.

    Attributes:
        idle: a model that computes next to nothing, which shows the memory of the runtime itself.
        given, given_ports: a message with inputs of the model on which the stage warms up, and its tensors; None where
            the inputs are made up.
        received, sent: all tensors of an incoming and an outgoing message; tensors carried past the stage are in both.
        receive, send: the channels from the devices of the previous and to those of the next stage, in the order in
            which the micro-batches of this worker use them; after the last the first is next.
        serves: whether micro-batches come from outside, without an end in sight. Then a micro-batch that the model
            refuses is handed on as a failure, and no times are recorded.
    """

    layers: LayerRange
    idle: SubModelFile
    file: SubModelFile
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    received: tuple[Port, ...]
    sent: tuple[Port, ...]
    receive: tuple[MessageReader, ...]
    send: tuple[MessageWriter, ...]
    resources: StageResources
    given: SubModelFile | None = None
    given_ports: tuple[Port, ...] = ()
    serves: bool = False


class StageReady(NamedTuple):
    """A loaded and warm stage: its memory by category, without the `overhead_bytes` of the process before loading."""

    memory_bytes: dict[str, int]
    overhead_bytes: int


class StageSpans(NamedTuple):
    """Times of a stage's actions.

    Attributes:
        times: (m, 4), in ns of the machine's clock. For every micro-batch: its input and a free slot for its output are
            there; what is on another machine has been read, and carried tensors copied; it has been computed; it has
            been sent.
        compute_ns: CPU time of the computations; it is less than their time on the clock when others had the core.
        speed: mean speed of the core over the stream, relative to its typical speed; see `SpeedProbe`.
    """

    times: Array
    compute_ns: int
    speed: float

    @property
    def core_fraction(self) -> float:
        """The part of a full core that the stage had while it computed."""
        return self.speed * self.compute_ns / max(int((self.times[:, 2] - self.times[:, 1]).sum()), 1)


def serve(connection: Channel, task: StageTask) -> None:
    """In a worker: load the stage, send `StageReady`; compute all micro-batches of the rings, send `StageSpans`; again.

    A stage that serves has one stream, and sends None at its end. The parent ends this process.
    """
    os.sched_setaffinity(0, task.resources.cores)
    probe = SpeedProbe()
    options, budget_bytes = task.resources.session, task.resources.budget_bytes
    runtime = runtime_named(options.runtime)
    overhead_bytes = data_bytes()
    with runtime.exclusively(options), refusals(runtime, task.layers):
        # The first session of a process takes memory for any model, which is not the stage's own.
        runtime_bytes = load_in_budget(task.idle, (), (), options, budget_bytes, 0, task.layers).parameter_bytes
        given = arrays_in(task.given, task.given_ports) if task.given else {}
        session = load_in_budget(
            task.file, task.inputs, task.outputs, options, budget_bytes, runtime_bytes, task.layers, given
        )
        memory_bytes = check_memory(session, runtime_bytes, budget_bytes, overhead_bytes, task.layers)
    runtime.pin([*(each.memory for each in task.receive), *(each.memory for each in task.send)])
    task.file.close()
    connection.send(StageReady(memory_bytes, overhead_bytes))
    with memory_errors(session, task.layers, memory_bytes):
        while not task.serves:
            spans = _stream(session, task, probe)
            for ring in task.receive:
                ring.restart()
            connection.send(spans)
        _serve_stream(session, task)
    connection.send(None)
    connection.recv()  # blocks until the parent ends this process, so that it can read the message


def _stream(session: OpenModel, task: StageTask, probe: SpeedProbe) -> StageSpans:
    times = SharedRowLog(4)
    compute_ns = 0
    speeds = [1 / probe.factor()]
    probed_ns = perf_counter_ns()
    carried = [port.name for port in task.sent if port not in task.outputs]
    model = session.model
    run = refusals(session.runtime, task.layers)(model.run)
    for receive, send in zip(cycle(task.receive), cycle(task.send), strict=False):
        if not receive.wait():
            break
        slot = send.reserve()
        start = perf_counter_ns()
        message = receive.peek()  # takes time where it comes from another machine
        assert message is not None
        inputs, outputs = arrays(message, task.received), writable(slot, task.sent)
        for name in carried:
            outputs[name][...] = inputs[name]
        # Moving tensors to a GPU and back counts as copying, so its time goes from the computation to `copied`.
        copied = perf_counter_ns() - model.moved_ns()
        core_start = model.cpu_time_ns()
        run(inputs, outputs)
        copied += model.moved_ns()
        compute_ns += model.cpu_time_ns() - core_start
        computed = perf_counter_ns()
        send.commit(message_bytes(task.sent))
        receive.release()
        times.append((start, copied, computed, perf_counter_ns()))
        if computed - probed_ns > PROBE_INTERVAL_NS:
            speeds.append(1 / probe.factor())
            probed_ns = perf_counter_ns()
    for send in task.send:
        send.finish()
    return StageSpans(times.array(), compute_ns, mean(speeds))


def _serve_stream(session: OpenModel, task: StageTask) -> None:
    """Compute micro-batches without a record of their times, which would grow for ever."""
    carried = [port.name for port in task.sent if port not in task.outputs]
    for receive, send in zip(cycle(task.receive), cycle(task.send), strict=False):
        try:
            message = receive.peek()
            if message is None:
                break
            inputs = arrays(message, task.received)
            outputs = writable(send.reserve(), task.sent)
            for name in carried:
                outputs[name][...] = inputs[name]
            session.model.run(inputs, outputs)
        except FailedMessage as failure:  # of an earlier stage
            send.reserve()
            send.fail(str(failure))
        except Exception as error:
            if session.runtime.is_memory_error(error):
                raise
            send.fail(" ".join(str(error).split()))
        else:
            send.commit(message_bytes(task.sent))
        receive.release()
    for send in task.send:
        send.finish()


class SharedRowLog:
    """A growing table of integers in shared memory, so that the records of a stage do not count as its memory."""

    def __init__(self, width: int) -> None:
        self._width, self._n = width, 0
        self._blocks: list[Array] = []

    def append(self, row: Sequence[int]) -> None:
        """Add a row."""
        index = self._n % ROWS_PER_BLOCK
        if index == 0:
            self._blocks.append(shared_array(Port("rows", (ROWS_PER_BLOCK, self._width), "int64")))
        self._blocks[-1][index] = row
        self._n += 1

    def array(self) -> Array:
        """All rows, (n, width)."""
        return np.concatenate([np.zeros((0, self._width), np.int64), *self._blocks])[: self._n]
