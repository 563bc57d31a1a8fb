"""Where replicas of an engine stand in the nodes of a cluster: `Nodes`.

A replica lies inside a node where it can. Otherwise it has as many stages on each of several nodes, if the engine can
be told so (`Engine.nodes_conflict`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from autoauto.engines.engine import Engine, NodePart
from autoauto.engines.rules import GroupSplit, divisors
from autoauto.memo import Memo
from autoauto.records.hardware import Cluster
from autoauto.records.units import IntArray
from autoauto.targets.gpu.nodes import NodeGpus, groups_of

Free = tuple[int, ...]
"""The free groups of every node; groups of a node are taken from the first to the last."""
_MAX_KNOWN = 65_536


class _Alike(NamedTuple):
    """The groups of like replicas, as many as were asked for, and the free groups of every node after them."""

    groups: list[tuple[int, ...]]
    free: IntArray


class Nodes:
    """The nodes of a cluster, for replicas of an engine.

    Attributes:
        full: all groups free.
    """

    def __init__(self, groups: Sequence[NodeGpus], engine: Engine, split: GroupSplit) -> None:
        """Take the groups of a cluster, one or more, in its order, and how each splits the model."""
        self._engine, self._split, self._n_each = engine, split, split.n_gpus
        self._span = groups[0].n_machines
        counts = Counter(group.machine for group in groups)
        self.full: Free = tuple(counts.values())
        self._kinds = np.array(list({group.machine: group.kind for group in groups}.values()))
        self._starts = [0, *accumulate(self.full)]
        self._node_of = [node for node, n_groups in enumerate(self.full) for _ in range(n_groups)]
        self._splits: Memo[int, list[int]] = Memo(_MAX_KNOWN)
        self._known: Memo[tuple[Free, tuple[str, ...]], tuple[int, ...] | None] = Memo(_MAX_KNOWN)
        self._alike: dict[tuple[str, ...], _Alike] = {}

    def n_able(self, kind: str, n_stages: int) -> int:
        """The nodes of a kind that hold so many stages."""
        return int(np.count_nonzero((self._kinds == kind) & (np.array(self.full) >= n_stages)))

    def splits(self, n_stages: int) -> list[int]:
        """The numbers of nodes among which the engine divides a pipeline evenly."""
        return self._splits.of(n_stages, lambda: self._even_splits(n_stages))

    def _even_splits(self, n_stages: int) -> list[int]:
        return [
            n_nodes
            for n_nodes in divisors(n_stages)
            if not self._engine.nodes_conflict(
                [
                    NodePart(node, n_stages // n_nodes * self._n_each // self._span)
                    for node in range(n_nodes * self._span)
                ],
                self._split,
            )
        ]

    def groups_for(self, free: Free, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        """The groups of a replica, as numbers of the cluster, on as few nodes as hold it; None if there is no room.

        Args:
            free: the groups that it may take.
            kinds: the name of the GPUs of every stage.
        """
        return self._known.of((free, kinds), lambda: self._placed(np.array(free), kinds))

    def _placed(self, free: IntArray, kinds: tuple[str, ...]) -> tuple[int, ...] | None:
        for n_nodes in self.splits(len(kinds)):
            size = len(kinds) // n_nodes
            segments = kinds[::size]
            if tuple(name for name in segments for _ in range(size)) != kinds:
                continue  # a node has GPUs of one kind
            if (nodes := self._chosen(free, segments, size)) is not None:
                firsts = [self._starts[node + 1] - int(free[node]) for node in nodes]
                return tuple(group for first in firsts for group in range(first, first + size))
        return None

    def _chosen(self, free: IntArray, segments: Sequence[str], size: int) -> list[int] | None:
        """A node of every segment; of several the fullest, so that others keep room for a whole replica."""
        chosen: dict[str, list[int]] = {}
        for kind, n in Counter(segments).items():
            able = np.flatnonzero((self._kinds == kind) & (free >= size))
            if len(able) < n:
                return None
            if len(segments) > 1:
                able = able[np.argsort(free[able], kind="stable")]
            chosen[kind] = sorted(able[:n].tolist(), reverse=True)
        return [chosen[kind].pop() for kind in segments]

    def without(self, free: Free, groups: Sequence[int]) -> Free:
        """The free groups of every node after a replica has taken the groups that `groups_for` chose."""
        left = list(free)
        for group in groups:
            left[self._node_of[group]] -= 1
        return tuple(left)

    def all_placed(self, kinds: tuple[str, ...], replicas: int) -> list[tuple[int, ...]] | None:
        """The groups of like replicas, one after the other; None if there is no room for all."""
        # Fewer replicas have the groups of the first ones of more.
        if kinds not in self._alike:
            self._alike[kinds] = _Alike([], np.array(self.full))
        alike = self._alike[kinds]
        while len(alike.groups) < replicas:
            groups = self._placed(alike.free, kinds)
            if groups is None:
                return None
            alike.groups.append(groups)
            for group in groups:
                alike.free[self._node_of[group]] -= 1
        return alike.groups[:replicas]

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
