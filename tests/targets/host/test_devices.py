"""Unlike devices of this machine: as --device names them, as a cluster, and which cores or GPU each has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.cut import OnnxSource, onnx_source
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Link
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import GIB, MIB, Precision
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial
from autoauto.targets.clusters import cluster_toml, load_cluster
from autoauto.targets.host import devices as host_devices
from autoauto.targets.host import target as target_module
from autoauto.targets.host.detect import LinkTimes, usable_cores
from autoauto.targets.host.devices import HostDevices, NamedDevice, check_named, devices_named, unlike_cluster
from autoauto.targets.host.gpu.cluster import GpuLinkTimes, gpu_cluster
from autoauto.targets.host.gpu.gpus import Gpu
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.host.runtimes.session import GraphOptimization
from autoauto.targets.host.target import HostTarget
from tests.targets.host.conftest import residual, unlike_of

OPTIONS = CompileOptions(4, Precision.FP32, session=OnnxRuntimeSession())
NAMED = (
    NamedDevice(2),
    NamedDevice(1),
    NamedDevice(1),
    NamedDevice(0, Gpu(0, "GPU-a", "H100", 80 * GIB, 0.0, (9, 0), "580")),
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores and a GPU, with known links."""
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    monkeypatch.setattr(host_devices, "usable_cores", lambda: 8)
    monkeypatch.setattr(host_devices, "total_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(host_devices, "device_links", lambda n: LinkTimes(2e-6, 4e-6, 1e9, 3e9, 1e10))
    times = GpuLinkTimes(8e-6, 10e-6, 30e9, 20e9, 1.0)
    monkeypatch.setattr(host_devices, "gpu_cluster", lambda gpus: gpu_cluster(gpus, links=times))
    monkeypatch.setattr(host_devices, "gpus_named", lambda text: tuple(NAMED[-1].gpu for _ in text.split(",")))


def test_devices_are_named_in_any_order(machine: None) -> None:
    assert devices_named("cpu, cuda:0,cpu:2,cpu:1") == NAMED
    assert devices_named("cpu:3,cpu") == (NamedDevice(3), NamedDevice(1))
    assert devices_named("cuda:0,cuda:0") == NAMED[-1:] * 2


@pytest.mark.parametrize("word", ["cpu:0", "cpu:x", "cpu:-1", "cpu:1.5"])
def test_a_number_of_cores_is_a_whole_one(word: str) -> None:
    with pytest.raises(BadInput, match=f"cpu:N with N cores, 1 or more, and cuda:0, got '{word}'"):
        devices_named(f"cpu:2,{word}")


def test_like_cores_need_no_names(machine: None) -> None:
    with pytest.raises(BadInput, match=r"for unlike devices, got 'cpu:2,cpu:2'; .* --cores-per-device 2"):
        devices_named("cpu:2,cpu:2")


def test_unlike_devices_are_a_cluster_of_kinds_and_the_same_as_a_file(machine: None, tmp_path: Path) -> None:
    cluster = unlike_cluster(NAMED)
    part_bytes = 64 * GIB * 3 // 4 // 5 - 128 * MIB  # of four cores and the process beside the GPU
    assert [(kind.device.name, kind.n_devices) for kind in cluster.kinds] == [("2 cores", 1), ("core", 2), ("H100", 1)]
    assert [device.memory_bytes for device in cluster.devices] == [2 * part_bytes, part_bytes, part_bytes, 80 * GIB]
    assert [kind.device_link for kind in cluster.kinds] == [Link(1.5e9, 3000)] * 2 + [Link(24e9, 9000)]
    path = tmp_path / "machine.toml"
    path.write_text(cluster_toml(cluster, "a test"), encoding="utf-8")
    assert load_cluster(str(path)) == cluster
    check_named(cluster, NAMED)
    for others in (NAMED[1:], (NamedDevice(3), *NAMED[1:])):
        with pytest.raises(BadInput, match="host-unlike has 1 x 2 cores, 2 x core, 1 x H100, --device names "):
            check_named(cluster, others)


def test_gpus_that_are_not_named_are_pointed_out(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = (device.gpu for device in NAMED if device.gpu)
    others = gpu._replace(number=1, name="A100"), gpu._replace(number=2)
    monkeypatch.setattr(host_devices, "gpus_here", lambda: (gpu, *others))
    monkeypatch.setattr(target_module, "like_gpus", host_devices.like_gpus.__wrapped__)
    source = onnx_source("resnet50")
    assert HostTarget(source).notes == ("this machine has GPUs, which are not used; try --device cuda:0,cuda:2",)
    assert HostTarget(source, devices=HostDevices(("GPU-a",))).notes == ()

    def fails() -> tuple[Gpu, ...]:
        raise BadInput("nvidia-smi must list the GPUs, it says: no driver")

    monkeypatch.setattr(host_devices, "gpus_here", fails)
    assert HostTarget(source).notes == ()


def test_more_cores_than_there_are_cannot_be_named(machine: None) -> None:
    with pytest.raises(BadInput, match="--device names 9 cores, this process may use 8"):
        unlike_cluster((NamedDevice(8), NamedDevice(1)))
    with pytest.raises(
        BadInput, match="names 7 cores, and one more for each GPU of 2, this process may use 8; try fewer"
    ):
        unlike_cluster((NamedDevice(7), NAMED[-1], NAMED[-1]))
    large = unlike_cluster((NamedDevice(7), NamedDevice(1)))
    nine = replace(large.kinds[1], n_devices=2)
    with pytest.raises(BadInput, match="many has 9 cores, this process may use 8; try fewer"):
        check_named(Cluster.of_kinds("many", "host", (large.kinds[0], nine)), ())


def test_every_device_has_cores_of_its_own_or_its_gpu(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.targets.host.machine.cores", lambda: tuple((n, n + 8) for n in range(8)))
    options = replace(OPTIONS, session=OnnxRuntimeSession(spinning=False))
    devices = HostDevices(("", "", "", "GPU-a"), unlike_cluster(NAMED).devices)
    sessions = [devices.session(number, options) for number in range(4)]
    assert [(each.n_threads, each.runtime, each.gpu) for each in sessions] == [
        (2, "onnxruntime", ""),
        (1, "onnxruntime", ""),
        (1, "onnxruntime", ""),
        (1, "cuda", "GPU-a"),
    ]
    assert [each.session for each in sessions] == [OnnxRuntimeSession(spinning=False)] * 3 + [CudaSession()]
    threads = [devices.cores(number, session.n_threads) for number, session in enumerate(sessions)]
    assert threads == [(0, 8, 1, 9), (2, 10), (3, 11), (4, 12)]
    assert [devices.number(device) for device in devices.unlike] == [0, 1, 1, 3]


@pytest.mark.parametrize("names", [(), ("cpu:2", "cpu:1", "cpu:1", "cuda:0"), ("cpu:1", "cpu:1"), ("cuda:0", "cuda:0")])
def test_devices_with_names_have_these_names(
    names: tuple[str, ...], machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_devices, "gpus_here", lambda: (NAMED[-1].gpu,))
    assert HostDevices.listed(names).names == names


def test_listed_devices_are_those_of_a_measurement(machine: None) -> None:
    measured = HostDevices(("", "", "", "GPU-a"), unlike_cluster(NAMED).devices)
    listed = HostDevices.listed(("cpu:2", "cpu:1", "cpu:1", "cuda:0"))
    assert [listed.session(n, OPTIONS) for n in range(4)] == [measured.session(n, OPTIONS) for n in range(4)]
    assert [listed.n_cores_through(n, 1) for n in range(4)] == [2, 3, 4, 0]
    assert [HostDevices().n_cores_through(n, 2) for n in range(2)] == [2, 4]


def test_a_gpu_beside_cores_has_the_optimization_of_the_graph() -> None:
    devices = HostDevices(("", "GPU-a"), unlike_of(2 * MIB, 3 * MIB).devices)
    options = replace(OPTIONS, session=OnnxRuntimeSession(graph_optimization=GraphOptimization.BASIC))
    assert devices.session(1, options).session == CudaSession(graph_optimization=GraphOptimization.BASIC)
    assert devices.session(1, replace(OPTIONS, session=OpenVinoSession(2))).session == CudaSession()


def test_cores_and_gpus_together_compute_in_fp32(machine: None) -> None:
    target = HostTarget(onnx_source("resnet50"), devices=HostDevices(("", "GPU-a"), unlike_of(MIB, MIB).devices))
    assert target.precisions() == (Precision.FP32,)
    assert target.traits.space["runtime"] == ("onnxruntime", "openvino")
    assert not target.traits.groups
    options = replace(OPTIONS, session=OpenVinoSession(precision=Precision.BF16))
    with pytest.raises(BadInput, match="compute in fp32 only, got --precision bf16"):
        target._devices.check(options)


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    """24 MiB of weights on a core that holds all of them and one that holds a quarter."""
    import onnx

    if usable_cores() < 2:
        pytest.skip("two devices need two cores")
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    path = tmp_path / "residual.onnx"
    onnx.save(residual(6, 1024), path)
    cluster = unlike_of(256 * MIB, 16 * MIB)
    with HostTarget(OnnxSource(path), devices=HostDevices(unlike=cluster.devices)) as target:
        cache = ProfileCache(tmp_path / "cache.db")
        yield Flow(Setting(load_graph(str(path)), cluster, target, Precision.FP32, cache=cache))


def stages_of(trial: Trial) -> tuple[Stage, ...]:
    """What ran."""
    assert isinstance(trial.measured, Plan)
    return trial.measured.stages


@pytest.mark.slow
def test_a_plan_on_unlike_cores_runs_within_the_memory_of_each(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(n_ipu=2, batch_size=4, runtime="onnxruntime"))
    assert trial.status is Status.OK
    by_kind = {stage.device_kind: stage for stage in stages_of(trial)}
    assert set(by_kind) == {f"core of {256 * MIB}", f"core of {16 * MIB}"}
    for name, stage in by_kind.items():
        assert stage.total_bytes <= stage.limit_bytes == int(name.removeprefix("core of "))
    assert by_kind[f"core of {16 * MIB}"].memory_bytes["parameter"] >= 4 * MIB


@pytest.mark.slow
def test_the_only_device_is_one_that_holds_the_model(flow: Flow) -> None:
    trial = flow.evaluate(Knobs(n_ipu=1, batch_size=4, runtime="onnxruntime"))
    assert [stage.device_kind for stage in stages_of(trial)] == [f"core of {256 * MIB}"]
    with pytest.raises(Infeasible, match="2 like replicas of 1 devices need so many each"):
        flow.predict(Knobs(n_ipu=1, batch_size=4, replicas=2, runtime="onnxruntime"))
