"""Tiles that exchange with the host while the others compute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.hardware import Cluster
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.session import IpuSession, with_io_tiles


@pytest.fixture
def cluster() -> Cluster:
    return load_cluster("bow-2000")


def test_io_tiles_are_taken_from_compute_with_their_memory(cluster: Cluster) -> None:
    device, before = with_io_tiles(cluster, 32).devices[0], cluster.devices[0]
    assert device.n_tiles == before.n_tiles - 32
    assert device.memory_bytes / device.n_tiles == pytest.approx(before.memory_bytes / before.n_tiles)


def test_host_transfers_overlap_compute(cluster: Cluster) -> None:
    overlapped = with_io_tiles(cluster, 32)
    n_bytes, clock_hz = 10**7, cluster.devices[0].clock_hz
    assert overlapped.host_cycles(n_bytes, n_bytes) == 2 * cluster.receive_links[0].cycles(n_bytes, clock_hz)
    handed_over = overlapped.receive_links[0].cycles(n_bytes, clock_hz)
    assert handed_over == 286 + n_bytes // (32 * 4)  # a sync and the shortest exchange, then the io tiles' rate
    assert overlapped.receive_links[1:] == cluster.receive_links[1:]
    assert overlapped.send_links[:-1] == cluster.send_links[:-1]


def test_a_shorter_pipeline_keeps_its_host(cluster: Cluster) -> None:
    whole = with_io_tiles(cluster, 32)
    assert whole.first(2).overlapped_host_links == with_io_tiles(cluster.first(2), 32).overlapped_host_links
    assert replace(whole, overlapped_host_links=None).host_cycles(1, 1) == 0


def test_a_session_without_io_tiles_uses_the_cluster_itself(cluster: Cluster) -> None:
    assert IpuSession(0.3).hardware(cluster) is cluster
    assert IpuSession(0.3, 16).hardware(cluster) == with_io_tiles(cluster, 16)


@pytest.mark.parametrize("n_tiles", [1472, 2000])
def test_some_tiles_must_be_left_to_compute(n_tiles: int, cluster: Cluster) -> None:
    with pytest.raises(BadInput, match=f"^io_tiles must be below 1472, the tiles of a bow, got {n_tiles}$"):
        with_io_tiles(cluster, n_tiles)


def test_what_has_no_transfers_with_the_host_has_no_io_tiles(cluster: Cluster) -> None:
    with pytest.raises(BadInput, match="io_tiles 32 exchange with the host, got synthetic data; leave one of them out"):
        with_io_tiles(cluster.with_synthetic_data(), 32)


def test_which_of_several_kinds_has_io_tiles_for_the_host_is_not_known() -> None:
    with pytest.raises(BadInput, match="io_tiles 32 needs devices in a given order, bow-mk2 has kinds of them; try"):
        with_io_tiles(load_cluster("bow-mk2"), 32)


def test_each_device_of_a_pipeline_has_the_io_tiles_of_all() -> None:
    session = IpuSession("0.1:0.6", 32)
    each = [session.on_device(device) for device in range(2)]
    assert each == [IpuSession(0.1, 32), IpuSession(0.6, 32)]
    assert session.of_devices(each) == session
    assert session.common == IpuSession(io_tiles=32)


@pytest.mark.parametrize("n_tiles", [-1, 2**16 + 1, 1.5])
def test_impossible_numbers_of_io_tiles_are_refused(n_tiles: int) -> None:
    with pytest.raises(BadInput, match=f"^io_tiles must be a whole number from 0 to 65,536, got {n_tiles}$"):
        IpuSession(io_tiles=n_tiles)


def test_phases_have_none() -> None:
    with pytest.raises(Mismatch, match="phases exchange with the host in turn, got io_tiles 32; try --io-tiles 0"):
        IpuSession(io_tiles=32).check_devices(1, in_phases=True)
