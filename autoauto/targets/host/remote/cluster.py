"""Several machines as a cluster of devices, with measured links: `remote_cluster`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster, Device, Link, Machine
from autoauto.targets.host.detect import MESSAGE_BYTES, N_SLOTS, device_memory_bytes, message_times
from autoauto.targets.host.machine import CLOCK_HZ, MachineCache
from autoauto.targets.host.machine import cores as all_cores
from autoauto.targets.host.remote.dask import DaskMachines, ServedMachine
from autoauto.targets.host.remote.machines import LocalMachine, ProcessHost, connect

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
    links = _links(machines, n_each)
    around, inner = links[: n_machines + 1], links[n_machines + 1 :] * (n_each - 1)
    return Cluster(
        name=f"{n_machines}-machines",
        target="host",
        devices=(Device("core", CLOCK_HZ, memory_bytes, 1, memory_bytes),) * (n_machines * n_each),
        receive_links=tuple(link.receive for entry in around[:-1] for link in (entry, *inner)),
        send_links=tuple(link.send for exit_ in around[1:] for link in (*inner, exit_)),
        machine=Machine(n_each, around[0].receive.bytes_per_s),
    )


def check_served(cluster: Cluster, machines: Sequence[ServedMachine]) -> None:
    """Refuse a cluster that the workers cannot serve.

    Raises:
        BadInput: it has more machines than there are workers, or a machine more devices than its worker.
    """
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
    machine_numbers = [None, *range(len(served)), None]
    pairs = [*pairwise(machine_numbers), *([(0, 0)] if n_each > 1 else [])]
    cache = MachineCache("remote-links", VERSION, n_each > 1, *served)
    rows = cache.read(lambda numbers: [[float(number) for number in numbers[str(k)]] for k in range(len(pairs))])
    if rows is None:
        rows = _measured(machines, pairs)
        cache.write({str(k): row for k, row in enumerate(rows)})
    return [
        Ends(Link(write, round(send_s * CLOCK_HZ)), Link(read, round(latency_s * CLOCK_HZ)))
        for send_s, latency_s, write, read in rows
    ]


def _measured(machines: DaskMachines, pairs: Sequence[tuple[int | None, int | None]]) -> list[list[float]]:
    """The `message_times` from one machine to another, one pair after the other; None is this machine."""
    with ExitStack() as stack:
        here = stack.enter_context(LocalMachine())
        opened = stack.enter_context(machines.open(range(len(machines.machines))))
        hosts: dict[int | None, ProcessHost] = {None: here}
        hosts.update(opened.items())

        def cores(number: int | None, device: int) -> tuple[int, ...]:
            return (all_cores() if number is None else machines.machines[number].facts.cores)[device]

        def measure(first: int | None, second: int | None) -> list[float]:
            sender, receiver = hosts[first], hosts[second]
            messages = connect(sender, receiver, N_SLOTS, MESSAGE_BYTES)
            replies = connect(receiver, sender, N_SLOTS, 1)
            from_to = (sender.workers, cores(first, 0)), (receiver.workers, cores(second, int(first == second)))
            return list(message_times(*from_to, messages, replies))

        return [measure(*pair) for pair in pairs]
