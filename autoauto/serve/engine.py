"""The pipelines of processes that compute micro-batches, in a thread that starts them again when they are lost.

    thread of the server                  thread of the engine          processes
    Batcher ── MicroBatch, eventfd ──▶ Pipelines.stream ── rings ──▶ stages
            ◀── on_finished, on_lost, ... ──╯ as callbacks of the server's event loop

The thread lives as long as its processes: the kernel ends a process with the thread that started it (PR_SET_PDEATHSIG).
Where there is one process whose tensors are small, the event loop exchanges micro-batches with it itself, and the
thread only waits for its end: a thread between costs each request two switches, as much as a small model takes.

    event loop ── ProcessExchange.send ──▶ process
               ◀── filled_fd, by add_reader ──╯
"""

from __future__ import annotations

import errno
import os
import signal
from asyncio import AbstractEventLoop, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from time import sleep
from typing import Protocol

from autoauto.records.errors import AutoautoError, Unsupported, WorkerLost
from autoauto.serve.artifact import Artifact
from autoauto.serve.batcher import MicroBatch
from autoauto.targets.host.run.independence import UNCHECKED, SampleProbe, reason_of
from autoauto.targets.host.run.pipelines import Batch, Pipelines, ProcessExchange

MAX_LOSSES = 3
"""How often in a row processes may end without having computed anything, until the engine gives up."""

SHORTAGE_S = 1.0
"""How long an engine waits for descriptors until it tries again."""

MAX_DIRECT_BYTES = 2 << 20
"""Maximum bytes of a micro-batch that is copied in the event loop; more would take a millisecond."""


class EngineEvents(Protocol):
    """Callbacks of an engine, called from the event loop of the server."""

    def on_started(self, dependence: str | None) -> None:
        """All processes are loaded and warm; why samples of a micro-batch depend on each other, if they do."""

    def on_finished(self, batch: MicroBatch) -> None:
        """The jobs of a micro-batch have its outputs."""

    def on_refused(self, batch: MicroBatch, reason: str) -> None:
        """The model does not take the values of a micro-batch."""

    def on_lost(self, reason: str) -> None:
        """The processes ended, and what was in flight is lost; they are started again."""

    def on_ended(self, error: AutoautoError | None) -> None:
        """No process is left: the engine was stopped, or gave up with the last error."""


class ProbeRuns:
    """The micro-batches of a `SampleProbe`, one after the other.

    Attributes:
        dependence: why samples depend on each other, once it is complete.
    """

    def __init__(self, probe: SampleProbe | None) -> None:
        self._variations = iter(probe.variations() if probe else ())
        self._variation = next(self._variations, None)
        self._number = 0
        self.is_complete = self._variation is None
        self.dependence: str | None = UNCHECKED if probe and self.is_complete else None

    def fill(self, inputs: Batch) -> None:
        """Write the inputs of the next micro-batch of the probe."""
        assert self._variation is not None
        for name, array in self._variation.batch(self._number).items():
            inputs[name][...] = array

    def take(self, outputs: Batch) -> None:
        """Read the outputs of the last micro-batch of the probe."""
        assert self._variation is not None
        name = self._variation.changed(self._number, outputs)
        self._number += 1
        self.is_complete = name is not None or self._number == self._variation.n_runs
        self.dependence = None if name is None else reason_of(name)

    def refuse(self) -> None:
        """Note that the model refused the last micro-batch: go on with samples that differ less."""
        self._variation = next(self._variations, None)
        self._number = 0
        if self._variation is None:
            self.is_complete = True
            self.dependence = UNCHECKED


class PipelineEngine:
    """Starts the pipelines of an artifact, and hands micro-batches to them until it is stopped."""

    def __init__(self, artifact: Artifact, events: EngineEvents) -> None:
        self._artifact = artifact
        self._events = events
        self._loop: AbstractEventLoop = get_running_loop()
        self._handed_over: deque[MicroBatch | ProbeRuns | None] = deque()
        self._arrivals_fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._pids: list[int] = []
        self._has_started = self._has_finished = self._is_stopped = False
        self._probed: ProbeRuns | None = None
        self._exchange: ProcessExchange | None = None  # where the event loop exchanges micro-batches
        self._exchanged: deque[MicroBatch] = deque()
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the processes; returns at once."""
        self._thread.start()

    def submit(self, batch: MicroBatch) -> None:
        """Have a micro-batch computed; after `on_lost` until `on_started` none may be given."""
        if self._exchange is None:
            self._hand_over(batch)
            return
        assert len(self._exchanged) < self._exchange.capacity
        self._exchanged.append(batch)
        self._exchange.send(partial(batch.fill, ports=self._artifact.model.inputs))

    def _hand_over(self, batch: MicroBatch | ProbeRuns | None) -> None:
        self._handed_over.append(batch)
        os.eventfd_write(self._arrivals_fd, 1)

    def stop(self) -> None:
        """Compute what was given, then end; returns at once. All that was given directly must have ended."""
        self._is_stopped = True
        self._hand_over(None)

    def kill(self) -> None:
        """Kill the processes, for example because they hang: they are lost."""
        for pid in self._pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for the end of the thread after `on_ended`."""
        self._thread.join()
        os.close(self._arrivals_fd)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Have the event loop call something; nothing is called once the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _post_and_wait(self, callback: Callable[..., None], *args: object) -> None:
        has_returned = Event()

        def call() -> None:
            try:
                callback(*args)
            finally:
                has_returned.set()

        self._post(call)
        has_returned.wait()

    def _run(self) -> None:
        n_losses = 0
        while not self._is_stopped:
            self._has_finished = False
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 (whatever ends the processes, they are started again)
                is_shortage = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
                if self._has_started and is_shortage:
                    self._post_and_wait(self._note_loss, error)
                    sleep(SHORTAGE_S)  # no fault of the processes: they may be started again without end
                    continue
                n_losses = 1 if self._has_finished else n_losses + 1  # those in a row that computed nothing
                if n_losses == MAX_LOSSES or not self._has_started:
                    # One of ours is shown in one line; not so Unsupported, since the file was read at the start.
                    if not isinstance(error, AutoautoError) or isinstance(error, Unsupported):
                        error = WorkerLost(f"a process failed: {error}")
                    self._post(self._events.on_ended, error)
                    return
                self._post_and_wait(self._note_loss, error)
        self._post(self._events.on_ended, None)

    def _note_loss(self, error: Exception) -> None:
        """Drop what was handed over, so that it is not computed later; in the event loop, while the engine waits."""
        for _ in range(len(self._handed_over)):
            self._handed_over.popleft()
            os.eventfd_read(self._arrivals_fd)
        self._events.on_lost(" ".join(str(error).split()))

    def _serve(self) -> None:
        model = self._artifact.model
        in_flight: dict[int, MicroBatch | ProbeRuns] = {}

        def write(batch: MicroBatch | ProbeRuns, inputs: Batch) -> None:
            if isinstance(batch, ProbeRuns):
                batch.fill(inputs)
            else:
                batch.fill(inputs, model.inputs)

        def take(_pipeline: int, number: int, outputs: Batch) -> None:
            batch = in_flight.pop(number)
            if isinstance(batch, ProbeRuns):  # no request is taken before the probe is complete
                batch.take(outputs)
                self._probe(batch)
                return
            batch.take(outputs, model.outputs)
            self._has_finished = True
            self._post(self._events.on_finished, batch)

        def refuse(number: int, reason: str) -> None:
            batch = in_flight.pop(number)
            if isinstance(batch, ProbeRuns):
                batch.refuse()
                self._probe(batch)
                return
            self._has_finished = True
            self._post(self._events.on_refused, batch, reason)

        with self._artifact.pipelines() as pipelines:
            self._pids = pipelines.pids
            self._has_started = True
            exchange = pipelines.exchange()
            try:
                if exchange is not None and exchange.n_bytes <= MAX_DIRECT_BYTES:
                    self._serve_directly(pipelines, exchange)
                    return
                # Processes that were started again compute as those before, so they are probed once.
                self._probe(self._probed or ProbeRuns(self._artifact.probe()))
                pipelines.stream(self._batches(in_flight), take, refuse, self._arrivals_fd, write)
            finally:
                self._pids = []

    def _serve_directly(self, pipelines: Pipelines, exchange: ProcessExchange) -> None:
        """Let the event loop exchange micro-batches with the only process, until the engine is stopped."""
        runs = self._probed or ProbeRuns(self._artifact.probe())
        while not runs.is_complete:
            exchange.send(runs.fill)
            pipelines.wait(exchange.filled_fd)
            if exchange.receive(runs.take) is not None:
                runs.refuse()
        self._probed = runs
        self._post_and_wait(self._open_directly, exchange, runs)
        try:
            pipelines.wait(self._arrivals_fd)  # the only one that arrives here is the end
        finally:
            self._post_and_wait(self._close_directly)

    def _open_directly(self, exchange: ProcessExchange, runs: ProbeRuns) -> None:
        self._exchange = exchange
        self._loop.add_reader(exchange.filled_fd, self._receive_directly)
        self._events.on_started(runs.dependence)

    def _close_directly(self) -> None:
        if self._exchange is not None:
            self._loop.remove_reader(self._exchange.filled_fd)
            self._exchange = None
            self._exchanged.clear()

    def _receive_directly(self) -> None:
        assert self._exchange is not None
        batch = self._exchanged.popleft()
        reason = self._exchange.receive(partial(batch.take, ports=self._artifact.model.outputs))
        self._has_finished = True
        if reason is None:
            self._events.on_finished(batch)
        else:
            self._events.on_refused(batch, reason)

    def _probe(self, runs: ProbeRuns) -> None:
        """Have the next micro-batch of the probe computed; after the last one, report the start."""
        if runs.is_complete:
            self._probed = runs
            self._post(self._events.on_started, runs.dependence)
        else:
            self._hand_over(runs)

    def _batches(self, in_flight: dict[int, MicroBatch | ProbeRuns]) -> Iterator[MicroBatch | ProbeRuns]:
        """The micro-batches that are handed over, numbered as `Pipelines.stream` numbers them."""
        number = 0
        # Never empty here: `Pipelines.stream` asks only while the descriptor says that something was handed over.
        while (batch := self._handed_over[0]) is not None:
            os.eventfd_read(self._arrivals_fd)
            self._handed_over.popleft()
            in_flight[number] = batch
            yield batch
            number += 1
