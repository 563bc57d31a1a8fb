"""Which devices replicas run on, and what their machines move for them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.plan.replicas import placements, shared_cycles
from autoauto.records.hardware import Cluster, Device, Link, Machine, MachineDevice

DEVICE, LINK = Device("device", 1e9, 100, 1, 100), Link(1e9, 0)


def cluster(n_devices: int, machine_size: int | None) -> Cluster:
    """Equal devices; a machine's connection to the host moves a byte a cycle each way."""
    links = (LINK,) * n_devices
    machine = machine_size and Machine(machine_size, 1e9)
    return Cluster("test", "ipu", (DEVICE,) * n_devices, links, links, machine=machine or None)


@pytest.mark.parametrize(
    ("n_devices", "replicas", "expected"),
    [
        (1, 1, [(0,)]),
        (1, 4, [(0, 4, 8, 12), (0, 1, 2, 3)]),  # one a machine
        (2, 5, [(0, 2, 4, 8, 12), (0, 2, 4, 6, 8)]),
        (3, 4, [(0, 4, 8, 12), (0, 3, 6, 9)]),
        (3, 5, [(0, 3, 6, 9, 12)]),  # too many for one a machine
        (4, 4, [(0, 4, 8, 12)]),
        (5, 2, [(0, 8), (0, 5)]),  # within two machines each
        (8, 2, [(0, 8)]),
        (16, 1, [(0,)]),
    ],
)
def test_pipelines_stay_inside_machines_or_are_packed(
    n_devices: int, replicas: int, expected: list[tuple[int, ...]]
) -> None:
    assert placements(cluster(16, 4), n_devices, replicas) == expected


@given(st.integers(1, 20), st.integers(1, 8), st.integers(1, 20), st.data())
def test_no_device_has_two_replicas(n_cluster: int, machine_size: int, n_devices: int, data: st.DataObject) -> None:
    n_devices = min(n_devices, n_cluster)
    replicas = data.draw(st.integers(1, n_cluster // n_devices))
    for starts in placements(cluster(n_cluster, machine_size), n_devices, replicas):
        assert len(starts) == replicas
        assert all(second - first >= n_devices for first, second in pairwise(starts))
        assert starts[0] >= 0
        assert starts[-1] + n_devices <= n_cluster


def test_the_last_machine_may_be_smaller() -> None:
    assert placements(cluster(6, 4), 2, 3) == [(0, 2, 4)]
    assert placements(cluster(6, 4), 3, 2) == [(0, 3)]
    assert placements(cluster(7, 4), 3, 2) == [(0, 4), (0, 3)]


def test_without_machines_replicas_are_packed() -> None:
    assert placements(cluster(6, None), 2, 2) == [(0, 2)]


def test_a_device_has_an_index_in_its_machine() -> None:
    sixteen = cluster(16, 4)
    assert [sixteen.machine_device(device) for device in (0, 3, 4, 15)] == [(0, 0), (0, 3), (1, 0), (3, 3)]
    assert [sixteen.index(sixteen.machine_device(device)) for device in range(16)] == list(range(16))
    assert cluster(16, None).machine_device(15) == MachineDevice(0, 15)


@pytest.mark.parametrize(
    ("n_devices", "starts", "cycles"),
    [
        (1, (0,), 100),  # the input is larger than the output
        (1, (0, 1, 2, 3), 400),  # all enter one machine
        (1, (0, 4), 100),
        (1, tuple(range(8)), 400),
        (2, (0, 2, 4), 200),  # two enter the first machine, one the second
        (4, (0, 4), 100),
        (8, (0,), 100),
        (3, (0, 3), 200),  # devices 0 and 3 are in the first machine; the second replica leaves from the second
        (3, (0, 4), 100),
    ],
)
def test_a_machine_moves_the_micro_batches_of_all_its_replicas(
    n_devices: int, starts: tuple[int, ...], cycles: int
) -> None:
    assert shared_cycles(cluster(8, 4), n_devices, starts, 100, 30) == cycles


def test_both_directions_of_a_machine_transfer_at_once() -> None:
    eight, four = cluster(8, 4), (0, 1, 2, 3)
    assert shared_cycles(eight, 1, four, 30, 100) == shared_cycles(eight, 1, four, 100, 100) == 400


def test_without_a_machine_and_with_synthetic_data_nothing_is_shared() -> None:
    assert shared_cycles(cluster(8, None), 1, (0, 1, 2), 10**9, 10**9) == 0
    assert shared_cycles(cluster(8, 4).with_synthetic_data(), 1, tuple(range(8)), 10**9, 10**9) == 0


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 10**9), st.integers(0, 10**9))
def test_spread_replicas_move_the_fewest_bytes(replicas: int, n_devices: int, in_bytes: int, out_bytes: int) -> None:
    eight, replicas = cluster(8, 4), min(replicas, 8 // n_devices)
    inside, *packed = (
        shared_cycles(eight, n_devices, starts, in_bytes, out_bytes)
        for starts in placements(eight, n_devices, replicas)
    )
    assert max(in_bytes, out_bytes) <= inside <= min(packed, default=4 * max(in_bytes, out_bytes))
