"""This machine as a cluster: devices, memory, quotas and limits of control groups."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import GIB, MIB
from autoauto.targets.host import detect
from autoauto.targets.host.detect import LinkTimes, control_groups, host_cluster, total_bytes, usable_cores

TIMES = LinkTimes(send_s=2e-6, latency_s=8e-6, write_bytes_per_s=4e9, read_bytes_per_s=1e10, memory_bytes_per_s=2e10)

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """A machine with `n_cores` cores and `total` bytes of memory, in a control group with the given files."""

    def make(n_cores: int, total: int = 16 * GIB, **files: str) -> None:
        monkeypatch.setattr(detect, "cores", lambda: tuple((n,) for n in range(n_cores)))
        monkeypatch.setattr(detect, "kernel_bytes", lambda *_: total)
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        monkeypatch.setattr(detect, "control_groups", lambda: iter([tmp_path]))

    return make


def test_devices_have_equal_shares_of_the_cores_and_of_the_memory(machine: Machine) -> None:
    machine(n_cores=2)
    cluster = host_cluster(links=TIMES)
    assert (cluster.name, cluster.target, len(cluster)) == ("host", "host", 2)
    device = cluster.devices[0]
    assert (device.clock_hz, device.n_tiles) == (1e9, 1)
    assert device.memory_bytes == device.tile_memory_bytes == 6016 * MIB
    assert set(cluster.receive_links) == {TIMES.receive_link}
    assert set(cluster.send_links) == {TIMES.send_link}
    assert cluster.machine is not None
    assert (cluster.machine.n_devices, cluster.machine.host_bytes_per_s) == (2, TIMES.memory_bytes_per_s)
    assert host_cluster(memory_bytes=100, links=TIMES).devices[0].memory_bytes == 100


@pytest.mark.parametrize(("quota", "n_cores"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_cpu_quota_limits_the_number_of_cores(machine: Machine, quota: str, n_cores: int) -> None:
    machine(n_cores=8, cpu_max=quota)
    assert usable_cores() == n_cores
    assert len(host_cluster(links=TIMES)) == n_cores


def test_a_memory_limit_of_the_control_group_limits_the_memory(machine: Machine) -> None:
    machine(1, 16 * GIB, memory_max="1000\n")
    assert total_bytes() == 1000
    machine(1, 16 * GIB, memory_max="max\n")
    assert total_bytes() == 16 * GIB
    machine(1, 300, memory_max="1000\n")
    assert total_bytes() == 300


def test_control_groups_are_listed_up_to_the_root(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/x\n0::/a/b\n")
    root = tmp_path / "root"
    assert list(control_groups(root, membership)) == [root / "a" / "b", root / "a", root]
    assert list(control_groups(root, tmp_path / "none")) == []


def test_too_little_memory_for_the_devices_is_refused(machine: Machine) -> None:
    machine(4, 512 * MIB)
    with pytest.raises(BadInput, match=r"4 devices need 128\.0 MiB each and more, there are 512\.0 MiB"):
        host_cluster(links=TIMES)


@pytest.mark.slow
def test_this_machine_has_its_usable_cores_and_the_same_links_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    cluster = host_cluster()
    assert len(cluster) == usable_cores()
    assert host_cluster().receive_links == cluster.receive_links
    assert cluster.devices[0].memory_bytes > 0
