"""Worker processes of one parent on this machine: `Workers`.

A worker is a `ChildProcess`, so it ends with its parent. When a worker fails, its exception is raised in the parent,
with the worker's traceback as the cause, and the context ends all workers. Shared memory has no name
(`autoauto/targets/host/transport/shared_memory.py`), so nothing is left behind.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from typing import Any, NamedTuple, NoReturn, Protocol

from autoauto.processes.channel import BadMessage, Channel
from autoauto.processes.start import UNGUARDED, UNGUARDED_HINT, ChildProcess, Ending
from autoauto.records.errors import BadInput, WorkerLost
from autoauto.targets.host.transport.messages import readable

MAX_TRACEBACK_CHARS = 20_000
"""The message of a failing worker must fit into the pipe, because the parent may not be reading."""


class WorkerTraceback(Exception):
    """Traceback of a failed worker as text: the cause of the exception that its parent raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Failed(NamedTuple):
    """The exception that ended a worker, and its traceback as text."""

    error: BaseException
    traceback: str


class _Worker(NamedTuple):
    name: str
    process: ChildProcess


class Workers(AbstractContextManager["Workers"]):
    """Workers of one context; its end kills them and waits for them.

    A worker calls `function(connection, *args)`; `receive` returns what the function sends over the connection.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._workers: list[_Worker] = []
        self._ended: set[int] = set()

    def start(self, name: str, function: Callable[..., None], *args: object) -> int:
        """Start one more worker, and return its number, from 0. The function and its arguments are pickled.

        The worker imports the main module, in which the function may be. It is lost, and `receive` raises BadInput,
        where that module starts workers when it is imported.
        """
        self._workers.append(_Worker(name, ChildProcess(_main, (function, args), environment=self._environment)))
        return len(self._workers) - 1

    @property
    def pids(self) -> list[int]:
        """The process numbers of all workers."""
        return [worker.process.pid for worker in self._workers]

    def send(self, number: int, message: object) -> None:
        """Send a message to a worker; raises WorkerLost if it has ended."""
        worker = self._workers[number]
        try:
            worker.process.channel.send(message)
        except OSError:
            self._raise(worker)

    def receive(self, number: int) -> Any:
        """Wait for the next message of a worker; the failure of any worker ends the wait, as `check` raises it."""
        worker = self._workers[number]
        channel, ready = worker.process.channel, waiter_of([self])
        try:
            while not channel.poll():
                if worker.process.ending() is not None and not channel.poll():
                    self._raise(worker)  # the channel itself may be kept open by a process that it started
                ready([channel.fileno()])
            message = channel.recv()
        except EOFError:
            self._raise(worker)
        except BadMessage as error:
            raise self._garbage(worker, error) from error
        return checked(message)

    @property
    def watched(self) -> list[int]:
        """Descriptors of which one is readable when a worker has ended, or has sent what `check` reads."""
        return [process.end_fd for _, process in self._workers if process.end_fd not in self._ended]

    def check(self, events: Collection[int]) -> None:
        """Raise the exception of a worker that failed, or `WorkerLost`."""
        for worker in self._workers:
            if worker.process.end_fd in events:
                if worker.process.ending() != Ending(0):
                    self._raise(worker)
                self._ended.add(worker.process.end_fd)

    def descriptor(self, number: int) -> int:
        """A descriptor that is readable when a worker has sent a message, or has closed its channel."""
        return self._workers[number].process.channel.fileno()

    def arrived(self, number: int) -> Iterator[Any]:
        """The messages of a worker that have arrived.

        Raises:
            EOFError: it has closed its channel, as it does when it ends well.
            WorkerLost, Exception: as `receive`.
        """
        worker = self._workers[number]
        try:
            while worker.process.channel.poll():
                yield checked(worker.process.channel.recv())
        except BadMessage as error:
            raise self._garbage(worker, error) from error

    def _garbage(self, worker: _Worker, error: BadMessage) -> WorkerLost:
        return WorkerLost(f"{worker.name} wrote into the channel of its results: {error}")

    def _raise(self, worker: _Worker) -> NoReturn:
        """Raise the exception in the last message of a worker that has ended, or `WorkerLost`."""
        last_message = None
        with suppress(EOFError, BadMessage):
            while worker.process.channel.poll():
                last_message = worker.process.channel.recv()
        checked(last_message)
        ending = worker.process.ending(None)
        assert ending is not None
        if ending.exit_code == UNGUARDED:
            raise BadInput(UNGUARDED_HINT) from None
        raise WorkerLost(f"{worker.name} ended without a message, exit code {ending.exit_code}")

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.close()
        self._workers.clear()
        self._ended.clear()


class WorkerGroup(Protocol):
    """Workers of this machine or of another, numbered from 0."""

    def start(self, name: str, function: Callable[..., None], *args: Any) -> int:
        """Start one more, which calls `function(connection, *args)`, and return its number."""

    def send(self, number: int, message: object) -> None:
        """Send a message to a worker; raises WorkerLost when it has ended."""

    def receive(self, number: int) -> Any:
        """Wait for the next message of a worker; raises its exception, or WorkerLost."""

    @property
    def watched(self) -> list[int]:
        """Descriptors of which one is readable when a worker has ended, or has sent what `check` reads."""

    def check(self, events: Collection[int]) -> None:
        """Raise the exception of a worker that failed, by readable descriptors, or WorkerLost."""


def waiter_of(groups: Sequence[WorkerGroup]) -> Callable[[Iterable[int]], list[int]]:
    """Make a function that waits for some descriptors and returns the readable ones, possibly none.

    The function raises the exception of a worker that failed meanwhile, or `WorkerLost`.
    """

    def ready(descriptors: Iterable[int]) -> list[int]:
        wanted = list(descriptors)
        events = readable(chain(wanted, *(group.watched for group in groups)))
        for group in groups:
            group.check(events)
        return [descriptor for descriptor in wanted if descriptor in events]

    return ready


def checked(message: Any) -> Any:
    """Return the message of a worker, or raise the exception that it carries."""
    if isinstance(message, Failed):
        raise message.error from WorkerTraceback(message.traceback)
    return message


def _main(channel: Channel, function: Callable[..., None], args: tuple[object, ...]) -> None:
    exit_code = 0
    try:
        function(channel, *args)
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        text = traceback.format_exc()[-MAX_TRACEBACK_CHARS:]
        with suppress(OSError):  # the parent has ended
            try:
                channel.send(Failed(error, text))
            except OSError:
                raise
            except Exception:  # noqa: BLE001 (pickling a foreign exception may raise anything)
                channel.send(Failed(RuntimeError(f"{type(error).__name__}: {error}"[:MAX_TRACEBACK_CHARS]), text))
        exit_code = 1
    sys.stdout.flush()
    os._exit(exit_code)  # without the ends of libraries, some of which crash or wait
