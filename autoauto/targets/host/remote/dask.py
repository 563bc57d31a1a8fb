"""Machines that Dask workers serve: `DaskMachines`. Dask starts processes there; their messages do not pass through it.

Machine k of a cluster is served by the k-th of the workers that declare devices, in the order of their names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from multiprocessing.connection import wait
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from autoauto.processes.dask import DEVICE, DaskWorker, open_client, workers_of
from autoauto.processes.start import GuardedProcess
from autoauto.records.errors import BadInput, WorkerLost, missing_extra
from autoauto.records.installation import VERSION
from autoauto.targets.host.detect import total_bytes
from autoauto.targets.host.machine import cores, processor
from autoauto.targets.host.remote.agent import agent
from autoauto.targets.host.remote.machines import RemoteMachine
from autoauto.targets.host.runtimes.registry import installed_versions
from autoauto.targets.host.transport.tcp import START_S, new_token

_CONNECT_S = 10.0
_agents: list[GuardedProcess] = []  # those of this Dask worker


class Facts(NamedTuple):
    """What a worker says of its machine.

    Attributes:
        software: versions of autoauto and of the installed runtimes.
        processor: its model.
        cores: as `autoauto.targets.host.machine.cores`.
        memory_bytes: of the whole machine.
    """

    software: str
    processor: str
    cores: tuple[tuple[int, ...], ...]
    memory_bytes: int


class ServedMachine(NamedTuple):
    """A machine of a cluster, and the worker that serves it."""

    worker: DaskWorker
    facts: Facts

    @property
    def host(self) -> str:
        """Where its processes take connections."""
        return urlsplit(self.worker.address).hostname or ""


class DaskMachines:
    """The machines that the workers of a scheduler serve; it can be pickled.

    Attributes:
        machines: all of them, in the order of the cluster. The workers were asked when this was made.

    Raises:
        MissingExtra: distributed is not installed.
        BadInput: there is no scheduler, no worker has devices, or the machines differ.
    """

    def __init__(self, address: str) -> None:
        self._address = address if "://" in address else f"tcp://{address}"
        with self._client() as client:
            workers = _in_order(client)
            futures = [client.submit(facts, workers=[worker.address], pure=False) for worker in workers]
            answers = [
                _result(future, f"Dask worker {worker.name}") for future, worker in zip(futures, workers, strict=True)
            ]
        self.machines = tuple(map(ServedMachine, workers, answers))
        check_alike(self.machines, self._address)

    @property
    def identity(self) -> str:
        """What measured times depend on, as `autoauto.targets.host.machine.identity`."""
        facts = self.machines[0].facts
        return f"{facts.processor}, {len(facts.cores)} cores, machines of Dask workers"

    @property
    def note(self) -> str:
        """Which worker serves which machine."""
        served = (f"machine {k} is {machine.worker.name} at {machine.host}" for k, machine in enumerate(self.machines))
        return f"Dask workers: {', '.join(served)}"

    @contextmanager
    def open(self, numbers: Collection[int]) -> Iterator[Mapping[int, RemoteMachine]]:
        """Some machines by number, ready to start processes, which all end with the context.

        Raises:
            WorkerLost: a worker is gone, or does not start a process in time.
            BadInput: the scheduler is gone.
        """
        token = new_token()
        with ExitStack() as stack:
            addresses = self._start_agents(sorted(numbers), token)
            yield {
                number: stack.enter_context(RemoteMachine(self._name(number), address, token))
                for number, address in addresses.items()
            }

    @contextmanager
    def open_first(self) -> Iterator[RemoteMachine]:
        """The first machine alone, as `open`."""
        with self.open([0]) as opened:
            yield opened[0]

    def _start_agents(self, numbers: Collection[int], token: bytes) -> dict[int, tuple[str, int]]:
        with self._client() as client:
            now = {worker.name: worker for worker in _in_order(client)}
            futures = {}
            for number in numbers:
                name = self.machines[number].worker.name
                if name not in now:
                    raise WorkerLost(f"{self._name(number)} is lost: its Dask worker has ended")
                futures[number] = client.submit(
                    start_agent,
                    token,
                    workers=[now[name].address],
                    resources={DEVICE: now[name].n_devices},
                    pure=False,
                )
            return {number: _result(future, self._name(number)) for number, future in futures.items()}

    def _name(self, number: int) -> str:
        return f"machine {number} ({self.machines[number].worker.name})"

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with ExitStack() as stack:
            try:
                client = stack.enter_context(open_client(self._address, _CONNECT_S))
            except ImportError as error:
                raise missing_extra("a cluster of several machines", "dask") from error
            except (OSError, ValueError) as error:
                raise BadInput(
                    f"there must be a Dask scheduler at {self._address}, got {error}; try dask scheduler"
                ) from error
            yield client


def check_alike(machines: Sequence[ServedMachine], address: str) -> None:
    """Refuse machines that make no cluster.

    Raises:
        BadInput: there are none, they differ from each other or in software from this one, or have too few cores.
    """
    if not machines:
        raise BadInput(
            f"no Dask worker at {address} has devices; start one on every machine: dask worker --resources {DEVICE}=N"
        )
    first, here = machines[0], software()
    for machine in machines:
        name, (there, model, machine_cores, _) = machine.worker.name, machine.facts
        if there != here:
            raise BadInput(f"all machines need the same software, here is {here}, {name} has {there}; install the same")
        if model != first.facts.processor:
            raise BadInput(
                f"the machines of a cluster are alike, {first.worker.name} has {first.facts.processor}, {name} has "
                f"{model}; try workers on machines of one kind"
            )
        if machine.worker.n_devices > len(machine_cores):
            n_devices = machine.worker.n_devices
            raise BadInput(
                f"a device is a core, {name} declares {n_devices} and may use {len(machine_cores)}; start it with "
                f"--resources {DEVICE}={len(machine_cores)}"
            )


@cache
def machines_of(address: str) -> DaskMachines:
    """The machines of a scheduler, whose workers this process asks once."""
    return DaskMachines(address)


def _in_order(client: Any) -> list[DaskWorker]:
    """The workers with devices, by name."""
    return sorted(worker for worker in workers_of(client) if worker.n_devices)


def _result(future: Any, name: str) -> Any:
    """The result of a task.

    Raises:
        WorkerLost: there is none in time, or the worker failed.
    """
    try:
        return future.result(timeout=START_S)
    except TimeoutError as error:
        raise WorkerLost(
            f"{name}: its Dask worker must start a process within {START_S:g} s; it is lost, or measures for others"
        ) from error
    except Exception as error:
        raise WorkerLost(f"{name}: its Dask worker failed: {type(error).__name__}: {error}") from error


def software() -> str:
    """Versions of autoauto and of the installed runtimes."""
    return f"autoauto {VERSION}, {installed_versions()}"


def facts() -> Facts:
    """In a Dask worker: describe its machine."""
    return Facts(software(), processor(), cores(), total_bytes())


def start_agent(token: bytes) -> tuple[str, int]:
    """In a Dask worker: start an `agent`, and return where it takes connections: on the address of the worker alone.

    Raises:
        WorkerLost: it has ended.
    """
    from distributed import get_worker

    host = urlsplit(get_worker().address).hostname
    for ended in [process for process in _agents if process.ending() is not None]:
        _agents.remove(ended)
        ended.close()
    with closing(os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "wb")) as log:
        process = GuardedProcess(agent, (host, token), log, None)
    wait(process.descriptors, START_S)
    try:
        port = process.channel.recv() if process.channel.poll() else None
    except EOFError:
        port = None
    if port is None:
        process.close()
        raise WorkerLost(f"the process that starts stages did not start within {START_S:g} s")
    _agents.append(process)
    return str(host), int(port)
