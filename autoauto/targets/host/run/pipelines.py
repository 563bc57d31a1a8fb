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

Sub-models that compute a micro-batch in equal parts at the same time, a part a stream: `cut_in_parts`.
"""

from __future__ import annotations

import select
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
from autoauto.targets.host.run.exchange import ProcessExchange
from autoauto.targets.host.run.stage import StageReady, StageResources, StageSpans, StageTask, serve
from autoauto.targets.host.transport.messages import FailedMessage
from autoauto.targets.host.transport.shared_memory import (
    Ring,
    arrays,
    copy_batch,
    message_bytes,
    message_of,
    writable,
)


def cut_in_parts(source: Source, graph: LayerGraph, layers: LayerRange, batch_size: int, n_parts: int) -> SubModel:
    """Cut out `layers` for a part of a micro-batch; its inputs and outputs are those of the whole micro-batch.

    Raises:
        BadInput: the samples do not lie one behind the other in an input, or in every output.
    """
    whole = source.cut(graph, layers, batch_size)
    if n_parts == 1:
        return whole
    part = source.cut(graph, layers, batch_size // n_parts)
    for ports, parts, has_samples in ((whole.inputs, part.inputs, False), (whole.outputs, part.outputs, True)):
        for port, own in zip(ports, parts, strict=True):
            if not (_is_of_parts(port, own, n_parts) or (port == own and not has_samples)):
                shape = "lengths that depend on data" if port.data_dependent else f"the shape {list(port.shape)}"
                raise BadInput(
                    f"streams need the batch as the first axis of every tensor, {port.name} has {shape}; "
                    "try --streams 1"
                )
    return replace(whole, content=part.content)


def _is_of_parts(port: Port, part: Port, n_parts: int) -> bool:
    """True if a tensor is the concatenation of the tensors of its parts."""
    return bool(part.shape) and not port.data_dependent and port.shape == (n_parts * part.shape[0], *part.shape[1:])


N_SLOTS = 3
"""Slots of a ring: one is read, one is written, and one evens out the variation of the stages' times."""

Batch = Mapping[str, Array]
"""Tensors of one micro-batch by name."""


class Pipelines(AbstractContextManager["Pipelines"]):
    """Equal pipelines side by side, loaded and warm within the context.

    Args:
        graph, source: the model.
        stages: the layers of every stage, from the first layer to the last.
        batch_size: samples of a micro-batch.
        resources: what every process of every pipeline may use, by pipeline and process, those of stage 0 first.
        n_replicas: the processes of every stage; by default one each.
        machines: where every process of every pipeline is, as `resources`; by default all are on this machine.
        serves: as in `StageTask`.
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
        n_parts = 1 if serves else resources[0][0].session.session.n_parts  # what is served was cut in parts before
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
            files = _Files(loading, (idle_model().content, *(each.content for each in self._sub_models), given))
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
        """Start the processes of a pipeline, and connect them."""
        processes = [(stage, replica) for stage, m in enumerate(self._n_replicas) for replica in range(m)]
        machine_of = dict(zip(processes, machines, strict=True))
        rows = [[machine_of[stage, replica] for replica in range(m)] for stage, m in enumerate(self._n_replicas)]
        here: list[ProcessHost] = [self._here]
        ends = pairwise((here, *rows, here))
        channels = [_Channels(*pair, message_bytes(ports)) for pair, ports in zip(ends, self._messages, strict=True)]
        self._channels.append(channels)
        self._started.append([])
        for (stage, replica), machine, each in zip(processes, machines, resources, strict=True):
            one_of = f", replica {replica}," if self._n_replicas[stage] > 1 else ""
            own_files = [files.at(machine, number) for number in (0, 1 + stage)]
            if self._given and any(port in self._messages[0] for port in self._sub_models[stage].inputs):
                own_files.append(files.at(machine, 1 + len(self._stages)))
            task = self._task(stage, replica, own_files, channels, each)
            worker = machine.workers.start(f"stage {stage}{one_of} of pipeline {pipeline}", serve, task)
            self._started[-1].append((machine, worker))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def pids(self) -> list[int]:
        """The process numbers of those of this machine, in the order of `resources`."""
        return self._here.workers.pids

    def exchange(self) -> ProcessExchange | None:
        """The ends of the only process, for a caller that waits for it itself instead of by `stream`.

        None where there are more processes. `wait` has the failures of the process meanwhile.
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
            batches, take: see above.
            refuse: of pipelines that serve, what is called with the number of a micro-batch that the model refuses, and
                the reason, instead of `take`.
            arrivals_fd: readable while `batches` has a micro-batch or has ended; by default it always has.
            write: writes a micro-batch into the arrays that the first stage reads; by default it is a `Batch`.

        Returns:
            The times of every process by the clock of this machine, in the order of `resources`; None of those that
            serve.
        """
        inputs: list[deque[Ring]] = [deque(channels[0].sent_by(0)) for channels in self._channels]
        outputs: list[deque[Ring]] = [deque(channels[-1].received_by(0)) for channels in self._channels]
        in_flight: list[deque[int]] = [deque() for _ in self._channels]
        numbered, ready = enumerate(batches), waiter_of(self._groups)
        while any(inputs) or any(outputs):
            wanted = [rings[0].free_fd for rings in inputs if rings]
            if wanted and arrivals_fd is not None and not _is_readable(arrivals_fd):
                wanted = [arrivals_fd]
            descriptors = ready(wanted + [rings[0].filled_fd for rings in outputs if rings])
            for pipeline, (feeding, draining) in enumerate(zip(inputs, outputs, strict=True)):
                if draining and draining[0].filled_fd in descriptors:
                    self._drain(draining, partial(take, pipeline), refuse, in_flight[pipeline])
                if feeding and feeding[0].free_fd in descriptors and (arrivals_fd is None or _is_readable(arrivals_fd)):
                    self._feed(feeding, numbered, in_flight[pipeline], write)
        streams = list(zip(self._started, self._receive_from_all(), strict=True))
        for ring in (ring for channels in self._channels for ring in channels[-1].received_by(0)):
            ring.restart()
        return [[_by_own_clock(spans, machine) for (machine, _), spans in zip(*pair, strict=True)] for pair in streams]

    def _feed(
        self,
        rings: deque[Ring],
        batches: Iterator[tuple[int, Any]],
        in_flight: deque[int],
        write: Callable[[Any, Batch], None],
    ) -> None:
        """Send the next micro-batch into a pipeline; at the end of the stream end the ring for it, and drop that."""
        ports = self._messages[0]
        for number, batch in batches:
            write(batch, writable(rings[0].reserve(), ports))
            in_flight.append(number)
            rings[0].commit(message_bytes(ports))
            rings.rotate(-1)
            return
        rings.popleft().finish()

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
            if message is None:
                rings.clear()
                return
            take(in_flight.popleft(), arrays(message, self._messages[-1]))
        rings[0].release()
        rings.rotate(-1)

    def _task(
        self,
        stage: int,
        replica: int,
        files: Sequence[Any],
        channels: Sequence[_Channels],
        resources: StageResources,
    ) -> StageTask:
        sub_model = self._sub_models[stage]
        idle, file, *given = files
        return StageTask(
            layers=self._stages[stage],
            idle=idle,
            file=file,
            given=given[0] if given else None,
            given_ports=self._messages[0] if given else (),
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
        """The next message of every worker, in the order of `resources`."""
        return tuple(tuple(machine.workers.receive(each) for machine, each in started) for started in self._started)


class _Channels:
    """The channels from the processes of a stage to those of the next, by the machines where they are.

    Those of a process are in the order in which its micro-batches use them.
    """

    def __init__(self, senders: Sequence[ProcessHost], receivers: Sequence[ProcessHost], slot_bytes: int) -> None:
        turns = range(lcm(len(senders), len(receivers)))
        pairs = dict.fromkeys((t % len(senders), t % len(receivers)) for t in turns)
        self._channels = {pair: connect(senders[pair[0]], receivers[pair[1]], N_SLOTS, slot_bytes) for pair in pairs}

    def sent_by(self, process: int) -> tuple[Any, ...]:
        """The ends into which a process writes."""
        return tuple(writer for (sender, _), (writer, _) in self._channels.items() if sender == process)

    def received_by(self, process: int) -> tuple[Any, ...]:
        """The ends from which a process reads."""
        return tuple(reader for (_, receiver), (_, reader) in self._channels.items() if receiver == process)


class _Files:
    """Contents in files, on every machine those that it needs; closed by `stack`."""

    def __init__(self, stack: ExitStack, contents: Sequence[bytes]) -> None:
        self._stack, self._contents = stack, contents
        self._files: dict[tuple[int, int], Any] = {}

    def at(self, machine: ProcessHost, number: int) -> Any:
        """The file of a content on a machine."""
        key = id(machine), number
        if key not in self._files:
            self._files[key] = machine.file(self._contents[number])
            self._stack.callback(self._files[key].close)
        return self._files[key]


def _by_own_clock(spans: Any, machine: ProcessHost) -> Any:
    """Spans of a process on a machine, by the clock of this one; None stays."""
    return spans and spans._replace(times=spans.times - machine.clock_offset_ns)


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
