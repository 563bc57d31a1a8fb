"""Machines that Dask workers serve, `DaskMachines`, and a cluster of their devices with measured links.

Dask starts processes on the machines; messages of the processes do not pass through it. `remote_cluster` measures the
links. Machine k of a cluster is served by the k-th of the workers that declare devices, in the order of their names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from itertools import pairwise
from multiprocessing.connection import wait
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from autoauto.processes.dask import DEVICE, DaskWorker, open_client, workers_of
from autoauto.processes.start import ChildProcess
from autoauto.records.errors import BadInput, WorkerLost, missing_extra
from autoauto.records.hardware import Cluster, Device, Link, Machine
from autoauto.records.installation import VERSION
from autoauto.targets.host.detect import MESSAGE_BYTES, N_SLOTS, device_memory_bytes, message_times, total_bytes
from autoauto.targets.host.machine import CLOCK_HZ, MachineCache, cores, cpu_model
from autoauto.targets.host.remote.agent import agent
from autoauto.targets.host.remote.machines import LocalMachine, ProcessHost, RemoteMachine, connect
from autoauto.targets.host.runtimes.registry import installed_versions
from autoauto.targets.host.transport.tcp import START_S, new_token

_CONNECT_S = 10.0
_agents: list[ChildProcess] = []  # in a Dask worker: the agents that it has started


class Facts(NamedTuple):
    """Facts about the machine of a worker."""

    software: str  # versions of autoauto and of the installed runtimes
    cpu_model: str
    cores: tuple[tuple[int, ...], ...]
    memory_bytes: int


class ServedMachine(NamedTuple):
    """A machine of a cluster, and the worker that serves it."""

    worker: DaskWorker
    facts: Facts

    @property
    def host(self) -> str:
        """The host name at which its processes take connections."""
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
            # All work at the same time: each answer is waited for once all are asked.
            futures = [client.submit(facts, workers=[worker.address], pure=False) for worker in workers]
            machines = []
            for worker, future in zip(workers, futures, strict=True):
                machines.append(ServedMachine(worker, _result(future, f"Dask worker {worker.name}")))
        self.machines = tuple(machines)
        check_alike(self.machines, self._address)

    @property
    def identity(self) -> str:
        """A text that names all that measured times depend on; see `autoauto.targets.host.machine.identity`."""
        facts = self.machines[0].facts
        return f"{facts.cpu_model}, {len(facts.cores)} cores, machines of Dask workers"

    @property
    def note(self) -> str:
        """A line with the worker of every machine."""
        served = [f"machine {k} is {machine.worker.name} at {machine.host}" for k, machine in enumerate(self.machines)]
        return f"Dask workers: {', '.join(served)}"

    @contextmanager
    def open(self, numbers: Collection[int]) -> Iterator[Mapping[int, RemoteMachine]]:
        """Some machines by number, ready to start processes, which all end with the context.

        Raises:
            WorkerLost: a worker is gone, or does not start a process in time.
            BadInput: the scheduler is gone.
        """
        token = new_token()
        with self._client() as client:
            # A worker that was started again has the same name at another address.
            now = {worker.name: worker for worker in _in_order(client)}
            futures = {}
            for number in sorted(numbers):
                worker = now.get(self.machines[number].worker.name)
                if worker is None:
                    raise WorkerLost(f"{self._name(number)} is lost: its Dask worker has ended")
                # It waits for all devices of the worker, hence until no task of others measures there.
                futures[number] = client.submit(
                    start_agent, token, workers=[worker.address], resources={DEVICE: worker.n_devices}, pure=False
                )
            addresses = {number: _result(future, self._name(number)) for number, future in futures.items()}
        with ExitStack() as stack:
            opened = {}
            for number, address in addresses.items():
                opened[number] = stack.enter_context(RemoteMachine(self._name(number), address, token))
            yield opened

    @contextmanager
    def open_first(self) -> Iterator[RemoteMachine]:
        """The first machine alone, as `open`."""
        with self.open([0]) as opened:
            yield opened[0]

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
    """Raise BadInput for machines that make no cluster."""
    if not machines:
        raise BadInput(
            f"no Dask worker at {address} has devices; start one on every machine: dask worker --resources {DEVICE}=N"
        )
    first, here = machines[0], software()
    for machine in machines:
        name, n_devices = machine.worker.name, machine.worker.n_devices
        there, n_cores = machine.facts.software, len(machine.facts.cores)
        if there != here:
            raise BadInput(f"all machines need the same software, here is {here}, {name} has {there}; install the same")
        if machine.facts.cpu_model != first.facts.cpu_model:
            raise BadInput(
                f"the machines of a cluster are alike, {first.worker.name} has {first.facts.cpu_model}, {name} has "
                f"{machine.facts.cpu_model}; try workers on machines of one kind"
            )
        if n_devices > n_cores:
            raise BadInput(
                f"a device is a core, {name} declares {n_devices} and may use {n_cores}; start it with "
                f"--resources {DEVICE}={n_cores}"
            )


@cache
def machines_of(address: str | None) -> DaskMachines | None:
    """The machines of a scheduler, whose workers this process asks once; None without an address."""
    return DaskMachines(address) if address is not None else None


def _in_order(client: Any) -> list[DaskWorker]:
    return sorted(worker for worker in workers_of(client) if worker.n_devices)


def _result(future: Any, name: str) -> Any:
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
    return Facts(software(), cpu_model(), cores(), total_bytes())


def start_agent(token: bytes) -> tuple[str, int]:
    """In a Dask worker: start an `agent`, and return its address, which is on the network of the worker alone.

    Raises WorkerLost if it has ended.
    """
    from distributed import get_worker

    host = urlsplit(get_worker().address).hostname
    for ended in [process for process in _agents if process.ending() is not None]:
        _agents.remove(ended)
        ended.close()
    # Of the process itself: `sys.stderr` may have been replaced by an object without a descriptor.
    with closing(os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "wb")) as log:
        process = ChildProcess(agent, (host, token), log, has_guard=True)
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


LINKS_VERSION = 1


class Ends(NamedTuple):
    """A link as the process that sends sees it, and as the one that receives."""

    send: Link
    receive: Link


def remote_cluster(machines: DaskMachines, memory_bytes: int | None = None) -> Cluster:
    """Describe the machines of Dask workers as devices of one core each, as many as every worker declares at least.

    Links are measured once and cached, as `host_cluster` does: between two processes of the first machine, from every
    machine to the next, from this process to the first machine, and from the last to this process. What comes from this
    process to all devices of a machine is bounded by what the first machine receives from it.

    Raises BadInput if the memory does not suffice for the devices, and WorkerLost if a worker has ended.
    """
    n_machines = len(machines.machines)
    n_each = min(served.worker.n_devices for served in machines.machines)
    if memory_bytes is None:
        memory_bytes = min(device_memory_bytes(served.facts.memory_bytes, n_each) for served in machines.machines)
    links = _links(machines, n_each)
    # In a machine's part of the line there is a link from outside, and one between each two of its devices.
    around, inner = links[: n_machines + 1], links[n_machines + 1 :] * (n_each - 1)
    receive_links: list[Link] = []
    send_links: list[Link] = []
    for entry, exit_ in pairwise(around):
        receive_links += [link.receive for link in (entry, *inner)]
        send_links += [link.send for link in (*inner, exit_)]
    return Cluster(
        name=f"{n_machines}-machines",
        target="host",
        devices=(Device("core", CLOCK_HZ, memory_bytes, 1, memory_bytes),) * (n_machines * n_each),
        receive_links=tuple(receive_links),
        send_links=tuple(send_links),
        machine=Machine(n_each, around[0].receive.bytes_per_s),
    )


def check_served(cluster: Cluster, machines: Sequence[ServedMachine]) -> None:
    """Raise BadInput for a cluster that the workers cannot serve."""
    n_machines = -(-len(cluster) // cluster.machine_size)
    if n_machines > len(machines):
        raise BadInput(
            f"{cluster.name} has {n_machines} machines, there are {len(machines)} Dask workers with devices; "
            "start more, or write fewer devices or more of them a [machine]"
        )
    for served in machines[:n_machines]:
        if served.worker.n_devices < cluster.machine_size:
            raise BadInput(
                f"a machine of {cluster.name} has {cluster.machine_size} devices, Dask worker {served.worker.name} has "
                f"{served.worker.n_devices}; start it with --resources device={cluster.machine_size}"
            )


def _links(machines: DaskMachines, n_each: int) -> list[Ends]:
    """Into the first machine, from each to the next, out of the last, and within the first if it has two devices."""
    served = [(machine.worker.name, machine.host, machine.facts) for machine in machines.machines]
    pairs = list(pairwise([None, *range(len(served)), None]))
    if n_each > 1:
        pairs.append((0, 0))
    cache = MachineCache("remote-links", LINKS_VERSION, n_each > 1, *served)
    rows = cache.read(lambda numbers: [[float(number) for number in numbers[str(k)]] for k in range(len(pairs))])
    if rows is None:
        rows = _measured(machines, pairs)
        cache.write({str(k): row for k, row in enumerate(rows)})
    return [
        Ends(Link(write, round(send_s * CLOCK_HZ)), Link(read, round(latency_s * CLOCK_HZ)))
        for send_s, latency_s, write, read in rows
    ]


def _measured(machines: DaskMachines, pairs: Sequence[tuple[int | None, int | None]]) -> list[list[float]]:
    """The `message_times` of pairs of machines, one after the other: the sender, the receiver; None is this machine."""
    cores_of_machine: dict[int | None, tuple[tuple[int, ...], ...]] = {None: cores()}
    for number, served in enumerate(machines.machines):
        cores_of_machine[number] = served.facts.cores
    rows = []
    with ExitStack() as stack:
        hosts: dict[int | None, ProcessHost] = {None: stack.enter_context(LocalMachine())}
        opened = stack.enter_context(machines.open(range(len(machines.machines))))
        hosts.update(opened.items())
        for first, second in pairs:
            sender, receiver = hosts[first], hosts[second]
            second_core = 1 if first == second else 0  # two processes of a machine have a core each
            times = message_times(
                (sender.workers, cores_of_machine[first][0]),
                (receiver.workers, cores_of_machine[second][second_core]),
                connect(sender, receiver, N_SLOTS, MESSAGE_BYTES),
                connect(receiver, sender, N_SLOTS, 1),
            )
            rows.append(list(times))
    return rows
