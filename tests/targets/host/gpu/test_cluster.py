"""GPUs as a cluster, what their links cost, and the same as a file."""

from pathlib import Path

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Cluster
from autoauto.records.units import GIB, MIB, Array
from autoauto.targets.clusters import cluster_toml, load_cluster
from autoauto.targets.host.gpu.cluster import GpuLinkTimes, gpu_cluster, time_and_rate
from autoauto.targets.host.gpu.driver import CudaDriver
from autoauto.targets.host.gpu.gpus import Gpu
from tests.targets.host.gpu.driver_on_processor import DriverOnProcessor

A = Gpu(0, "GPU-a", "NVIDIA H100 80GB HBM3", 80 * GIB, 1.98e9, (9, 0), "580.1")
B = A._replace(number=1, uuid="GPU-b")
TIMES = GpuLinkTimes(to_s=8e-6, from_s=9e-6, to_bytes_per_s=25e9, from_bytes_per_s=20e9, pinned=1.0)


def test_every_gpu_is_a_device_with_all_its_memory() -> None:
    cluster = gpu_cluster([A, B], links=TIMES)
    assert (cluster.name, cluster.target, len(cluster)) == ("cuda-x2", "host", 2)
    assert {(device.name, device.memory_bytes, device.clock_hz) for device in cluster.devices} == {
        (A.name, 80 * GIB, 1e9)
    }
    assert {(link.bytes_per_s, link.idle_cycles) for link in cluster.receive_links} == {(25e9, 8000)}
    assert {(link.bytes_per_s, link.idle_cycles) for link in cluster.send_links} == {(20e9, 9000)}


@pytest.mark.parametrize(("gpus", "gib"), [([A], 80), ([A, A], 40), ([A, A, B], 40), ([A, B, A, A], 80 / 3)])
def test_processes_on_one_gpu_share_its_memory_equally(gpus: list[Gpu], gib: float) -> None:
    assert {device.memory_bytes for device in gpu_cluster(gpus, links=TIMES).devices} == {int(gib * GIB)}


def test_memory_may_be_less_than_the_part_of_a_gpu_not_more() -> None:
    assert gpu_cluster([A], 3 * GIB, TIMES).devices[0].memory_bytes == 3 * GIB
    for n_bytes in (0, 41 * GIB):
        with pytest.raises(BadInput, match=f"must be 1 to {40 * GIB} bytes here, got {n_bytes}"):
            gpu_cluster([A, A], n_bytes, TIMES)


def test_a_file_of_gpus_is_the_same_cluster(tmp_path: Path) -> None:
    cluster = gpu_cluster([A, B], links=TIMES)
    assert read(cluster_toml(cluster, 'with "quotes"', ("cuda:0: a comment",)), tmp_path) == cluster


@pytest.mark.parametrize("name", ["bow-2000", "bow-pod64", "c600", "seed-2-ipu"])
def test_a_file_of_a_built_in_cluster_is_the_same_cluster(name: str, tmp_path: Path) -> None:
    cluster = load_cluster(name)
    assert read(cluster_toml(cluster, "a test"), tmp_path) == cluster


def read(text: str, folder: Path) -> Cluster:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return load_cluster(str(path))


def test_copies_are_timed_both_ways() -> None:
    gpu = CudaDriver(DriverOnProcessor(64 * MIB))
    address = gpu.allocate(16 * MIB)
    message = np.ones(16 * MIB, np.uint8)
    to_s, to_rate = time_and_rate(lambda array: gpu.to_gpu(address, array), message)
    from_s, from_rate = time_and_rate(lambda array: gpu.from_gpu(array, address), message)
    assert min(to_s, from_s) > 0
    assert min(to_rate, from_rate) > 16 * MIB


def test_the_rate_of_a_link_is_that_of_long_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def copy(array: Array) -> None:
        now[0] += 1e-5 + len(array) / 1e9

    monkeypatch.setattr("autoauto.targets.host.gpu.cluster.perf_counter", lambda: now[0])
    few_s, rate = time_and_rate(copy, np.zeros(MIB, np.uint8))
    assert rate == pytest.approx(1e9)
    assert few_s == pytest.approx(1e-5 + 64e-9)


def test_times_of_a_broken_file_are_refused() -> None:
    with pytest.raises(ValueError, match="times of a link must be 0 or more"):
        GpuLinkTimes(0.0, 0.0, 0.0, 1.0, 0.0)
