"""The process that starts and ends a run's processes on another machine: `agent`.

                    Dask worker ──▶ guard ──▶ agent ──▶ stage 0 ──ring──▶ stage 1
                                                ▲                           │
    the search ─── requests, messages, over TCP ╯                           ╰── TCP ──▶ a stage of the next machine

The agent serves one run. It performs the requests of the process that dials it, and hands on what its workers send. It
ends with the connection, and the guard ends with it all that it started; so does the end of the Dask worker.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import threading
import traceback
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from autoauto.processes.channel import Channel
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Failed, Workers
from autoauto.targets.host.transport.shared_memory import Ring, SubModelFile
from autoauto.targets.host.transport.tcp import CONTROL, Gate, TcpReader, TcpWriter, channel_key, dial


class RemoteReference:
    """Stands for an object that an agent has, by its number: in arguments of a process there it becomes the object."""

    def __init__(self, number: int) -> None:
        self.number = number


def dumps(call: object) -> bytes:
    """Pickle a call, with the numbers of objects that the agent has."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> int | None:
            return thing.number if isinstance(thing, RemoteReference) else None

    file = io.BytesIO()
    Pickler(file).dump(call)
    return file.getvalue()


class Agent:
    """The objects and workers of a run on this machine.

    Attributes:
        running: the number of every worker that may send more, by the descriptor of its channel.
    """

    def __init__(self, workers: Workers, gate: Gate, token: bytes) -> None:
        self.workers, self.gate, self.token = workers, gate, token
        self.objects: dict[int, Any] = {}
        self.running: dict[int, int] = {}

    def start(self, name: str, pickled: bytes) -> None:
        """Start a worker, with a function and arguments as `dumps` wrote them.

        An end of a connection is then the worker's alone, so that the other end notices when it is killed.
        """
        objects, used = self.objects, set()

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, number: Any) -> Any:
                used.add(number)
                return objects[number]

        function, args = Unpickler(io.BytesIO(pickled)).load()
        number = self.workers.start(name, function, *args)
        self.running[self.workers.descriptor(number)] = number
        for each in used:
            if isinstance(objects[each], TcpReader | TcpWriter):
                objects.pop(each).close()


class AgentRequest(Protocol):
    """A request to an agent."""

    def perform(self, agent: Agent) -> object | None:
        """Do it; returns an answer, if one is wanted."""


class FromWorker(NamedTuple):
    """A message of a worker."""

    worker: int
    message: object


class WriteFile(NamedTuple):
    """Hold a file with this content, or append the content to it."""

    number: int
    content: bytes
    is_first: bool

    def perform(self, agent: Agent) -> None:
        """Write it."""
        file = agent.objects.setdefault(self.number, SubModelFile())
        (file.write if self.is_first else file.append)(self.content)


class OpenRing(NamedTuple):
    """Hold a ring between two processes of this machine."""

    number: int
    n_slots: int
    slot_bytes: int

    def perform(self, agent: Agent) -> None:
        """Make it."""
        agent.objects[self.number] = Ring.create(self.n_slots, self.slot_bytes)


class OpenTcp(NamedTuple):
    """Hold an end of a connection: dial the address of another machine, or without one wait for a connection."""

    number: int
    n_slots: int
    slot_bytes: int
    writes: bool
    address: tuple[str, int] | None

    def perform(self, agent: Agent) -> None:
        """Connect."""
        taken = agent.gate.admit if self.address is None else self._dial(agent.token)
        connection = taken(self.number)
        if self.writes:
            agent.objects[self.number] = TcpWriter(connection, self.slot_bytes)
            return
        agent.objects[self.number] = reader = TcpReader(connection, self.slot_bytes)
        reader.grant(self.n_slots)

    def _dial(self, token: bytes) -> Callable[[int], Any]:
        assert self.address is not None
        address = self.address
        return lambda number: dial(address, token, number)


class Start(NamedTuple):
    """Start a worker; `call` is the function and its arguments by `dumps`."""

    name: str
    call: bytes

    def perform(self, agent: Agent) -> None:
        """Start it."""
        agent.start(self.name, self.call)


class SendMessage(NamedTuple):
    """Send a message to a worker."""

    worker: int
    message: object

    def perform(self, agent: Agent) -> None:
        """Send it."""
        agent.workers.send(self.worker, self.message)


class ReadClock(NamedTuple):
    """Say what this machine's clock shows, in ns."""

    def perform(self, agent: Agent) -> int:
        """Read it."""
        return perf_counter_ns()


def agent(channel: Channel, host: str, token: bytes) -> None:
    """The program of the process: send the port of its gate to the Dask worker, then serve who dials with the token."""
    gate = Gate(host, token)
    channel.send(gate.address[1])
    control = Channel(gate.admit(CONTROL), channel_key(token))
    threading.Thread(target=_end_with, args=(control.fileno(),), daemon=True).start()
    with Workers(ENVIRONMENT) as workers:
        try:
            _serve(control, Agent(workers, gate, token))
        except EOFError:
            pass
        except BaseException as error:  # noqa: BLE001 (the process that asked raises it)
            control.send(failure_of(error))
            threading.Event().wait()  # until that process has read it, and closes the connection


def _serve(control: Channel, agent: Agent) -> None:
    ready = agent.workers.waiter()
    while True:
        for descriptor in ready([control.fileno(), *agent.running]):
            if descriptor in agent.running:
                _hand_on(descriptor, control, agent)
        while control.poll():
            request: AgentRequest = control.recv()
            answer = request.perform(agent)
            if answer is not None:
                control.send(answer)


def _hand_on(descriptor: int, control: Channel, agent: Agent) -> None:
    """Send what a worker has sent."""
    number = agent.running[descriptor]
    try:
        for message in agent.workers.arrived(number):
            control.send(FromWorker(number, message))
    except EOFError:  # if it did not end well, the next wait raises why
        del agent.running[descriptor]


def failure_of(error: BaseException) -> Failed:
    """An exception with its traceback, or with that of the worker that raised it."""
    cause = error.__cause__
    return Failed(error, str(cause) if cause is not None else "".join(traceback.format_exception(error)))


def _end_with(descriptor: int) -> None:
    """End this process when the other end of the connection is closed or lost, whatever it does at the moment."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    os._exit(0)
