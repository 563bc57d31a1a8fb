"""Processes of this machine that work for one parent: `Workers`.

A worker is started with `spawn`, dies with its parent (PR_SET_PDEATHSIG: the kernel sees to it, whatever kills the
parent), and does not hear Ctrl-C, which is the parent's to hear. The first worker that fails ends all; its exception is
raised in the parent with its own traceback as the cause. What workers share has no name (see `ring`), so nothing is
left behind.
"""

from __future__ import annotations

import os
import select
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, NoReturn

from autoauto.processes import die_with_parent, out_of_hearing
from autoauto.records.errors import WorkerLost

MOST_TEXT = 20_000  # characters of what a failing worker says, so that no pipe is full before anybody reads it


class WorkerTraceback(Exception):
    """Where a worker failed, as text: the cause of the exception that its parent raises."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Failed(NamedTuple):
    error: BaseException
    traceback: str


class _Worker(NamedTuple):
    name: str
    process: BaseProcess
    connection: Connection


class Workers(AbstractContextManager["Workers"]):
    """Workers that live until the context ends, then are killed and waited for.

    A worker calls `function(connection, *args)`; what it sends over the connection is what `receive` returns.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment or {}
        self._workers: list[_Worker] = []

    def start(self, name: str, function: Callable[..., None], *args: object) -> None:
        """Start one more worker; its number is the count of those before it. All that it needs travels by pickle."""
        ours, theirs = get_context("spawn").Pipe()
        process = get_context("spawn").Process(
            target=_main, args=(theirs, os.getpid(), function, args), name=name, daemon=True
        )
        with environment(self._environment), out_of_hearing():
            process.start()
        theirs.close()
        self._workers.append(_Worker(name, process, ours))

    @property
    def pids(self) -> list[int]:
        """The process numbers of all workers."""
        return [worker.process.pid or 0 for worker in self._workers]

    def send(self, number: int, message: object) -> None:
        """Send a message to a worker.

        Raises:
            WorkerLost: it is gone.
        """
        worker = self._workers[number]
        try:
            worker.connection.send(message)
        except OSError:
            self._raise(worker)

    def receive(self, number: int) -> Any:
        """Wait for the next message of a worker, and hear the failure of any other meanwhile.

        Raises:
            WorkerLost: a worker ended without saying why.
            Exception: what a worker raised.
        """
        connection = self._workers[number].connection
        ready = self.waiter([connection.fileno()])
        while not ready():
            pass
        try:
            message = connection.recv()
        except (EOFError, OSError):
            self._raise(self._workers[number])
        return _checked(message)

    def waiter(self, descriptors: Iterable[int]) -> Callable[[], list[int]]:
        """A function that waits until one of the descriptors is ready, and returns those that are; it may be none.

        It raises what a worker raised meanwhile, or WorkerLost when one ended without saying why.
        """
        poll, wanted = select.poll(), set(descriptors)
        running = {worker.process.sentinel: worker for worker in self._workers if worker.process.exitcode != 0}
        for descriptor in (*wanted, *running):
            poll.register(descriptor, select.POLLIN)

        def ready() -> list[int]:
            events = [descriptor for descriptor, _ in poll.poll()]
            for sentinel in running.keys() & events:
                running[sentinel].process.join()  # its end is seen before its exit code is
                if running[sentinel].process.exitcode != 0:
                    self._raise(running[sentinel])
                poll.unregister(sentinel)
                del running[sentinel]
            return [descriptor for descriptor in events if descriptor in wanted]

        return ready

    def _raise(self, worker: _Worker) -> NoReturn:
        """Raise what the worker said last, or that it is gone."""
        said = None
        with suppress(EOFError, OSError):
            while worker.connection.poll():
                said = worker.connection.recv()
        _checked(said)
        worker.process.join()
        raise WorkerLost(f"{worker.name} ended without a word, exit code {worker.process.exitcode}")

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
            worker.connection.close()
        self._workers.clear()


def _checked(message: Any) -> Any:
    """A worker's message, unless it says that the worker failed."""
    if isinstance(message, _Failed):
        raise message.error from WorkerTraceback(message.traceback)
    return message


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start meanwhile."""
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


def _main(connection: Connection, parent: int, function: Callable[..., None], args: tuple[object, ...]) -> None:
    die_with_parent(parent)
    try:
        function(connection, *args)
    except BaseException as error:  # noqa: BLE001 (all of it is the parent's to raise)
        _tell(connection, error)
        os._exit(1)


def _tell(connection: Connection, error: BaseException) -> None:
    """Send an exception with its traceback; one that does not travel is told by its text."""
    text = traceback.format_exc()[-MOST_TEXT:]
    with suppress(OSError):  # the parent is gone
        try:
            connection.send(_Failed(error, text))
        except OSError:
            raise
        except Exception:  # noqa: BLE001 (whatever pickling a foreign exception raises)
            connection.send(_Failed(RuntimeError(f"{type(error).__name__}: {error}"[:MOST_TEXT]), text))
