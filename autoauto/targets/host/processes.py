"""Worker processes of one parent on this machine: `Workers`.

A worker is started with `spawn`. The kernel kills it when its parent ends, however that happens (PR_SET_PDEATHSIG).
Ctrl-C reaches the parent only. When a worker fails, its exception is raised in the parent, with the worker's traceback
as the cause, and the context ends all workers. Shared memory has no name (see `ring`), so nothing is left behind.
"""

from __future__ import annotations

import os
import select
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, NoReturn

from autoauto.processes.channel import BadMessage, Channel
from autoauto.processes.start import die_with_parent, killed_first, leave_resource_tracker, sigint_blocked
from autoauto.records.errors import WorkerLost

MAX_TRACEBACK_CHARS = 20_000
"""The message of a failing worker must fit into the pipe, because the parent may not be reading."""


class WorkerTraceback(Exception):
    """Traceback of a failed worker as text: the cause of the exception that its parent raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Failed(NamedTuple):
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

    def start(self, name: str, function: Callable[..., None], *args: object) -> None:
        """Start one more worker; workers are numbered from 0. The function and its arguments are pickled."""
        parent_end, worker_end = Channel.pair()
        process = get_context("spawn").Process(
            target=_main, args=(worker_end, os.getpid(), function, args), name=name, daemon=True
        )
        with environment(self._environment), sigint_blocked():
            process.start()
        worker_end.close()
        self._workers.append(_Worker(name, process, os.pidfd_open(process.pid or 0), parent_end))

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
            raise WorkerLost(f"{worker.name} wrote into the channel of its results: {error}") from error
        return _checked(message)

    def waiter(self) -> Callable[[Iterable[int]], list[int]]:
        """Make a function that waits for some descriptors and returns the readable ones, possibly none.

        The function raises the exception of a worker that failed meanwhile, or `WorkerLost`.
        """
        running = {worker.pidfd: worker for worker in self._workers if worker.process.exitcode != 0}

        def ready(descriptors: Iterable[int]) -> list[int]:
            poll = select.poll()
            for descriptor in (*descriptors, *running):
                poll.register(descriptor, select.POLLIN)
            events = [descriptor for descriptor, _ in poll.poll()]
            ended = running.keys() & events
            for pidfd in ended:
                running[pidfd].process.join()
                if running[pidfd].process.exitcode != 0:
                    self._raise(running[pidfd])
                del running[pidfd]
            return [descriptor for descriptor in events if descriptor not in ended]

        return ready

    def _raise(self, worker: _Worker) -> NoReturn:
        """Raise the exception in the last message of a worker that has ended, or `WorkerLost`."""
        last_message = None
        with suppress(EOFError, BadMessage):
            while worker.connection.poll():
                last_message = worker.connection.recv()
        _checked(last_message)
        worker.process.join()
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


def _checked(message: Any) -> Any:
    """Return the message of a worker, or raise the exception that it carries."""
    if isinstance(message, _Failed):
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
            connection.send(_Failed(error, text))
        except OSError:
            raise
        except Exception:  # noqa: BLE001 (pickling a foreign exception may raise anything)
            connection.send(_Failed(RuntimeError(f"{type(error).__name__}: {error}"[:MAX_TRACEBACK_CHARS]), text))
