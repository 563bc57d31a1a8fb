"""Where replicas of an engine stand in the nodes of a cluster: `Nodes`.

A replica lies inside a node where it can. Otherwise it has as many stages on each of several nodes, if the engine can
be told so (`Engine.nodes_conflict`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from autoauto.engines.engine import Engine, NodePart
from autoauto.engines.rules import divisors
from autoauto.memo import Memo
from autoauto.targets.gpu.nodes import NodeGpus

Free = tuple[int, ...]
"""The free groups of every node; groups of a node are taken from the first to the last."""
_MAX_KNOWN = 65_536


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
        self._known: Memo[tuple[Free, tuple[str, ...]], tuple[int, ...] | None] = Memo(_MAX_KNOWN)

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

    def groups_for(self, free: Free, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        """The groups of a replica, as numbers of the cluster, on as few nodes as hold it; None if there is no room.

        Args:
            free: the groups that it may take.
            kinds: the name of the GPUs of every stage.
        """
        return self._known.of((free, kinds), lambda: self._placed(free, kinds))

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
        """What is free once groups that `groups_for` chose are taken."""
        taken = [
            sum(start <= group < start + n for group in groups)
            for start, n in zip(self._starts, self.full, strict=True)
        ]
        return tuple(n - m for n, m in zip(free, taken, strict=True))

    def all_placed(self, kinds: tuple[str, ...], replicas: int) -> list[tuple[int, ...]] | None:
        """The groups of like replicas, one after the other; None if there is no room for all."""
        free, every = self.full, []
        for _ in range(replicas):
            groups = self.groups_for(free, kinds)
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
