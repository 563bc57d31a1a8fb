"""Where groups of GPUs stand in nodes: `groups_of`, `parts_of`.

node 0   |g0 g1|g2 g3|g4 g5|g6 g7|     4 groups of 2 GPUs
node 1   |g0 g1|g2 g3|                 2 groups
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from autoauto.records.hardware import Cluster


class NodeGpus(NamedTuple):
    """GPUs of a node: a group that is one device of a pipeline, or all that a replica has there.

    Attributes:
        machine: the node, counted over the cluster.
        kind: the name of the GPUs.
        gpus: their numbers in the node, in the order of the stages.
    """

    machine: int
    kind: str
    gpus: tuple[int, ...]


def groups_of(cluster: Cluster, n_each: int) -> tuple[NodeGpus, ...]:
    """The groups of `n_each` GPUs of a cluster of single GPUs, in the order of `Cluster.grouped`."""
    return tuple(_groups(cluster, n_each))


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
    return [
        (kind.device.name, kind.n_devices, kind.linked.machine.n_devices if kind.linked else kind.n_devices)
        for kind in cluster.kinds
    ]


def parts_of(groups: Sequence[NodeGpus]) -> tuple[NodeGpus, ...]:
    """The groups of a replica, those of neighbouring stages on one node together."""
    runs = groupby(groups, key=lambda group: (group.machine, group.kind))
    return tuple(NodeGpus(*where, tuple(gpu for group in run for gpu in group.gpus)) for where, run in runs)
