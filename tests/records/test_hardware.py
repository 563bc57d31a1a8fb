"""Clusters, links and streaming memory."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link, Machine, StreamingMemory

DEVICES = tuple(Device(f"d{i}", 1e9, 100, 1, 100) for i in range(3))
HOST_IN, HOST_OUT, A, B = (Link(float(i), i) for i in (1, 2, 3, 4))
CLUSTER = Cluster("three", "ipu", DEVICES, (HOST_IN, A, B), (A, B, HOST_OUT))


def test_a_shorter_pipeline_still_ends_at_the_host() -> None:
    assert CLUSTER.first(3) == CLUSTER
    two = CLUSTER.first(2)
    assert (two.devices, two.receive_links, two.send_links) == (DEVICES[:2], (HOST_IN, A), (A, HOST_OUT))
    single = CLUSTER.first(1)
    assert (single.receive_links, single.send_links) == ((HOST_IN,), (HOST_OUT,))


def test_synthetic_data_costs_nothing_at_either_end() -> None:
    free = CLUSTER.with_synthetic_data()
    assert free.receive_links[0].cycles(10**12, 1e9) == free.send_links[-1].cycles(10**12, 1e9) == 0
    assert (free.receive_links[1:], free.send_links[:-1]) == (CLUSTER.receive_links[1:], CLUSTER.send_links[:-1])


def test_overlapped_host_links_take_cycles_of_the_first_device() -> None:
    assert CLUSTER.host_cycles(10, 10) == 0
    both = replace(CLUSTER, overlapped_host_links=(Link(1e9, 5), Link(2e9, 7)))
    assert both.host_cycles(100, 100) == 100 + 5 + 50 + 7
    assert both.first(1).host_cycles(100, 100) == 162


def test_a_link_takes_its_idle_cycles_and_its_transfer() -> None:
    assert Link(2e9, 7).cycles(100, 1e9) == 57


def test_transfers_are_rounded_down_once() -> None:
    cycles = Link(7 * 1024**3, 50_000).cycles(2_097_152, 1.85e9)
    assert cycles == int(50_000 + 2_097_152 / (7 * 1024**3 / 1.85e9))


@given(st.lists(st.integers(0, 10**11), min_size=1), st.floats(1e6, 1e12), st.integers(0, 10**6))
def test_an_array_takes_what_its_numbers_take_and_more_bytes_never_less(
    sizes: list[int], bytes_per_s: float, idle_cycles: int
) -> None:
    link, sizes = Link(bytes_per_s, idle_cycles), sorted(sizes)
    cycles = link.cycles(np.array(sizes), 1.85e9).tolist()
    assert cycles == [link.cycles(n_bytes, 1.85e9) for n_bytes in sizes] == sorted(cycles)
    loads = link.load_cycles(np.array([0, *sizes]), 1.85e9).tolist()
    assert loads == [link.load_cycles(n_bytes, 1.85e9) for n_bytes in (0, *sizes)]
    assert loads == [0, *(link.cycles(n_bytes, 1.85e9) if n_bytes else 0 for n_bytes in sizes)]


@pytest.mark.parametrize("rate", [1e-9, 1e-320])
def test_a_transfer_of_more_cycles_than_are_exact_is_refused(rate: float) -> None:
    with pytest.raises(BadInput, match=r"a transfer must take at most 2\*\*53 cycles, got"):
        Link(rate, 0).cycles(10**9, 1e9)
    with pytest.raises(BadInput, match=r"a transfer must take at most 2\*\*53 cycles, got"):
        Link(rate, 0).cycles(np.array([0, 10**9]), 1e9)
    assert Link(inf, 5).cycles(10**9, 1e9) == 5


def test_streaming_memory_stays_with_every_device_and_takes_time_like_a_link() -> None:
    memory = StreamingMemory(1e9, 10, 10**6)
    assert replace(CLUSTER, streaming_memory=memory).first(2).streaming_memory == memory
    assert memory.link.cycles(500, 1e9) == 510
    assert CLUSTER.streaming_memory is None


def test_neighbours_are_one_device_with_the_memory_of_all() -> None:
    links = tuple(Link(1e9 * (index + 1), index) for index in range(5))
    cluster = Cluster("five", "host", (Device("core", 1e9, 100, 1, 100),) * 5, links, links)
    pairs = cluster.grouped(2)
    assert cluster.grouped(1) is cluster
    assert [device.memory_bytes for device in pairs.devices] == [200, 200]
    assert (pairs.receive_links, pairs.send_links) == ((links[0], links[2]), (links[1], links[4]))


def test_only_neighbours_of_one_machine_are_one_device() -> None:
    """0 1 2 | 3 4 5 | 6: pairs (0, 1) and (3, 4), between which is the link from 2 to 3."""
    links = tuple(Link(1e9 * (index + 1), index) for index in range(7))
    cluster = Cluster("seven", "host", (Device("core", 1e9, 100, 1, 100),) * 7, links, links, machine=Machine(3, 1e9))
    pairs = cluster.grouped(2)
    assert (pairs.receive_links, pairs.send_links) == ((links[0], links[3]), (links[2], links[6]))
    assert pairs.machine == Machine(1, 1e9)


KINDS = Cluster.of_kinds(
    "mixed",
    "ipu",
    (DeviceKind(DEVICES[0], 2, A, HOST_IN), DeviceKind(replace(DEVICES[1], clock_hz=2e9), 1, B, HOST_OUT)),
)


def test_devices_of_several_kinds_are_listed_kind_by_kind_and_alone() -> None:
    assert (KINDS.receive_links, KINDS.send_links) == ((HOST_IN, A, B), (A, A, HOST_OUT))
    assert KINDS.speeds == (Fraction(1), Fraction(1), Fraction(2))
    assert CLUSTER.by_kind == ()
    first, second = KINDS.by_kind
    assert (first.devices, first.receive_links, first.send_links) == (DEVICES[:1] * 2, (HOST_IN, A), (A, HOST_IN))
    assert (second.devices, second.receive_links, second.send_links) == (KINDS.devices[2:], (HOST_OUT,), (HOST_OUT,))
    assert not first.kinds


def test_what_changes_all_devices_changes_all_kinds() -> None:
    half = KINDS.with_headroom(0.5)
    assert [device.memory_bytes for device in half.devices] == [50, 50, 50]
    assert [kind.device.memory_bytes for kind in half.kinds] == [50, 50]
    assert KINDS.with_headroom(0.0) is KINDS
    free = KINDS.with_synthetic_data()
    assert all(kind.host_link.cycles(10**12, 1e9) == 0 for kind in free.kinds)
    assert free.receive_links[0].cycles(10**12, 1e9) == free.send_links[-1].cycles(10**12, 1e9) == 0
    assert free.receive_links[1:] == KINDS.receive_links[1:]


def test_devices_of_several_kinds_are_joined_kind_by_kind() -> None:
    assert KINDS.grouped(1) is KINDS
    counts = [kind.n_devices for kind in KINDS.kinds]
    for n_each in range(2, max(counts) + 1):
        grouped = KINDS.grouped(n_each)
        assert [kind.n_devices for kind in grouped.kinds] == [n // n_each for n in counts]
        for kind, alone in zip(grouped.kinds, KINDS.kinds, strict=True):
            assert kind.device == replace(
                alone.device,
                memory_bytes=n_each * alone.device.memory_bytes,
                tile_memory_bytes=n_each * alone.device.tile_memory_bytes,
            )
        assert len(grouped) == sum(n // n_each for n in counts)
    with pytest.raises(Infeasible, match="a device of 99 must be of one kind, mixed has fewer of each; try fewer"):
        KINDS.grouped(99)
