"""The nodes in which groups of GPUs stand: `groups_of`, `parts_of`; and groups of GPUs that are free: `free_groups`.

node 0   |g0 g1|g2 g3|g4 g5|g6 g7|     4 groups of 2 GPUs
node 1   |g0 g1|g2 g3|                 2 groups

A group of more GPUs than a node has is of whole nodes, where all nodes are of the usual size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.targets.gpu.systems import system_named


class NodeGpus(NamedTuple):
    """GPUs of a node: a group that is one device of a pipeline, or all that a replica has there.

    Attributes:
        machine: the node, counted over the cluster.
        kind: the name of the GPUs.
        gpus: their numbers in the node, in the order of the stages; over several nodes counted on.
        n_machines: nodes of which they are all GPUs, one after the other.
    """

    machine: int
    kind: str
    gpus: tuple[int, ...]
    n_machines: int = 1

    @property
    def by_machine(self) -> tuple[NodeGpus, ...]:
        """The GPUs of every node apart."""
        if self.n_machines == 1:
            return (self,)
        size = len(self.gpus) // self.n_machines
        return tuple(NodeGpus(self.machine + i, self.kind, tuple(range(size))) for i in range(self.n_machines))


def groups_of(cluster: Cluster, n_each: int) -> tuple[NodeGpus, ...]:
    """The groups of `n_each` GPUs of a cluster of single GPUs, in the order of `Cluster.grouped`.

    Raises:
        Infeasible: they are of several nodes, and these are smaller than is usual.
    """
    if n_each <= cluster.machine_size:
        return tuple(_groups(cluster, n_each))
    name, size = cluster.devices[0].name, cluster.machine_size
    if size != system_named(name).n_gpus_per_node:
        raise Infeasible(
            f"a group of {n_each} GPUs is of whole nodes of {system_named(name).n_gpus_per_node} {name}, got nodes of "
            f"{size}; try smaller groups",
            0,
        )
    n_machines = n_each // size
    firsts = range(0, len(cluster) // size - n_machines + 1, n_machines)
    return tuple(NodeGpus(machine, name, tuple(range(n_each)), n_machines) for machine in firsts)


def _groups(cluster: Cluster, n_each: int) -> Iterator[NodeGpus]:
    machine = 0
    for kind, n_gpus, size in _lines(cluster):
        for first in range(0, n_gpus, size):
            n_here = min(size, n_gpus - first)
            for start in range(0, n_here - n_each + 1, n_each):
                yield NodeGpus(machine, kind, tuple(range(start, start + n_each)))
            machine += 1


def _lines(cluster: Cluster) -> list[tuple[str, int, int]]:
    """The name, number and node size of every kind of GPUs."""
    if not cluster.kinds:
        return [(cluster.devices[0].name, len(cluster), cluster.machine_size)]
    lines = []
    for kind in cluster.kinds:
        size = kind.linked.machine.n_devices if kind.linked else kind.n_devices
        lines.append((kind.device.name, kind.n_devices, size))
    return lines


def parts_of(groups: Sequence[NodeGpus]) -> tuple[NodeGpus, ...]:
    """The GPUs of a replica, the groups of neighbouring stages on one node together."""
    parts: list[NodeGpus] = []
    for part in chain.from_iterable(group.by_machine for group in groups):
        if parts and (parts[-1].machine, parts[-1].kind) == (part.machine, part.kind):
            parts[-1] = parts[-1]._replace(gpus=parts[-1].gpus + part.gpus)
        else:
            parts.append(part)
    return tuple(parts)


def free_groups(cluster: Cluster, kind: str, n_each: int, n: int, taken: Sequence[NodeGpus]) -> list[NodeGpus]:
    """The first groups of GPUs that are in no other, inside nodes, or larger ones on whole nodes.

    Args:
        cluster: of single GPUs; of several kinds too.
        n: groups, at most.
        taken: groups on nodes that are counted over the cluster.
    """
    used: set[tuple[int, int]] = set()
    for part in chain.from_iterable(group.by_machine for group in taken):
        used.update((part.machine, gpu) for gpu in part.gpus)
    free: dict[int, list[int]] = {}
    for machine, name, (gpu,), _ in groups_of(cluster, 1):
        if name == kind and (machine, gpu) not in used:
            free.setdefault(machine, []).append(gpu)
    size = system_named(kind).n_gpus_per_node
    if n_each > size:
        n_nodes = n_each // size
        whole = [machine for machine, gpus in free.items() if len(gpus) == size]
        firsts = whole[: len(whole) - n_nodes + 1 : n_nodes]
        return [NodeGpus(first, kind, tuple(range(n_each)), n_nodes) for first in firsts[:n]]
    every: list[NodeGpus] = []
    for machine, gpus in free.items():
        for start in range(0, len(gpus) - n_each + 1, n_each):
            every.append(NodeGpus(machine, kind, tuple(gpus[start : start + n_each])))
    return every[:n]
