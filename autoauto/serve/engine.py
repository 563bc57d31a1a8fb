"""The pipelines of processes that compute micro-batches, in a thread that starts them again when they are lost.

    thread of the server                  thread of the engine          processes
    Batcher ── MicroBatch, eventfd ──▶ Pipelines.stream ── rings ──▶ stages
            ◀── on_finished, on_lost, ... ──╯ as callbacks of the server's event loop

The thread lives as long as its processes: the kernel ends a process with the thread that started it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import os
import signal
from asyncio import AbstractEventLoop, get_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import Protocol

from autoauto.records.errors import AutoautoError, Unsupported, WorkerLost
from autoauto.serve.artifact import Artifact
from autoauto.serve.batcher import MicroBatch
from autoauto.targets.host.run.pipelines import Batch

MAX_LOSSES = 3
"""How often in a row processes may end without having computed anything, until the engine gives up."""


class EngineEvents(Protocol):
    """What an engine calls, from the event loop of the server."""

    def on_started(self) -> None:
        """All processes are loaded and warm."""

    def on_finished(self, batch: MicroBatch) -> None:
        """The jobs of a micro-batch have its outputs."""

    def on_refused(self, batch: MicroBatch, reason: str) -> None:
        """The model does not take the values of a micro-batch."""

    def on_lost(self, reason: str) -> None:
        """The processes ended, and what was in flight is lost; they are started again."""

    def on_ended(self, error: AutoautoError | None) -> None:
        """No process is left: the engine was stopped, or gave up with the last error."""


class PipelineEngine:
    """Starts the pipelines of an artifact, and hands micro-batches to them until it is stopped.

    Args:
        artifact: what is served.
        events: see `EngineEvents`.
    """

    def __init__(self, artifact: Artifact, events: EngineEvents) -> None:
        self._artifact, self._events = artifact, events
        self._loop: AbstractEventLoop = get_running_loop()
        self._handed_over: deque[MicroBatch | None] = deque()
        self._arrivals_fd = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC)
        self._pids: list[int] = []
        self._has_started = self._has_finished = self._is_stopped = False
        self._thread = Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the processes; returns at once."""
        self._thread.start()

    def submit(self, batch: MicroBatch) -> None:
        """Have a micro-batch computed; after `on_lost` until `on_started` none may be given."""
        self._handed_over.append(batch)
        os.eventfd_write(self._arrivals_fd, 1)

    def stop(self) -> None:
        """Compute what was given, then end; returns at once."""
        self._is_stopped = True
        self._handed_over.append(None)
        os.eventfd_write(self._arrivals_fd, 1)

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
        """Call from the event loop; when that has ended, nobody waits."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *args)

    def _run(self) -> None:
        n_losses = 0
        while not self._is_stopped:
            self._has_finished = False
            try:
                self._serve()
            except Exception as error:  # noqa: BLE001 (whatever ends the processes, they are started again)
                n_losses = 1 if self._has_finished else n_losses + 1
                if n_losses == MAX_LOSSES or not self._has_started:
                    self._post(self._events.on_ended, _as_ours(error))
                    return
                was_noted = Event()
                self._post(self._note_loss, " ".join(str(error).split()), was_noted)
                was_noted.wait()
        self._post(self._events.on_ended, None)

    def _note_loss(self, reason: str, was_noted: Event) -> None:
        """In the event loop, while the engine waits: drop what was handed over, so that nothing of it comes later."""
        for _ in range(len(self._handed_over)):
            self._handed_over.popleft()
            os.eventfd_read(self._arrivals_fd)
        self._events.on_lost(reason)
        was_noted.set()

    def _serve(self) -> None:
        """Compute micro-batches until the engine is stopped.

        Raises:
            Exception: a process ended.
        """
        model = self._artifact.model
        in_flight: dict[int, MicroBatch] = {}

        def write(batch: MicroBatch, inputs: Batch) -> None:
            batch.fill(inputs, model.inputs)

        def take(_pipeline: int, number: int, outputs: Batch) -> None:
            batch = in_flight.pop(number)
            batch.take(outputs, model.outputs)
            self._has_finished = True
            self._post(self._events.on_finished, batch)

        def refuse(number: int, reason: str) -> None:
            self._has_finished = True
            self._post(self._events.on_refused, in_flight.pop(number), reason)

        with self._artifact.pipelines() as pipelines:
            self._pids, self._has_started = pipelines.pids, True
            self._post(self._events.on_started)
            try:
                pipelines.stream(self._batches(in_flight), take, refuse, self._arrivals_fd, write)
            finally:
                self._pids = []

    def _batches(self, in_flight: dict[int, MicroBatch]) -> Iterator[MicroBatch]:
        """The micro-batches that are handed over, numbered as `Pipelines.stream` numbers them."""
        number = 0
        while (batch := self._handed_over[0]) is not None:
            os.eventfd_read(self._arrivals_fd)
            self._handed_over.popleft()
            in_flight[number] = batch
            yield batch
            number += 1


def _as_ours(error: Exception) -> AutoautoError:
    """An error that the command line shows in one line."""
    if isinstance(error, AutoautoError) and not isinstance(error, Unsupported):  # the file was read at the start
        return error
    return WorkerLost(f"a process failed: {error}")
