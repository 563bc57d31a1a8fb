"""How long replicas take to sum their gradients."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.plan.replicas import all_reduce_cycles
from autoauto.records.hardware import Cluster, Device, Link, Topology

DEVICE = Device("device", 1e9, 100, 1, 100)


def line(*rates: float, idle_cycles: int = 0) -> Cluster:
    """Devices whose cables move so many bytes a cycle; the host is slow, and has no part in a ring."""
    host, cables = Link(1.0, 10**9), [Link(rate * 1e9, idle_cycles) for rate in rates]
    return Cluster("line", "ipu", (DEVICE,) * (len(rates) + 1), (host, *cables), (*cables, host))


def test_one_ring_moves_two_times_all_bytes_but_one_share() -> None:
    # 4 devices, 3 shares of 4, twice: 2 * 3/4 * 4,000 bytes at a byte a cycle
    assert all_reduce_cycles(line(1, 1, 1), [(0, 1, 2, 3)], [4000]) == (6000,)
    assert all_reduce_cycles(line(1, 1, 1, idle_cycles=7), [(0, 1, 2, 3)], [4000]) == (6000 + 6 * 7,)


def test_the_slowest_cable_of_a_ring_counts() -> None:
    between_machines = line(2, 1, 2)
    assert all_reduce_cycles(between_machines, [(0, 3)], [1000]) == (1000,)
    assert all_reduce_cycles(between_machines, [(0, 1)], [1000]) == (500,)


def test_rings_share_the_cables_that_both_use() -> None:
    # stage 0   o-------o          each moves all its bytes over the cable in the middle,
    # stage 1       o-------o      where the shorter ring is done when both have moved 300
    assert all_reduce_cycles(line(1, 1, 1), [(0, 2), (1, 3)], [300, 1000]) == (600, 1300)


def test_no_rings_share_a_link_where_any_device_reaches_any_other() -> None:
    cluster = replace(line(1, 1, 1), topology=Topology.ALL_TO_ALL)
    assert all_reduce_cycles(cluster, [(0, 2), (1, 3)], [300, 1000]) == (300, 1000)


def test_every_message_waits_in_all_rounds() -> None:
    # 4 devices: 6 rounds of the ring wait for its cables, and take 10 cycles more
    cluster = line(1, 1, 1, idle_cycles=7)
    assert all_reduce_cycles(cluster, [(0, 1, 2, 3)], [4000], [5], 10) == (6000 + 5 * 6 * (7 + 10),)
    assert all_reduce_cycles(cluster, [(0, 1, 2, 3)], [0], [0], 10) == (0,)


def test_one_replica_sums_nothing() -> None:
    assert all_reduce_cycles(line(1), [(0,), (1,)], [10, 20]) == (0, 0)


@given(st.integers(2, 5), st.lists(st.integers(0, 10**6), min_size=1, max_size=4), st.data())
def test_all_rings_are_done_when_the_busiest_cable_has_moved_everything(
    replicas: int, n_bytes: Sequence[int], data: st.DataObject
) -> None:
    n_stages = len(n_bytes)
    rates = data.draw(st.lists(st.sampled_from([1, 2, 5]), min_size=replicas * n_stages, max_size=replicas * n_stages))
    rings = [range(stage, replicas * n_stages, n_stages) for stage in range(n_stages)]
    on_cables = [
        sum(moved for ring, moved in zip(rings, n_bytes, strict=True) if ring[0] < end <= ring[-1]) / rate
        for end, rate in enumerate(rates, 1)
    ]
    longest = max(all_reduce_cycles(line(*rates), rings, n_bytes))
    assert longest == pytest.approx(2 * (replicas - 1) / replicas * max(on_cables), abs=1.01)
