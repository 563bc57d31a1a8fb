from dataclasses import replace

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.io import IO_TILES, overlap_io


@pytest.fixture
def cluster() -> Cluster:
    return load_cluster("bow-2000")


def test_io_tiles_are_taken_from_compute_with_their_memory(cluster: Cluster) -> None:
    device, before = overlap_io(cluster).devices[0], cluster.devices[0]
    assert device.n_tiles == before.n_tiles - IO_TILES
    assert device.memory_bytes / device.n_tiles == pytest.approx(before.memory_bytes / before.n_tiles)


def test_the_host_works_behind_the_devices(cluster: Cluster) -> None:
    overlapped = overlap_io(cluster)
    n_bytes, clock_hz = 10**7, cluster.devices[0].clock_hz
    assert overlapped.host_cycles(n_bytes, n_bytes) == 2 * cluster.receive_links[0].cycles(n_bytes, clock_hz)
    handed_over = overlapped.receive_links[0].cycles(n_bytes, clock_hz)
    assert handed_over == 286 + n_bytes // (IO_TILES * 4)  # a sync and the shortest exchange, then the io tiles' rate
    assert overlapped.receive_links[1:] == cluster.receive_links[1:]
    assert overlapped.send_links[:-1] == cluster.send_links[:-1]


@pytest.mark.parametrize("n_tiles", [0, -1, 1472])
def test_some_tiles_must_be_left_to_compute(n_tiles: int, cluster: Cluster) -> None:
    with pytest.raises(BadInput, match=f"io tiles must be some of 1472, got {n_tiles}; try 32"):
        overlap_io(cluster, n_tiles)


def test_a_shorter_pipeline_keeps_its_host(cluster: Cluster) -> None:
    assert overlap_io(cluster).first(2).overlapped_host_links == overlap_io(cluster.first(2)).overlapped_host_links
    assert replace(overlap_io(cluster), overlapped_host_links=None).host_cycles(1, 1) == 0
