"""The machines on which the processes of a run are, `LocalMachine` and `RemoteMachine`, and channels between them.

The process that feeds pipelines waits for many channels at once, and must not wait for one. So where a pipeline begins
or ends on another machine it has a ring as always, and a thread that hands messages on between the ring and the
connection (`Pump`).
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from time import perf_counter_ns
from typing import Any, Protocol, TypeVarTuple

from autoauto.processes.channel import BadMessage, Channel
from autoauto.records.errors import WorkerLost
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import WorkerGroup, Workers, checked
from autoauto.targets.host.remote.agent import Agent, FromWorker, RemoteReference, dumps
from autoauto.targets.host.transport.messages import FailedMessage, MessageReader, MessageWriter, readable
from autoauto.targets.host.transport.shared_memory import Ring, SubModelFile
from autoauto.targets.host.transport.tcp import (
    CONTROL,
    TcpReader,
    TcpWriter,
    channel_key,
    dial,
)


class Pump:
    """Hands messages on until the end of the stream; one of both ends is `connection`."""

    def __init__(self, reader: MessageReader, writer: MessageWriter, connection: TcpReader | TcpWriter) -> None:
        self._reader, self._writer, self._connection = reader, writer, connection
        self._stop_fd, self.lost_fd = os.eventfd(0), os.eventfd(0)
        self._error: WorkerLost | None = None
        self._thread = threading.Thread(target=self._run, name="autoauto pump", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise WorkerLost when the connection was lost."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the connection and the thread."""
        os.eventfd_write(self._stop_fd, 1)
        self._connection.end()
        self._thread.join()
        self._connection.close()
        os.close(self._stop_fd)
        os.close(self.lost_fd)

    def _run(self) -> None:
        try:
            while self._next():
                pass
        except WorkerLost as error:
            self._error = error
            os.eventfd_write(self.lost_fd, 1)

    def _next(self) -> bool:
        """Hand the next message on; whether there may be more."""
        if not self._may(self._reader.filled_fd):
            return False
        is_message = self._reader.wait()
        if not self._may(self._writer.free_fd):
            return False
        if not is_message:
            self._writer.finish()
            return False
        slot = self._writer.reserve()
        try:
            message = self._reader.peek()
        except FailedMessage as failure:
            self._writer.fail(str(failure))
        else:
            assert message is not None
            slot[: len(message)] = message
            self._writer.commit(len(message))
        self._reader.release()
        return True

    def _may(self, descriptor: int) -> bool:
        """Wait until a descriptor is readable; False when the pump is to stop."""
        return self._stop_fd not in readable([descriptor, self._stop_fd])


Arguments = TypeVarTuple("Arguments")
N_CLOCK_READS = 20
_CHUNK_BYTES = 64 << 20
_numbers = count(CONTROL + 1)


class ProcessHost(Protocol):
    """A machine that starts processes, with the files and rings that they share."""

    @property
    def workers(self) -> WorkerGroup:
        """Its processes."""

    @property
    def clock_offset_ns(self) -> int:
        """The time of its clock minus that of this machine's."""

    def file(self, content: bytes) -> Any:
        """A file for its processes, with `write` and `close`; it is closed with the machine at the latest."""

    def ring(self, n_slots: int, slot_bytes: int) -> Any:
        """A ring between two of its processes; it is closed with the machine."""


class LocalMachine(AbstractContextManager["LocalMachine"]):
    """This machine: its processes, and all that they share, end with the context."""

    clock_offset_ns = 0

    def __init__(self) -> None:
        self.workers = Workers(ENVIRONMENT)
        self._stack = ExitStack()
        self._stack.enter_context(self.workers)

    def file(self, content: bytes) -> SubModelFile:
        """A file without a name."""
        return SubModelFile(content)

    def ring(self, n_slots: int, slot_bytes: int) -> Ring:
        """A ring in shared memory."""
        ring = Ring.create(n_slots, slot_bytes)
        self._stack.callback(ring.close)
        return ring

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class RemoteEnd(RemoteReference):
    """A ring of another machine, or an end of a connection there."""


class RemoteFile(RemoteReference):
    """A file of another machine."""

    def __init__(self, number: int, machine: RemoteMachine) -> None:
        super().__init__(number)
        self._machine = machine

    def write(self, content: bytes) -> None:
        """Replace the content, for every process that has the file."""
        for start in range(0, max(1, len(content)), _CHUNK_BYTES):  # an empty file has one empty chunk
            self._machine.ask(Agent.write_file, self.number, content[start : start + _CHUNK_BYTES], start == 0)

    def close(self) -> None:
        """Nothing: the file ends with the machine's part of the run."""


class RemoteMachine(AbstractContextManager["RemoteMachine"]):
    """Another machine, on which an agent waits to be dialled; all its processes end with the context.

    Raises WorkerLost if the agent does not answer.

    Attributes:
        clock_offset_ns: by the quickest of some round trips, so right up to half the time of that trip.
    """

    def __init__(self, name: str, address: tuple[str, int], token: bytes) -> None:
        self.name, self.address, self.token = name, address, token
        self._control = Channel(dial(address, token, CONTROL), channel_key(token))
        self._answers: deque[Any] = deque()
        self._messages: defaultdict[int, deque[Any]] = defaultdict(deque)
        self._n_workers = 0
        self.pumps: list[tuple[Pump, Ring]] = []
        self.clock_offset_ns = self._clock_offset_ns()

    @property
    def workers(self) -> RemoteMachine:
        """Its processes."""
        return self

    def start(self, name: str, function: Callable[..., None], *args: object) -> int:
        """Implements `WorkerGroup`."""
        self.ask(Agent.start, f"{name} on {self.name}", dumps((function, args)))
        self._n_workers += 1
        return self._n_workers - 1

    def send(self, number: int, message: object) -> None:
        """Implements `WorkerGroup`."""
        self.ask(Agent.send, number, message)

    def receive(self, number: int) -> Any:
        """Implements `WorkerGroup`."""
        while not self._messages[number]:
            self._read()
        return self._messages[number].popleft()

    @property
    def watched(self) -> list[int]:
        """Implements `WorkerGroup`."""
        return [self._control.fileno(), *(pump.lost_fd for pump, _ in self.pumps)]

    def check(self, events: Collection[int]) -> None:
        """Implements `WorkerGroup`."""
        if self._control.fileno() in events:
            try:
                while self._control.poll():
                    self._read()
            except (OSError, BadMessage) as error:
                raise self._loss() from error
        for pump, _ in self.pumps:
            pump.check()

    def file(self, content: bytes) -> RemoteFile:
        """A file without a name there."""
        file = RemoteFile(next(_numbers), self)
        file.write(content)
        return file

    def ring(self, n_slots: int, slot_bytes: int) -> RemoteEnd:
        """A ring in shared memory there."""
        return self.opened(next(_numbers), Agent.open_ring, n_slots, slot_bytes)

    def opened(self, number: int, method: Callable[[Agent, int, *Arguments], None], *args: *Arguments) -> RemoteEnd:
        """An object there with a number, which the agent opens by a method of its own."""
        self.ask(method, number, *args)
        return RemoteEnd(number)

    def ask(self, method: Callable[[Agent, *Arguments], object], *args: *Arguments) -> None:
        """Have the agent call a method of its own; does not wait until it has.

        Raises WorkerLost, or what ended the agent.
        """
        try:
            self._control.send((method, args))
        except OSError:
            while True:  # until the exception that the agent sent before it ended, or WorkerLost
                self._read()

    def _read(self) -> None:
        try:
            message = checked(self._control.recv())
        except (EOFError, OSError) as error:
            raise self._loss() from error
        except BadMessage as error:
            raise WorkerLost(f"{self.name} sent something else than a message: {error}") from error
        if isinstance(message, FromWorker):
            self._messages[message.worker].append(message.message)
        else:
            self._answers.append(message)

    def _loss(self) -> WorkerLost:
        return WorkerLost(f"{self.name} is lost: its Dask worker has ended, or its network")

    def _clock_offset_ns(self) -> int:
        trips = []
        for _ in range(N_CLOCK_READS):
            start = perf_counter_ns()
            self.ask(Agent.clock_ns)
            while not self._answers:
                self._read()
            stop = perf_counter_ns()
            # The agent has read its clock at about the middle of the trip.
            trips.append((stop - start, self._answers.popleft() - (start + stop) // 2))
        return int(min(trips)[1])

    def __exit__(self, *_: object) -> None:
        self._control.close()
        for pump, ring in self.pumps:
            pump.close()
            ring.close()
        self.pumps.clear()


def connect(sender: ProcessHost, receiver: ProcessHost, n_slots: int, slot_bytes: int) -> tuple[Any, Any]:
    """A channel of messages between two machines: the end of the process that writes, and of the one that reads.

    On one machine it is a ring, and both ends are the same. Processes of two other machines get a connection. Where one
    of the two is this machine, its end is a ring with a `Pump`.
    """
    number = next(_numbers)
    if sender is receiver:
        ring = sender.ring(n_slots, slot_bytes)
        return ring, ring
    if isinstance(sender, RemoteMachine) and isinstance(receiver, RemoteMachine):
        reader = receiver.opened(number, Agent.open_reader, n_slots, slot_bytes)
        return sender.opened(number, Agent.open_writer, slot_bytes, receiver.address), reader
    own = Ring.create(n_slots, slot_bytes)
    if isinstance(receiver, RemoteMachine):
        reader = receiver.opened(number, Agent.open_reader, n_slots, slot_bytes)
        to = TcpWriter(dial(receiver.address, receiver.token, number), slot_bytes)
        receiver.pumps.append((Pump(own, to, to), own))
        return own, reader
    assert isinstance(sender, RemoteMachine)
    writer = sender.opened(number, Agent.open_writer, slot_bytes, None)
    back = TcpReader(dial(sender.address, sender.token, number), slot_bytes)
    back.grant(n_slots)
    sender.pumps.append((Pump(back, own, back), own))
    return writer, own
