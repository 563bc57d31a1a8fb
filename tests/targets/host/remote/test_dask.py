"""Machines that two Dask workers of this machine serve, on two ports; and clusters that no worker can serve."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.processes.dask import DaskWorker
from autoauto.processes.start import descendants
from autoauto.records.errors import BadInput, WorkerLost
from autoauto.records.hardware import Cluster, Device, Link, Machine
from autoauto.space.knobs import Knobs
from autoauto.study.defaults import default_space
from autoauto.targets.clusters import load_cluster
from autoauto.targets.host.entry import HOST
from autoauto.targets.host.remote import cluster as remote_dask
from autoauto.targets.host.remote import cluster as remote_links
from autoauto.targets.host.remote.cluster import (
    DaskMachines,
    Facts,
    ServedMachine,
    check_alike,
    check_served,
    remote_cluster,
)
from autoauto.targets.host.run import run
from autoauto.targets.host.target import HostTarget
from tests.dask_cluster import DaskCluster, started, wait_for
from tests.running import is_running, wait_until
from tests.targets.host.conftest import residual

TWO = """
name = "two"
target = "host"
n_devices = 2
[device]
name = "core"
clock_hz = 1e9
memory_bytes = 500_000_000
n_tiles = 1
tile_memory_bytes = 500_000_000
[host_link]
bytes_per_s = 1e9
idle_cycles = 30_000
[device_link]
bytes_per_s = 1e9
idle_cycles = 30_000
[machine]
n_devices = 1
host_bytes_per_s = 1e9
[machine_link]
bytes_per_s = 1e9
idle_cycles = 30_000
"""
LINK = Link(1e9, 0)
HERE = Facts("autoauto 1", "a processor", ((0,), (1,)), 1 << 34)


def served(name: str, n_devices: int = 2, facts: Facts = HERE) -> ServedMachine:
    return ServedMachine(DaskWorker(name, "tcp://10.0.0.1:1", n_devices), facts)


def cluster(n_devices: int, n_each: int) -> Cluster:
    links = (LINK,) * n_devices
    devices = (Device("core", 1e9, 1, 1, 1),) * n_devices
    return Cluster("racks", "host", devices, links, links, machine=Machine(n_each, 1.0))


def test_several_machines_without_workers_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TWO)
    two = load_cluster(str(tmp_path / "two.toml"))
    with pytest.raises(BadInput, match=r"^two has several machines, which Dask workers serve; give --dask HOST:PORT$"):
        HOST.devices(two, HOST.read_options({}))


@pytest.mark.parametrize(
    ("machines", "reason"),
    [
        ([], "^no Dask worker at tcp://x:1 has devices; start one on every machine: dask worker --resources "),
        (
            [served("a"), served("b", facts=HERE._replace(software="another"))],
            "is autoauto 1, b has another; install",
        ),
        ([served("a"), served("b", facts=HERE._replace(cpu_model="another"))], "a has a processor, b has another; try"),
        ([served("a", 3)], "^a device is a core, a declares 3 and may use 2; start it with --resources device=2$"),
    ],
)
def test_machines_that_make_no_cluster_are_one_line(
    machines: list[ServedMachine], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_dask, "software", lambda: "autoauto 1")
    with pytest.raises(BadInput, match=reason):
        check_alike(machines, "tcp://x:1")


def test_a_cluster_needs_a_worker_a_machine_with_its_devices() -> None:
    check_served(cluster(4, 2), [served("a"), served("b")])
    check_served(cluster(3, 2), [served("a"), served("b"), served("c")])
    with pytest.raises(BadInput, match=r"^racks has 3 machines, there are 2 Dask workers with devices; start more"):
        check_served(cluster(5, 2), [served("a"), served("b")])
    with pytest.raises(BadInput, match=r"^a machine of racks has 2 devices, Dask worker b has 1; start it with"):
        check_served(cluster(4, 2), [served("a"), served("b", 1)])


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    pytest.importorskip("distributed")
    pytest.importorskip("onnxruntime")
    with started(2, tmp_path_factory.mktemp("dask"), n_devices=1) as cluster:
        wait_for(cluster.address, 2)
        yield cluster


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask's own libraries warn of
def test_the_links_of_two_workers_are_measured_once(
    dask: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    machines = DaskMachines(dask.address)
    measured = remote_cluster(machines, 1 << 30)
    assert (len(measured), measured.machine_size) == (2, 1)
    assert all(0 < link.bytes_per_s < 1e12 for link in (*measured.receive_links, *measured.send_links))
    assert measured.machine is not None
    assert measured.machine.host_bytes_per_s == measured.receive_links[0].bytes_per_s
    monkeypatch.setattr(remote_links, "_measured", None)
    assert remote_cluster(machines, 1 << 30) == measured


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask's own libraries warn of
def test_two_workers_serve_a_plan_and_one_that_is_killed_is_named(
    dask: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    from autoauto.evaluate.open import load_flow

    monkeypatch.setattr(run, "N_ATTEMPTS", 1)
    (tmp_path / "two.toml").write_text(TWO)
    onnx.save(residual(2, 64), tmp_path / "residual.onnx")
    options = {"dask": dask.address}
    flow = load_flow(
        str(tmp_path / "residual.onnx"), str(tmp_path / "two.toml"), "host", options=options, estimator="sum"
    )
    assert flow.setting.notes == ("Dask workers: machine 0 is 0 at 127.0.0.1, machine 1 is 1 at 127.0.0.1",)
    knobs = Knobs(n_ipu=2, batch_size=4, runtime=flow.traits.space["runtime"][0])
    measured = flow.measure(knobs, flow.plans.cut_at(knobs, (0, 2, len(flow.graph))))
    assert [[device.machine for device in devices] for devices in measured.plan.placement] == [[0, 1]]
    assert min(stage.send_cycles for stage in measured.plan.stages) > 0
    starts = [np.asarray(starts) for starts in measured.timelines[0].starts]
    assert (starts[0] < starts[1]).all()

    machines = DaskMachines(dask.address)
    with machines.open([0, 1]) as opened:
        agents = descendants(dask.processes[2].pid)
        assert agents
        dask.processes[2].send_signal(signal.SIGKILL)
        with pytest.raises(WorkerLost, match=r"^machine 1 \(1\) is lost: its Dask worker has ended, or its network$"):
            opened[1].workers.receive(0)
    wait_until(lambda: not any(map(is_running, agents)), "what the worker had started has ended")


class Task:
    """The future of a task that raises."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def result(self, timeout: float) -> None:
        assert timeout > 0
        raise self.error


def test_a_worker_that_starts_nothing_or_fails_is_one_line() -> None:
    late = r"^machine 1: its Dask worker must start a process within 60 s; it is lost, or measures for others$"
    with pytest.raises(WorkerLost, match=late):
        remote_dask._result(Task(TimeoutError()), "machine 1")
    with pytest.raises(WorkerLost, match=r"^machine 1: its Dask worker failed: ImportError: no module$"):
        remote_dask._result(Task(ImportError("no module")), "machine 1")


def test_devices_are_cores_of_one_machine_and_stages_have_no_replicas_on_several() -> None:
    flow = Flow(Setting(load_graph("bert-base-128"), cluster(4, 2), HostTarget(cast("Any", None), cast("Any", ()))))
    space = default_space(flow)
    assert space["cores_per_device"] == (1, 2)
    assert max(space["n_ipu"]) == 4
    with pytest.raises(BadInput, match=r"are those of one machine, 2 at most on racks, got --cores-per-device 4; try"):
        flow.checked(space.with_values(cores_per_device=(4,)))
    with pytest.raises(BadInput, match=r"^--target host has no --stage-replicas; leave it out, or try one machine$"):
        flow.checked(space.with_values(stage_replicas=(True,)))
