"""Worker processes of one parent on this machine: `Workers`.

A worker is started with `spawn`. The kernel kills it when its parent ends, however that happens (PR_SET_PDEATHSIG).
Ctrl-C reaches the parent only. When a worker fails, its exception is raised in the parent, with the worker's traceback
as the cause, and the context ends all workers. Shared memory has no name (see `ring`), so nothing is left behind.
"""

from __future__ import annotations

import os
import select
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, NoReturn, Protocol

from autoauto.processes.channel import BadMessage, Channel
from autoauto.processes.start import (
    UNGUARDED,
    UNGUARDED_HINT,
    die_with_parent,
    end_if_unguarded,
    killed_first,
    leave_resource_tracker,
    sigint_blocked,
)
from autoauto.records.errors import BadInput, WorkerLost

MAX_TRACEBACK_CHARS = 20_000
"""The message of a failing worker must fit into the pipe, because the parent may not be reading."""


class WorkerTraceback(Exception):
    """Traceback of a failed worker as text: the cause of the exception that its parent raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Failed(NamedTuple):
    """What ended a worker: its exception, and the traceback as text."""

    error: BaseException
    traceback: str


class _Worker(NamedTuple):
    name: str
    process: BaseProcess
    pidfd: int
    connection: Channel


class Workers(AbstractContextManager["Workers"]):
    """Workers of one context; its end kills them and waits for them.

    A worker calls `function(connection, *args)`; `receive` returns what the function sends over the connection.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment or {}
        self._workers: list[_Worker] = []
        self._ended: set[int] = set()

    def start(self, name: str, function: Callable[..., None], *args: object) -> int:
        """Start one more worker, and return its number, from 0. The function and its arguments are pickled.

        The worker imports the main module, in which the function may be. It is lost, and `receive` raises BadInput,
        where that module starts workers when it is imported.
        """
        end_if_unguarded()
        parent_end, worker_end = Channel.pair()
        process = get_context("spawn").Process(
            target=_main, args=(worker_end, os.getpid(), function, args), name=name, daemon=True
        )
        with environment(self._environment), sigint_blocked():
            process.start()
        worker_end.close()
        self._workers.append(_Worker(name, process, os.pidfd_open(process.pid or 0), parent_end))
        return len(self._workers) - 1

    @property
    def pids(self) -> list[int]:
        """The process numbers of all workers."""
        return [worker.process.pid or 0 for worker in self._workers]

    def send(self, number: int, message: object) -> None:
        """Send a message to a worker.

        Raises:
            WorkerLost: the worker has ended.
        """
        worker = self._workers[number]
        try:
            worker.connection.send(message)
        except OSError:
            self._raise(worker)

    def receive(self, number: int) -> Any:
        """Wait for the next message of a worker; the failure of any worker ends the wait.

        Raises:
            WorkerLost: a worker ended without a message, or wrote something else.
            Exception: the exception that a worker raised.
        """
        worker = self._workers[number]
        ready = self.waiter()
        try:
            while not worker.connection.poll():
                if not worker.process.is_alive() and not worker.connection.poll():
                    self._raise(worker)  # the channel itself may be kept open by a process that it started
                ready([worker.connection.fileno()])
            message = worker.connection.recv()
        except EOFError:
            self._raise(worker)
        except BadMessage as error:
            raise self._garbage(worker, error) from error
        return checked(message)

    def waiter(self) -> Callable[[Iterable[int]], list[int]]:
        """Make a function that waits for some descriptors and returns the readable ones, possibly none.

        The function raises the exception of a worker that failed meanwhile, or `WorkerLost`.
        """
        return waiter_of([self])

    @property
    def watched(self) -> list[int]:
        """What is readable when a worker has ended, or has sent what `check` reads."""
        return [worker.pidfd for worker in self._workers if worker.pidfd not in self._ended]

    def check(self, events: Collection[int]) -> None:
        """Raise the exception of a worker that failed, or `WorkerLost`.

        Args:
            events: descriptors that are readable, those of `watched` among them.
        """
        for worker in self._workers:
            if worker.pidfd in events and worker.pidfd not in self._ended:
                worker.process.join()
                if worker.process.exitcode != 0:
                    self._raise(worker)
                self._ended.add(worker.pidfd)

    def descriptor(self, number: int) -> int:
        """Readable when a worker has sent a message, or has closed its channel."""
        return self._workers[number].connection.fileno()

    def arrived(self, number: int) -> Iterator[Any]:
        """The messages of a worker that have arrived.

        Raises:
            EOFError: it has closed its channel, as it does when it ends well.
            WorkerLost, Exception: as `receive`.
        """
        worker = self._workers[number]
        try:
            while worker.connection.poll():
                yield checked(worker.connection.recv())
        except BadMessage as error:
            raise self._garbage(worker, error) from error

    def _garbage(self, worker: _Worker, error: BadMessage) -> WorkerLost:
        return WorkerLost(f"{worker.name} wrote into the channel of its results: {error}")

    def _raise(self, worker: _Worker) -> NoReturn:
        """Raise the exception in the last message of a worker that has ended, or `WorkerLost`.

        Raises:
            BadInput: its main module starts workers when it is imported.
        """
        last_message = None
        with suppress(EOFError, BadMessage):
            while worker.connection.poll():
                last_message = worker.connection.recv()
        checked(last_message)
        worker.process.join()
        if worker.process.exitcode == UNGUARDED:
            raise BadInput(UNGUARDED_HINT) from None
        raise WorkerLost(f"{worker.name} ended without a message, exit code {worker.process.exitcode}")

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            os.close(worker.pidfd)
            worker.connection.close()
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
        """What is readable when a worker has ended, or has sent what `check` reads."""

    def check(self, events: Collection[int]) -> None:
        """Raise the exception of a worker that failed, by readable descriptors, or WorkerLost."""


def waiter_of(groups: Sequence[WorkerGroup]) -> Callable[[Iterable[int]], list[int]]:
    """As `Workers.waiter`, for the workers of several groups."""

    def ready(descriptors: Iterable[int]) -> list[int]:
        wanted = list(descriptors)
        poll = select.poll()
        for descriptor in (*wanted, *(watched for group in groups for watched in group.watched)):
            poll.register(descriptor, select.POLLIN)
        events = [descriptor for descriptor, _ in poll.poll()]
        for group in groups:
            group.check(events)
        return [descriptor for descriptor in wanted if descriptor in events]

    return ready


def checked(message: Any) -> Any:
    """Return the message of a worker, or raise the exception that it carries."""
    if isinstance(message, Failed):
        raise message.error from WorkerTraceback(message.traceback)
    return message


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start within the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _main(connection: Channel, parent: int, function: Callable[..., None], args: tuple[object, ...]) -> None:
    die_with_parent(parent)
    killed_first()  # a stage that is too large must not end the search
    leave_resource_tracker()
    try:
        function(connection, *args)
    except BaseException as error:  # noqa: BLE001 (the parent raises it)
        _report_failure(connection, error)
        os._exit(1)


def _report_failure(connection: Channel, error: BaseException) -> None:
    """Send an exception with its traceback; one that cannot be pickled becomes a RuntimeError with its text."""
    text = traceback.format_exc()[-MAX_TRACEBACK_CHARS:]
    with suppress(OSError):  # the parent has ended
        try:
            connection.send(Failed(error, text))
        except OSError:
            raise
        except Exception:  # noqa: BLE001 (pickling a foreign exception may raise anything)
            connection.send(Failed(RuntimeError(f"{type(error).__name__}: {error}"[:MAX_TRACEBACK_CHARS]), text))
