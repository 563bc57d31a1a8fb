"""One or more pipelines whose stages are processes of this machine or of several: `Pipelines`.

                  ring            ring            ring
    this process ──────▶ stage 0 ──────▶ stage 1 ──────▶ this process

Each stage computes from a slot of one ring into a slot of the next. Tensors that only later stages need are copied from
slot to slot, stage by stage.

Stage replicas are processes that run one stage. Micro-batch t is computed by process t mod m of a stage's m, so it goes
from process t mod m to process t mod k of the next stage's k. Every two processes that exchange micro-batches have a
ring, here for m = 2 and k = 3, each with the micro-batches that it carries:

    process 0 ── 0 6 ..──▶ process 0        0 sends to 0, 2, 1, 0, 2, 1, ...
              ── 2 8 ..──▶ process 2        1 sends to 1, 0, 2, 1, 0, 2, ...
              ── 4 10 .──▶ process 1        0 receives from 0, 1, 0, 1, ...
    process 1 ── 1 7 ..──▶ process 1        1 receives from 1, 0, 1, 0, ...
              ── 3 9 ..──▶ process 0        2 receives from 0, 1, 0, 1, ...
              ── 5 11 .──▶ process 2

Every process uses its rings in the order of its micro-batches, and this process feeds and drains them in that order,
too. So the outputs stay in order, and the oldest micro-batch never waits for a later one. A process that ends sends the
end over all its rings. One that meets an end where its next micro-batch would be has had all of them, and ends.

Between processes of two machines a connection takes the place of the ring (`autoauto/targets/host/remote/machines.py`).

Where the only pipeline is one process, a caller that has an event loop waits for it itself, without a thread between:

    whoever waits ── ring ──▶ stage ── ring ──▶ whoever waits          (`ProcessExchange`)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import lcm
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel
from autoauto.records.units import Array
from autoauto.targets.host.measure.session import idle_model
from autoauto.targets.host.processes import waiter_of
from autoauto.targets.host.remote.machines import LocalMachine, ProcessHost, connect
from autoauto.targets.host.run.stage import StageReady, StageResources, StageSpans, StageTask, serve
from autoauto.targets.host.transport.messages import FailedMessage, readable
from autoauto.targets.host.transport.shared_memory import (
    Ring,
    arrays,
    copy_batch,
    message_bytes,
    message_of,
    writable,
)


def cut_in_parts(source: Source, graph: LayerGraph, layers: LayerRange, batch_size: int, n_parts: int) -> SubModel:
    """Cut out `layers` for a part of a micro-batch, one for each stream; inputs and outputs are those of the whole.

    Raises:
        BadInput: the samples do not lie one behind the other in an input, or in every output.
    """
    whole = source.cut(graph, layers, batch_size)
    if n_parts == 1:
        return whole
    part = source.cut(graph, layers, batch_size // n_parts)
    pairs = zip((*whole.inputs, *whole.outputs), (*part.inputs, *part.outputs), strict=True)
    for index, (port, own) in enumerate(pairs):
        if port == own and index < len(whole.inputs):
            continue  # an input without samples, such as a table, is the same for all parts
        # Else a tensor is the concatenation of the tensors of its parts.
        is_in_parts = bool(own.shape) and port.shape == (n_parts * own.shape[0], *own.shape[1:])
        if port.data_dependent or not is_in_parts:
            shape = "lengths that depend on data" if port.data_dependent else f"the shape {list(port.shape)}"
            raise BadInput(
                f"streams need the batch as the first axis of every tensor, {port.name} has {shape}; try --streams 1"
            )
    return replace(whole, content=part.content)


N_SLOTS = 3
"""Slots of a ring: one is read, one is written, and one evens out the variation of the stages' times."""

Batch = Mapping[str, Array]


class ProcessExchange:
    """Sends micro-batches to the only process and receives its outputs, in order.

    Attributes:
        capacity: micro-batches that may be in flight, without a wait for a free slot. A process releases the slot of
            its inputs after it has sent the outputs, so one slot is left for that.
    """

    def __init__(self, inputs: Ring, outputs: Ring, received: Sequence[Port], sent: Sequence[Port]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._received, self._sent = received, sent
        self._input_bytes = message_bytes(received)
        self.capacity = inputs.n_slots - 1
        self.n_bytes = self._input_bytes + message_bytes(sent)
        self.filled_fd = outputs.filled_fd

    def send(self, write: Callable[[Batch], None]) -> None:
        """Send a micro-batch, whose inputs `write` writes into arrays."""
        write(writable(self._inputs.reserve(), self._received))
        self._inputs.commit(self._input_bytes)

    def receive(self, take: Callable[[Batch], None]) -> str | None:
        """Wait for the next outputs, and have `take` read them; the arrays are valid until it returns.

        Returns:
            The reason for which the model refuses the micro-batch, then without outputs; None where it does not.
        """
        reason = None
        try:
            message = self._outputs.peek()
        except FailedMessage as failure:
            reason = str(failure)
        else:
            assert message is not None  # nothing ends the stream
            take(arrays(message, self._sent))
        self._outputs.release()
        return reason


class Pipelines(AbstractContextManager["Pipelines"]):
    """Equal pipelines side by side, loaded and warm within the context.

    Args:
        stages: the layers of every stage, from the first layer to the last.
        resources: what every process of every pipeline may use, by pipeline and process, those of stage 0 first.
        machines: where every process of every pipeline is, as `resources`; by default all are on this machine.
        given: inputs of the model on which stages warm up that read them; by default these are made up, as those from
            other stages are.

    Attributes:
        ready: the memory of every loaded process, in the order of `resources`.

    Raises:
        OutOfMemory: a stage exceeds its budget.
        WorkerLost: a process, or another machine, has ended.
        Exception: any other exception of a stage, with the worker's traceback as the cause.
    """

    def __init__(
        self,
        graph: LayerGraph,
        source: Source,
        stages: Sequence[LayerRange],
        batch_size: int,
        resources: Sequence[Sequence[StageResources]],
        n_replicas: Sequence[int] | None = None,
        machines: Sequence[Sequence[ProcessHost]] | None = None,
        *,
        serves: bool = False,
        given: Batch | None = None,
    ) -> None:
        self._serves, self._given = serves, given
        n_parts = 1 if serves else resources[0][0].session.session.n_parts  # a served file was cut in parts before
        self._sub_models = [cut_in_parts(source, graph, layers, batch_size, n_parts) for layers in stages]
        cuts = [layers.start for layers in stages] + [stages[-1].stop]
        self._messages = [source.carried(graph, cut, batch_size) for cut in cuts]
        self._stages, self._resources = tuple(stages), resources
        self._n_replicas = tuple(n_replicas or [1] * len(stages))
        self._machines = machines
        self._channels: list[list[_Channels]] = []
        self._started: list[list[tuple[ProcessHost, int]]] = []
        self.ready: tuple[tuple[StageReady, ...], ...] = ()

    def __enter__(self) -> Pipelines:
        with ExitStack() as stack, ExitStack() as loading:
            self._here = stack.enter_context(LocalMachine())
            machines = self._machines or [[self._here] * len(processes) for processes in self._resources]
            given = message_of(self._given, self._messages[0]) if self._given else b""
            contents = [sub_model.content for sub_model in self._sub_models]
            files = _Files(loading, idle_model().content, contents, given)
            for pipeline, (of_pipeline, resources) in enumerate(zip(machines, self._resources, strict=True)):
                self._start(pipeline, of_pipeline, resources, files)
            # The workers need the memory: the content is in the files now.
            self._sub_models = [replace(sub_model, content=b"") for sub_model in self._sub_models]
            groups = {id(machine): machine.workers for started in self._started for machine, _ in started}
            self._groups = list(groups.values())
            self.ready = self._receive_from_all()
            self._stack = stack.pop_all()
        return self

    def _start(
        self, pipeline: int, machines: Sequence[ProcessHost], resources: Sequence[StageResources], files: _Files
    ) -> None:
        # The rows of processes that exchange messages: this process, those of every stage, and this process again.
        rows: list[Sequence[ProcessHost]] = [[self._here]]
        first = 0
        for m in self._n_replicas:
            rows.append(machines[first : first + m])
            first += m
        rows.append([self._here])
        channels = [
            _Channels(senders, receivers, message_bytes(ports))
            for (senders, receivers), ports in zip(pairwise(rows), self._messages, strict=True)
        ]
        self._channels.append(channels)
        self._started.append([])
        left = iter(resources)
        for stage, m in enumerate(self._n_replicas):
            for replica, machine in enumerate(rows[1 + stage]):
                one_of = f", replica {replica}," if m > 1 else ""
                task = self._task(stage, replica, machine, files, channels, next(left))
                worker = machine.workers.start(f"stage {stage}{one_of} of pipeline {pipeline}", serve, task)
                self._started[-1].append((machine, worker))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes of this machine, in the order of `resources`."""
        return self._here.workers.pids

    def exchange(self) -> ProcessExchange | None:
        """The exchange with the only process, for a caller that waits for it itself instead of by `stream`.

        None where there are more processes. `wait` raises the failures of the process meanwhile.
        """
        if len(self._channels) > 1 or self._n_replicas != (1,):
            return None
        [[feeding, draining]] = self._channels
        [inputs], [outputs] = feeding.sent_by(0), draining.received_by(0)
        return ProcessExchange(inputs, outputs, *self._messages)

    def wait(self, descriptor: int) -> None:
        """Wait until a descriptor is readable.

        Raises:
            WorkerLost: a process has ended.
            Exception: of a process that failed.
        """
        ready = waiter_of(self._groups)
        while not ready([descriptor]):
            pass

    def stream(
        self,
        batches: Iterator[Any],
        take: Callable[[int, int, Batch], None],
        refuse: Callable[[int, str], None] | None = None,
        arrivals_fd: int | None = None,
        write: Callable[[Any, Batch], None] = copy_batch,
    ) -> list[list[StageSpans]]:
        """Send micro-batches, each through the first pipeline that has room, until `batches` ends.

        `take(pipeline, number, outputs)` is called with the outputs of micro-batch `number` of `batches`; the arrays
        are valid until it returns. Streams may follow one another, unless the pipelines serve, one failed, or processes
        are on another machine.

        Args:
            refuse: for pipelines that serve: called with the number of a micro-batch that the model refuses and the
                reason, instead of `take`.
            arrivals_fd: readable while `batches` has a micro-batch or has ended; by default it always has.
            write: writes a micro-batch into the arrays that the first stage reads; by default it is a `Batch`.

        Returns:
            The times of every process by the clock of this machine, in the order of `resources`; None of processes that
            serve.
        """
        # Of every pipeline: the rings in the order of their use, the next one first, until they are at their ends.
        inputs: list[deque[Ring]] = [deque(channels[0].sent_by(0)) for channels in self._channels]
        outputs: list[deque[Ring]] = [deque(channels[-1].received_by(0)) for channels in self._channels]
        in_flight: list[deque[int]] = [deque() for _ in self._channels]
        numbered = enumerate(batches)
        ready = waiter_of(self._groups)
        while any(inputs) or any(outputs):
            wanted = [rings[0].free_fd for rings in inputs if rings]
            if wanted and arrivals_fd is not None and not _is_readable(arrivals_fd):
                wanted = [arrivals_fd]  # free slots would wake this process again and again
            descriptors = ready(wanted + [rings[0].filled_fd for rings in outputs if rings])
            for pipeline, (feeding, draining) in enumerate(zip(inputs, outputs, strict=True)):
                if draining and draining[0].filled_fd in descriptors:
                    self._drain(draining, partial(take, pipeline), refuse, in_flight[pipeline])
                # An earlier pipeline may have taken the micro-batch that had arrived.
                if feeding and feeding[0].free_fd in descriptors and (arrivals_fd is None or _is_readable(arrivals_fd)):
                    self._feed(feeding, numbered, in_flight[pipeline], write)
        streams = []
        for started, received in zip(self._started, self._receive_from_all(), strict=True):
            pairs = zip(started, received, strict=True)
            streams.append([_by_own_clock(spans, machine) for (machine, _), spans in pairs])
        for channels in self._channels:
            for ring in channels[-1].received_by(0):
                ring.restart()
        return streams

    def _feed(
        self,
        rings: deque[Ring],
        batches: Iterator[tuple[int, Any]],
        in_flight: deque[int],
        write: Callable[[Any, Batch], None],
    ) -> None:
        """Send the next micro-batch into a pipeline; at the end of the stream end its next ring instead."""
        ports = self._messages[0]
        number, batch = next(batches, (None, None))
        if number is None:
            rings.popleft().finish()
            return
        write(batch, writable(rings[0].reserve(), ports))
        in_flight.append(number)
        rings[0].commit(message_bytes(ports))
        rings.rotate(-1)

    def _drain(
        self,
        rings: deque[Ring],
        take: Callable[[int, Batch], None],
        refuse: Callable[[int, str], None] | None,
        in_flight: deque[int],
    ) -> None:
        """Take the next outputs of a pipeline; at the end of the stream drop all its rings."""
        try:
            message = rings[0].peek()
        except FailedMessage as failure:
            if refuse is None:
                raise
            refuse(in_flight.popleft(), str(failure))
        else:
            if message is None:  # the outputs stay in order, so the other rings are at their ends as well
                rings.clear()
                return
            take(in_flight.popleft(), arrays(message, self._messages[-1]))
        rings[0].release()
        rings.rotate(-1)

    def _task(
        self,
        stage: int,
        replica: int,
        machine: ProcessHost,
        files: _Files,
        channels: Sequence[_Channels],
        resources: StageResources,
    ) -> StageTask:
        sub_model = self._sub_models[stage]
        is_given = bool(self._given) and any(port in self._messages[0] for port in sub_model.inputs)
        return StageTask(
            layers=self._stages[stage],
            idle=files.at(machine, "idle"),
            file=files.at(machine, stage),
            given=files.at(machine, "given") if is_given else None,
            given_ports=self._messages[0] if is_given else (),
            inputs=sub_model.inputs,
            outputs=sub_model.outputs,
            received=self._messages[stage],
            sent=self._messages[stage + 1],
            receive=channels[stage].received_by(replica),
            send=channels[stage + 1].sent_by(replica),
            resources=resources,
            serves=self._serves,
        )

    def _receive_from_all(self) -> tuple[tuple[Any, ...], ...]:
        messages = []
        for started in self._started:
            messages.append(tuple(machine.workers.receive(worker) for machine, worker in started))
        return tuple(messages)


class _Channels:
    """The channels from the processes of one stage to the processes of the next.

    The channels of a process are in the order in which its micro-batches use them.
    """

    def __init__(self, senders: Sequence[ProcessHost], receivers: Sequence[ProcessHost], slot_bytes: int) -> None:
        self._channels: dict[tuple[int, int], tuple[Any, Any]] = {}
        # Micro-batch t goes from process t mod m to process t mod k; pairs come again after the least common multiple.
        for t in range(lcm(len(senders), len(receivers))):
            sender, receiver = t % len(senders), t % len(receivers)
            self._channels[sender, receiver] = connect(senders[sender], receivers[receiver], N_SLOTS, slot_bytes)

    def sent_by(self, process: int) -> tuple[Any, ...]:
        return tuple(writer for (sender, _), (writer, _) in self._channels.items() if sender == process)

    def received_by(self, process: int) -> tuple[Any, ...]:
        return tuple(reader for (_, receiver), (_, reader) in self._channels.items() if receiver == process)


class _Files:
    """The files that workers load, written on a machine when its first worker needs them; closed by `stack`."""

    def __init__(self, stack: ExitStack, idle: bytes, sub_models: Sequence[bytes], given: bytes) -> None:
        self._stack = stack
        self._contents: dict[str | int, bytes] = {"idle": idle, "given": given, **dict(enumerate(sub_models))}
        self._files: dict[tuple[int, str | int], Any] = {}

    def at(self, machine: ProcessHost, name: str | int) -> Any:
        """A file on a machine: "idle", "given", or the number of a stage."""
        key = id(machine), name
        if key not in self._files:
            self._files[key] = machine.file(self._contents[name])
            self._stack.callback(self._files[key].close)
        return self._files[key]


def _by_own_clock(spans: Any, machine: ProcessHost) -> Any:
    """Spans of a process on a machine, by the clock of this machine; None stays."""
    if spans is None:
        return None
    return spans._replace(times=spans.times - machine.clock_offset_ns)


def _is_readable(descriptor: int) -> bool:
    return bool(readable([descriptor], timeout_s=0))
