"""A published graph of layers with times, `ImportedGraph`, and the same with its layers in order, `ImportedProfile`.

A graph has many such orders: `linear_orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.cost import TensorUse
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.hardware import Cluster, Period

Edges = Iterable[tuple[int, int]]
Priority = Callable[[int, int], tuple[float, float]]


class ImportedKind(NamedTuple):
    """One kind of device: the layers on it, and all devices of the kind."""

    profile: ModelProfile
    cluster: Cluster


@dataclass(frozen=True, slots=True)
class ImportedProfile:
    """Layers in one order, and the devices to divide them among.

    Attributes:
        kinds: the kinds of devices; each has a profile of the same layers.
        tensors: what layers exchange where any device reaches any other; None where neighbours pass all on.
        training: whether neighbours exchange gradients, too.
        period: what the devices do at the same time, by the program that the profile is of.
        unit: of the times in the file.
        cycles_per_unit: cycles of the reference clock in a unit of time.
    """

    kinds: tuple[ImportedKind, ...]
    tensors: tuple[TensorUse, ...] | None
    training: bool
    period: Period
    unit: str
    cycles_per_unit: float

    @property
    def shown_clock_hz(self) -> float | None:
        """The clock of the cycles where the file has seconds or milliseconds; None where its unit is not known."""
        return self.kinds[0].cluster.clock_hz if self.unit else None


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """The layers of a file, which may run in any order that its edges allow.

    Attributes:
        n_layers: how many layers there are.
        edges: pairs of layers, of which the first comes before the second; without cycles.
        in_order: the profile with its layers in an order.
        notes: what was assumed about the file, one sentence each.
    """

    n_layers: int
    edges: frozenset[tuple[int, int]]
    in_order: Callable[[Sequence[int]], ImportedProfile]
    notes: tuple[str, ...] = ()


_PRIORITIES: tuple[Priority, ...] = (
    lambda node, _: (0, node),
    lambda node, _: (0, -node),
    lambda node, ready: (ready, node),
    lambda node, ready: (-ready, -node),
)
"""Which of the nodes whose inputs are done comes next, by its index and when it became ready: the first by index, the
last, the one that waits longest, the one that waits shortest."""


def merge_cycles(n_nodes: int, edges: Edges) -> list[int]:
    """The group of every node, numbered from 0: nodes on a common cycle are one group, since no order puts them apart.

    >>> merge_cycles(4, [(0, 1), (1, 2), (2, 1), (2, 3)])
    [0, 1, 1, 2]
    """
    # Imported when needed: SciPy takes longer to load than most profiles take to make.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.array([*edges], dtype=np.int64).reshape(-1, 2)
    matrix = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_nodes, n_nodes))
    _, labels = connected_components(matrix, directed=True, connection="strong")
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels.tolist()]


def linear_orders(n_nodes: int, edges: Edges) -> list[list[int]]:
    """Different orders of the nodes of a graph without cycles, in which every edge leads to a later node.

    No single order has the best division into ranges, so several are made: by a few priorities, each from the first
    node to the last and from the last to the first.

    >>> linear_orders(3, [(0, 2), (1, 2)])
    [[0, 1, 2], [1, 0, 2]]
    """
    pairs = set(edges)
    reverse = [(after, before) for before, after in pairs]
    orders = [order_by(n_nodes, pairs, priority) for priority in _PRIORITIES]
    orders += [order_by(n_nodes, reverse, priority)[::-1] for priority in _PRIORITIES]
    return [list(order) for order in dict.fromkeys(map(tuple, orders))]


def order_by(n_nodes: int, edges: Edges, priority: Priority) -> list[int]:
    """The order that begins with the lowest priority, and goes on with the lowest of those whose inputs are done.

    `priority` is of a node, and of how many nodes were done when the last of its inputs was.
    """
    after: list[list[int]] = [[] for _ in range(n_nodes)]
    n_inputs = [0] * n_nodes
    for node, reader in edges:
        after[node].append(reader)
        n_inputs[reader] += 1
    ready = [(priority(node, 0), node) for node in range(n_nodes) if not n_inputs[node]]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, node = heappop(ready)
        order.append(node)
        for reader in sorted(after[node]):
            n_inputs[reader] -= 1
            if not n_inputs[reader]:
                heappush(ready, (priority(reader, len(order)), reader))
    assert len(order) == n_nodes
    return order


def alive_bytes(order: Sequence[int], edges: Edges, n_bytes: Sequence[float]) -> Iterator[int]:
    """Bytes of the outputs that are alive at every boundary of an order, before the first node up to after the last.

    >>> list(alive_bytes([0, 1, 2], [(0, 1), (0, 2), (1, 2)], [5, 7, 1]))
    [0, 5, 12, 0]
    """
    position = {node: index for index, node in enumerate(order)}
    last_use = {node: position[node] for node in order}
    for node, reader in edges:
        last_use[node] = max(last_use[node], position[reader])
    for boundary in range(len(order) + 1):
        yield round(sum(n_bytes[node] for node in order[:boundary] if last_use[node] >= boundary))
