"""Linear orders of random graphs."""

from __future__ import annotations

from random import Random

import pytest

from studies.published_graphs.graph import alive_bytes, linear_orders, merge_cycles, order_by


def random_graph(seed: int) -> tuple[int, set[tuple[int, int]]]:
    random = Random(seed)
    n = random.randint(1, 12)
    nodes = random.sample(range(n), n)
    return n, {(nodes[a], nodes[b]) for a in range(n) for b in range(a + 1, n) if random.random() < 0.3}


@pytest.mark.parametrize("seed", range(30))
def test_every_edge_leads_to_a_later_node(seed: int) -> None:
    n, edges = random_graph(seed)
    orders = linear_orders(n, edges)
    assert len({*map(tuple, orders)}) == len(orders) >= 1
    for order in orders:
        assert sorted(order) == list(range(n))
        assert all(order.index(a) < order.index(b) for a, b in edges)


def test_the_lowest_priority_that_is_ready_comes_first() -> None:
    assert order_by(4, [(0, 3)], lambda node, _: (-node, 0)) == [2, 1, 0, 3]
    assert order_by(4, [(0, 3), (1, 2)], lambda node, ready: (-ready, node)) == [0, 3, 1, 2]


@pytest.mark.parametrize("seed", range(30))
def test_only_nodes_on_a_common_cycle_are_merged(seed: int) -> None:
    n, edges = random_graph(seed)
    assert sorted(merge_cycles(n, edges)) == list(range(n))
    back = {(b, a) for a, b in list(edges)[:1]}
    groups = merge_cycles(n, edges | back)
    for a, b in back:
        assert groups[a] == groups[b]
    assert linear_orders(max(groups) + 1, {(groups[a], groups[b]) for a, b in edges if groups[a] != groups[b]})


def test_an_output_that_nothing_reads_is_not_alive() -> None:
    assert list(alive_bytes([1, 0, 2], [(1, 2)], [8.0, 4.0, 2.0])) == [0, 4, 4, 0]
