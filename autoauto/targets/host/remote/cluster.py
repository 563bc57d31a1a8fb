"""Several machines as a cluster of devices, with measured links: `remote_cluster`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, Machine
from autoauto.targets.host.machine.detect import device_memory_bytes
from autoauto.targets.host.machine.link_times import MESSAGE_BYTES, N_SLOTS, message_times
from autoauto.targets.host.machine.machine import CLOCK_HZ, MachineCache
from autoauto.targets.host.machine.machine import cores as all_cores
from autoauto.targets.host.remote.dask import DaskMachines
from autoauto.targets.host.remote.machines import LocalMachine, connect
from autoauto.targets.host.remote.machines import Machine as Place

VERSION = 1


class Ends(NamedTuple):
    """A link as the process that sends sees it, and as the one that receives."""

    send: Link
    receive: Link


def remote_cluster(machines: DaskMachines, memory_bytes: int | None = None) -> Cluster:
    """Describe the machines of Dask workers as devices of one core each, as many as every worker declares at least.

    Links are measured once and cached, as `host_cluster` does: between two processes of the first machine, from every
    machine to the next, from this process to the first machine, and from the last to this process. What comes from this
    process to all devices of a machine is bounded by what the first machine receives from it.

    Args:
        machines: of the workers.
        memory_bytes: memory of one device; its share of the machine's memory when None.

    Raises:
        BadInput: the memory does not suffice for the devices.
        WorkerLost: a worker has ended.
    """
    n_machines, n_each = len(machines.machines), min(served.worker.n_devices for served in machines.machines)
    if memory_bytes is None:
        memory_bytes = min(device_memory_bytes(served.facts.memory_bytes, n_each) for served in machines.machines)
    first, within, *between, last = _links(machines)
    inner = [within] * (n_each - 1)
    entries, exits = (first, *between), (*between, last)
    return Cluster(
        name=f"{n_machines}-machines",
        target="host",
        devices=(Device("core", CLOCK_HZ, memory_bytes, 1, memory_bytes),) * (n_machines * n_each),
        receive_links=tuple(link.receive for entry in entries for link in (entry, *inner)),
        send_links=tuple(link.send for exit_ in exits for link in (*inner, exit_)),
        machine=Machine(n_each, first.receive.bytes_per_s),
    )


def check_served(cluster: Cluster, machines: DaskMachines) -> None:
    """Refuse a cluster that the workers cannot serve.

    Raises:
        BadInput: it has more machines than there are workers, or a machine more devices than its worker.
    """
    n_machines = -(-len(cluster) // cluster.machine_size)
    if n_machines > len(machines.machines):
        raise BadInput(
            f"{cluster.name} has {n_machines} machines, there are {len(machines.machines)} Dask workers with devices; "
            "start more, or write fewer devices or more of them a [machine]"
        )
    for served in machines.machines[:n_machines]:
        if served.worker.n_devices < cluster.machine_size:
            raise BadInput(
                f"a machine of {cluster.name} has {cluster.machine_size} devices, Dask worker {served.worker.name} has "
                f"{served.worker.n_devices}; start it with --resources device={cluster.machine_size}"
            )


def _links(machines: DaskMachines) -> list[Ends]:
    """Into the first machine, within it, from each to the next, and out of the last."""
    served = [(machine.worker.name, machine.host, machine.facts) for machine in machines.machines]
    cache = MachineCache("remote-links", VERSION, *served)
    n_links = len(served) + 2
    rows = cache.read(lambda numbers: [[float(number) for number in numbers[str(k)]] for k in range(n_links)])
    if rows is None:
        rows = _measured(machines)
        cache.write({str(k): row for k, row in enumerate(rows)})
    return [
        Ends(Link(write, round(send_s * CLOCK_HZ)), Link(read, round(latency_s * CLOCK_HZ)))
        for send_s, latency_s, write, read in rows
    ]


def _measured(machines: DaskMachines) -> list[list[float]]:
    """The `message_times` of every link, one after the other."""
    with ExitStack() as stack:
        here = stack.enter_context(LocalMachine())
        opened = stack.enter_context(machines.open(range(len(machines.machines))))
        places: list[Place] = [here, opened[0], *opened.values(), here]
        numbers = [None, 0, *opened, None]

        def cores(place: int, device: int) -> tuple[int, ...]:
            number = numbers[place]
            of = all_cores() if number is None else machines.machines[number].facts.cores
            return of[min(device, len(of) - 1)]

        def measure(place: int) -> list[float]:
            """From a place to the next; to another core of the same machine if both are one."""
            sender, receiver = places[place], places[place + 1]
            messages = connect(sender, receiver, N_SLOTS, MESSAGE_BYTES)
            replies = connect(receiver, sender, N_SLOTS, 1)
            ends = (sender.workers, cores(place, 0)), (receiver.workers, cores(place + 1, int(sender is receiver)))
            return list(message_times(*ends, messages, replies))

        return list(map(measure, range(len(places) - 1)))
