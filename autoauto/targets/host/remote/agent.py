"""The process that starts and ends a run's processes on another machine: `agent`, with an `Agent`.

                    Dask worker ──▶ guard ──▶ agent ──▶ stage 0 ──ring──▶ stage 1
                                                ▲                           │
    the search ─── requests, messages, over TCP ╯                           ╰── TCP ──▶ a stage of the next machine

The agent serves one run. It performs the requests of the process that dials it, and hands on the messages of its
workers. It ends with the connection or with the Dask worker, and the guard then ends all that it started.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import threading
import traceback
from time import perf_counter_ns
from typing import Any, NamedTuple

from autoauto.processes.channel import Channel
from autoauto.targets.host.memory_budget import ENVIRONMENT
from autoauto.targets.host.processes import Failed, Workers, waiter_of
from autoauto.targets.host.transport.shared_memory import Ring, SubModelFile
from autoauto.targets.host.transport.tcp import CONTROL, Gate, TcpReader, TcpWriter, channel_key, dial


class RemoteReference:
    """The number of an object of an agent; in the arguments of a process there the object takes its place."""

    def __init__(self, number: int) -> None:
        self.number = number


def dumps(call: object) -> bytes:
    """Pickle a call in which a `RemoteReference` is only its number."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing: Any) -> int | None:
            return thing.number if isinstance(thing, RemoteReference) else None

    file = io.BytesIO()
    Pickler(file).dump(call)
    return file.getvalue()


class Agent:
    """The objects and workers of a run on this machine.

    Its methods with arguments that can be pickled are requests: the process that dials it names the method to call
    (`RemoteMachine.ask`), and gets what the method returns, unless that is None.

    Attributes:
        running: the number of every worker that may send more, by the descriptor of its channel.
    """

    def __init__(self, workers: Workers, gate: Gate, token: bytes) -> None:
        self.workers = workers
        self.running: dict[int, int] = {}
        self._gate, self._token = gate, token
        self._objects: dict[int, Any] = {}

    def write_file(self, number: int, content: bytes, is_first: bool) -> None:
        """Write the file with a number, which is made if there is none, or append to it."""
        if number not in self._objects:
            self._objects[number] = SubModelFile()
        self._objects[number].write(content, is_first=is_first)

    def open_ring(self, number: int, n_slots: int, slot_bytes: int) -> None:
        """Make a ring between two processes of this machine."""
        self._objects[number] = Ring.create(n_slots, slot_bytes)

    def open_reader(self, number: int, n_slots: int, slot_bytes: int) -> None:
        """Wait for a connection from another machine, and read from it."""
        reader = TcpReader(self._gate.admit(number), slot_bytes)
        reader.grant(n_slots)
        self._objects[number] = reader

    def open_writer(self, number: int, slot_bytes: int, address: tuple[str, int] | None) -> None:
        """Write into a connection: to the address of another machine, or without one to whoever dials."""
        connection = self._gate.admit(number) if address is None else dial(address, self._token, number)
        self._objects[number] = TcpWriter(connection, slot_bytes)

    def start(self, name: str, pickled: bytes) -> None:
        """Start a worker, with a function and arguments as `dumps` wrote them.

        An end of a connection is then the worker's alone, so that the other end notices when it is killed.
        """
        objects, used = self._objects, set()

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

    def send(self, worker: int, message: object) -> None:
        """Send a message to a worker."""
        self.workers.send(worker, message)

    def clock_ns(self) -> int:
        """The time by this machine's clock."""
        return perf_counter_ns()


class FromWorker(NamedTuple):
    """A message of a worker."""

    worker: int
    message: object


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
            cause = error.__cause__  # of a worker's failure, its traceback
            text = str(cause) if cause is not None else "".join(traceback.format_exception(error))
            control.send(Failed(error, text))
            threading.Event().wait()  # until that process has read it, and closes the connection


def _serve(control: Channel, agent: Agent) -> None:
    ready = waiter_of([agent.workers])
    while True:
        for descriptor in ready([control.fileno(), *agent.running]):
            if descriptor in agent.running:
                number = agent.running[descriptor]
                try:
                    for message in agent.workers.arrived(number):
                        control.send(FromWorker(number, message))
                except EOFError:  # if it did not end well, the next wait raises why
                    del agent.running[descriptor]
        while control.poll():
            method, args = control.recv()
            answer = method(agent, *args)
            if answer is not None:
                control.send(answer)


def _end_with(descriptor: int) -> None:
    """End this process when the other end of the connection is closed or lost, whatever it does at the moment."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    poll.poll()
    os._exit(0)
