"""Clusters, links and streaming memory."""

from dataclasses import replace
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Device, DeviceKind, Link, LinkedMachine, Machine, StreamingMemory

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


PRICED = Device("p", 1e9, 1000, 1, 500, price_per_hour=2.0, power_limit_w=300.0)
OTHER = Device("q", 1e9, 400, 1, 200, price_per_hour=0.5, power_limit_w=100.0)
LINE = Cluster("line", "gpu", (PRICED, PRICED), (HOST_IN, A), (A, HOST_OUT))
UNLIKE = Cluster.of_kinds("unlike", "gpu", [DeviceKind(PRICED, 2, A, HOST_IN), DeviceKind(OTHER, 3, B, HOST_OUT)])


def test_headroom_is_a_share_of_the_memory_of_every_device() -> None:
    for cluster, memory in ((LINE, [750, 750]), (UNLIKE, [750, 750, 300, 300, 300])):
        changed = cluster.with_headroom(0.25)
        assert [device.memory_bytes for device in changed.devices] == memory
        assert (changed.receive_links, changed.send_links) == (cluster.receive_links, cluster.send_links)
        assert cluster.with_headroom(0.0) is cluster
    assert [kind.device.memory_bytes for kind in UNLIKE.with_headroom(0.25).kinds] == [750, 300]


def test_synthetic_data_of_kinds_costs_nothing_at_either_end() -> None:
    free = UNLIKE.with_synthetic_data()
    assert free.receive_links[0].cycles(10**12, 1e9) == free.send_links[-1].cycles(10**12, 1e9) == 0
    assert free.receive_links[1:] == (A, B, B, B)
    assert free.send_links[:-1] == (A, A, B, B)


def test_prices_add_up_over_the_devices_that_are_used() -> None:
    assert (LINE.of_each("price_per_hour"), UNLIKE.of_each("price_per_hour")) == (2.0, None)
    assert LINE.total("price_per_hour", {"": 2}) == 4.0
    assert UNLIKE.total("price_per_hour", {"p": 1, "q": 3}) == 2.0 + 1.5
    assert UNLIKE.total("price_per_hour", {"p": 1, "other": 3}) is None
    assert UNLIKE.total("clock_hz", {"p": 1, "q": 1}) == 2e9
    assert CLUSTER.total("price_per_hour", {"": 3}) is None


def test_a_quantity_that_a_device_lacks_or_a_line_has_twice_is_refused() -> None:
    LINE.check_quantity("price_per_hour", "a price")
    UNLIKE.check_quantity("price_per_hour", "a price")
    mixed = replace(LINE, devices=(PRICED, replace(PRICED, price_per_hour=3.0)))
    free = replace(LINE, devices=(PRICED, replace(PRICED, name="f", price_per_hour=None, power_limit_w=None)))
    for cluster, quantity, message in (
        (mixed, "price_per_hour", "devices of one price_per_hour, or .* line has a line of unlike ones"),
        (free, "price_per_hour", r"line has none of f; write it into a cluster file \(of GPUs also --price\)"),
        (free, "power_limit_w", "line has none of f; write it into a cluster file, or leave it out"),
    ):
        with pytest.raises(BadInput, match=message):
            cluster.check_quantity(quantity, "it")


def test_a_group_has_the_sums_of_its_devices_unless_one_is_not_known() -> None:
    (group,) = LINE.grouped(2).devices
    assert (group.memory_bytes, group.tile_memory_bytes) == (2000, 1000)
    assert (group.price_per_hour, group.power_limit_w) == (4.0, 600.0)
    half = replace(LINE, devices=(PRICED, replace(PRICED, price_per_hour=None)))
    assert (half.grouped(2).devices[0].price_per_hour, half.grouped(2).devices[0].power_limit_w) == (None, 600.0)


def test_groups_of_kinds_lie_in_a_machine_of_one_kind() -> None:
    """Five devices of machines of two are two pairs; of three without machines one pair."""
    linked = LinkedMachine(Machine(2, 1e9), B)
    kinds = [DeviceKind(PRICED, 5, A, HOST_IN, linked=linked), DeviceKind(OTHER, 3, B, HOST_OUT)]
    pairs = Cluster.of_kinds("c", "gpu", kinds).grouped(2)
    assert [(kind.device.memory_bytes, kind.n_devices, kind.linked) for kind in pairs.kinds] == [
        (2000, 2, None),
        (800, 1, None),
    ]
    assert len(pairs) == 3
    with pytest.raises(Infeasible, match="a device of 4 must be of one kind, c has fewer of each"):
        Cluster.of_kinds("c", "gpu", kinds).grouped(4)


def test_machines_of_a_kind_alone_are_linked_inside() -> None:
    """Five devices in machines of two: pairs have the link of a machine, others that of the kind."""
    linked = LinkedMachine(Machine(2, 1e9), B)
    kinds = [DeviceKind(PRICED, 5, A, HOST_IN, linked=linked), DeviceKind(OTHER, 1, HOST_OUT, HOST_OUT)]
    first, second = Cluster.of_kinds("c", "gpu", kinds).by_kind
    assert first.receive_links == (HOST_IN, B, A, B, A)
    assert first.send_links == (B, A, B, A, HOST_IN)
    assert (first.machine, second.machine, first.kinds) == (linked.machine, None, ())
    assert (second.receive_links, second.send_links, second.devices) == ((HOST_OUT,), (HOST_OUT,), (OTHER,))
