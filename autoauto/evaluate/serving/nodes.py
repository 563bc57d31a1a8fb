"""Where replicas of an engine stand in the nodes of a cluster: `Nodes`.

A replica lies inside a node where it can. Otherwise it has as many stages on each of several nodes, if the engine can
be told so (`Engine.nodes_conflict`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from autoauto.engines.engine import Engine, NodePart
from autoauto.engines.rules import GroupSplit, divisors
from autoauto.memo import Memo
from autoauto.records.hardware import Cluster
from autoauto.targets.gpu.nodes import NodeGpus, groups_of

Free = tuple[int, ...]
"""The free groups of every node; groups of a node are taken from the first to the last."""
_MAX_KNOWN = 65_536


class Nodes:
    """The nodes of a cluster, for replicas of an engine; all groups are free in `full`."""

    def __init__(self, groups: Sequence[NodeGpus], engine: Engine, split: GroupSplit) -> None:
        self._engine, self._split, self._n_each = engine, split, split.n_gpus
        self._span = groups[0].n_machines
        counts = Counter(group.machine for group in groups)
        self.full: Free = tuple(counts.values())
        self._kinds = list({group.machine: group.kind for group in groups}.values())
        self._starts = [0, *accumulate(self.full)]
        self._node_of = [node for node, n_groups in enumerate(self.full) for _ in range(n_groups)]
        self._splits: Memo[int, list[int]] = Memo(_MAX_KNOWN)
        self._known: Memo[tuple[Free, tuple[str, ...]], tuple[int, ...] | None] = Memo(_MAX_KNOWN)
        # By kinds of stages: the groups of like replicas, as many as were asked for, and what is free after them.
        self._alike: dict[tuple[str, ...], tuple[list[tuple[int, ...]], list[int]]] = {}

    def n_able(self, kind: str, n_stages: int) -> int:
        """The nodes of a kind that hold so many stages."""
        return sum(name == kind and count >= n_stages for name, count in zip(self._kinds, self.full, strict=True))

    def splits(self, n_stages: int) -> list[int]:
        """The numbers of nodes among which the engine divides a pipeline evenly."""
        return self._splits.of(n_stages, lambda: self._even_splits(n_stages))

    def _even_splits(self, n_stages: int) -> list[int]:
        able: list[int] = []
        for n_nodes in divisors(n_stages):
            # A group that spans nodes has an equal part on each of them.
            n_gpus = n_stages // n_nodes * self._n_each // self._span
            parts = [NodePart(node, n_gpus) for node in range(n_nodes * self._span)]
            if not self._engine.nodes_conflict(parts, self._split):
                able.append(n_nodes)
        return able

    def groups_for(self, free: Free, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        """The groups of a replica, as numbers of the cluster, on as few nodes as hold it; None if there is no room.

        `kinds` has the name of the GPUs of every stage, `free` the groups that it may take.
        """
        return self._known.of((free, kinds), lambda: self._placed(free, kinds))

    def _placed(self, free: Sequence[int], kinds: tuple[str, ...], first: int = 0) -> tuple[int, ...] | None:
        """`groups_for`, where all nodes before the node `first` are full."""
        for n_nodes in self.splits(len(kinds)):
            size = len(kinds) // n_nodes
            segments = kinds[::size]
            if tuple(name for name in segments for _ in range(size)) != kinds:
                continue  # a node has GPUs of one kind
            nodes = self._chosen(free, segments, size, first)
            if nodes is not None:
                groups: list[int] = []
                for node in nodes:
                    start = self._starts[node + 1] - free[node]  # those before it are taken
                    groups += range(start, start + size)
                return tuple(groups)
        return None

    def _chosen(self, free: Sequence[int], segments: Sequence[str], size: int, first: int) -> list[int] | None:
        """A node of every segment; of several the fullest, so that others keep room for a whole replica."""
        nodes = range(first, len(free))
        if len(segments) == 1:
            for node in nodes:
                if free[node] >= size and self._kinds[node] == segments[0]:
                    return [node]
            return None
        chosen: dict[str, list[int]] = {}
        for kind, n in Counter(segments).items():
            able = [node for node in nodes if free[node] >= size and self._kinds[node] == kind]
            if len(able) < n:
                return None
            able.sort(key=lambda node: free[node])
            chosen[kind] = sorted(able[:n], reverse=True)
        return [chosen[kind].pop() for kind in segments]  # nodes of a kind in their order

    def without(self, free: Free, groups: Sequence[int]) -> Free:
        """The free groups of every node after a replica has taken the groups that `groups_for` chose."""
        left = list(free)
        for group in groups:
            left[self._node_of[group]] -= 1
        return tuple(left)

    def all_placed(self, kinds: tuple[str, ...], replicas: int) -> list[tuple[int, ...]] | None:
        """The groups of like replicas, one after the other; None if there is no room for all."""
        # Fewer replicas have the groups of the first ones of more, so one list serves all numbers of replicas.
        if kinds not in self._alike:
            self._alike[kinds] = [], list(self.full)
        every, free = self._alike[kinds]
        first = 0
        while len(every) < replicas:
            while first < len(free) and not free[first]:
                first += 1  # so that full nodes are passed once, not for every replica
            groups = self._placed(free, kinds, first)
            if groups is None:
                return None
            every.append(groups)
            for group in groups:
                free[self._node_of[group]] -= 1
        return every[:replicas]

    def why_no_room(self, n_stages: int, replicas: int) -> str:
        """A line for pipelines that do not stand on the nodes."""
        sizes = " + ".join(str(n * self._n_each) for n in self.full)
        stages = f"{n_stages} stage{'s' * (n_stages > 1)} of {self._n_each} GPU{'s' * (self._n_each > 1)}"
        return (
            f"{self._engine.nodes_rule(self._split)}, got {replicas} x {stages} on nodes with groups for {sizes} GPUs; "
            "try another n_ipu, or fewer replicas"
        )


def free_gpus(cluster: Cluster, taken: Iterable[NodeGpus]) -> dict[int, int]:
    """How many GPUs of every node of a cluster of single ones are in no group that is taken."""
    free = Counter(group.machine for group in groups_of(cluster, 1))
    for group in taken:
        for part in group.by_machine:
            free[part.machine] -= len(part.gpus)
    return dict(free)


def n_fitting(free: Mapping[int, int], n_each: int, node_size: int) -> int:
    """How many groups of `n_each` GPUs have room, inside nodes, or larger ones on whole nodes of a size.

    >>> n_fitting({0: 8, 1: 3}, 2, 8), n_fitting({0: 8, 1: 8, 2: 7}, 16, 8)
    (5, 1)
    """
    if n_each <= node_size:
        return sum(n // n_each for n in free.values())
    return sum(n == node_size for n in free.values()) // (n_each // node_size)
