"""Where groups of GPUs stand in nodes, and where replicas of an engine may stand: `groups_of`, `Nodes`.

    node 0   |g0 g1|g2 g3|g4 g5|g6 g7|     4 groups of 2 GPUs
    node 1   |g0 g1|g2 g3|                 2 groups

A replica lies inside a node where it can. Otherwise it has as many stages on each of several nodes, if the engine can
be told so (`Engine.nodes_conflict`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from autoauto.engines.engine import Engine, NodePart
from autoauto.engines.rules import divisors
from autoauto.memo import Memo
from autoauto.records.hardware import Cluster

Free = tuple[int, ...]
"""The free groups of every node; groups of a node are taken from the first to the last."""
_MAX_PLACES = 65_536


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


class Nodes:
    """The nodes of a cluster, for replicas of an engine.

    Attributes:
        full: all groups free.
    """

    def __init__(self, groups: Sequence[NodeGpus], engine: Engine) -> None:
        """Take the groups of a cluster, one or more, in its order."""
        self._engine, self._n_each = engine, len(groups[0].gpus)
        counts = Counter(group.machine for group in groups)
        self.full: Free = tuple(counts.values())
        self._kinds = [next(group.kind for group in groups if group.machine == machine) for machine in counts]
        self._starts = [sum(self.full[:number]) for number in range(len(counts))]
        self._places: Memo[tuple[Free, tuple[str, ...]], tuple[int, ...] | None] = Memo(_MAX_PLACES)

    def n_able(self, kind: str, n_stages: int) -> int:
        """The nodes of a kind that hold so many stages."""
        return sum(name == kind and count >= n_stages for name, count in zip(self._kinds, self.full, strict=True))

    def splits(self, n_stages: int) -> list[int]:
        """The numbers of nodes among which the engine divides a pipeline evenly."""
        return [
            n_nodes
            for n_nodes in divisors(n_stages)
            if not self._engine.nodes_conflict(
                [NodePart(node, n_stages // n_nodes * self._n_each) for node in range(n_nodes)]
            )
        ]

    def place(self, free: Free, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        """The groups of a replica, as numbers of the cluster, on as few nodes as hold it; None if there is no room.

        Args:
            free: the groups that it may take.
            kinds: the name of the GPUs of every stage.
        """
        return self._places.of((free, kinds), lambda: self._placed(free, kinds))

    def _placed(self, free: Free, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        for n_nodes in self.splits(len(kinds)):
            size = len(kinds) // n_nodes
            segments = kinds[::size]
            if tuple(name for name in segments for _ in range(size)) != kinds:
                continue  # a node has GPUs of one kind
            if (nodes := self._chosen(free, segments, size)) is not None:
                firsts = [self._starts[node] + self.full[node] - free[node] for node in nodes]
                return tuple(group for first in firsts for group in range(first, first + size))
        return None

    def _chosen(self, free: Free, segments: Sequence[str], size: int) -> list[int] | None:
        """A node of every segment; of several the fullest, so that others keep room for a whole replica."""
        chosen: dict[str, list[int]] = {}
        for kind, n in Counter(segments).items():
            able = [node for node, name in enumerate(self._kinds) if name == kind and free[node] >= size]
            if len(able) < n:
                return None
            if len(segments) > 1:
                able.sort(key=lambda node: free[node])
            chosen[kind] = sorted(able[:n], reverse=True)
        return [chosen[kind].pop() for kind in segments]

    def without(self, free: Free, groups: Sequence[int]) -> Free:
        """What is free once groups that `place` chose are taken."""
        taken = [
            sum(start <= group < start + n for group in groups)
            for start, n in zip(self._starts, self.full, strict=True)
        ]
        return tuple(n - m for n, m in zip(free, taken, strict=True))

    def all_placed(self, kinds: tuple[str, ...], replicas: int) -> list[tuple[int, ...]] | None:
        """The groups of like replicas, one after the other; None if there is no room for all."""
        free, every = self.full, []
        for _ in range(replicas):
            groups = self.place(free, kinds)
            if groups is None:
                return None
            every.append(groups)
            free = self.without(free, groups)
        return every

    def why_no_room(self, n_stages: int, replicas: int) -> str:
        """A line for pipelines that do not stand on the nodes."""
        sizes = " + ".join(str(n * self._n_each) for n in self.full)
        stages = f"{n_stages} stage{'s' * (n_stages > 1)} of {self._n_each} GPU{'s' * (self._n_each > 1)}"
        return (
            f"{self._engine.nodes_rule}, got {replicas} x {stages} on nodes with groups for {sizes} GPUs; try another "
            "n_ipu, or fewer replicas"
        )
