"""The host as a target: what it measures, what it caches under, and its errors."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import Profiler
from autoauto.records.costs.options import CompileOptions, PlainSession
from autoauto.records.errors import BadInput, MissingExtra, UnreadableModel
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange, SubModel
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import GIB, MIB, Precision
from autoauto.targets.host import target as host_target
from autoauto.targets.host.devices import HostDevices
from autoauto.targets.host.measure.worker import Measurement, RunTimes
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.runtimes.cuda.session import CudaSession
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.host.runtimes.session import HostSession
from autoauto.targets.host.target import SESSION, HostTarget
from autoauto.targets.ipu.session import IpuSession

DEVICE = Device("core", 1e9, GIB, 1, GIB)
OPTIONS = CompileOptions(1, Precision.FP32, session=OnnxRuntimeSession())

Models = Callable[[int, int], Any]


class NoSource:
    """A source that cannot cut."""

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        raise UnreadableModel(f"layers {layers} cannot be cut out")

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> Any:
        raise AssertionError


@pytest.fixture
def open_target() -> Iterator[Callable[[Any], HostTarget]]:
    """Make targets, and close them at the end of the test."""
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    opened: list[HostTarget] = []

    def make(source: Any) -> HostTarget:
        opened.append(HostTarget(source))
        return opened[-1]

    yield make
    for target in opened:
        target.close()


@pytest.mark.parametrize(
    ("batch_size", "profiled"), [(1, (1,)), (2, (2,)), (3, (2, 4)), (4, (4,)), (5, (4, 8)), (100, (64, 128))]
)
def test_layers_are_profiled_at_powers_of_two(batch_size: int, profiled: tuple[int, ...]) -> None:
    assert HostTarget(NoSource()).profiled(batch_size) == profiled


def test_a_profile_depends_on_the_batch_size_and_the_cores_and_not_on_memory_limits() -> None:
    target = HostTarget(NoSource())
    key = target.depends_on(DEVICE, OPTIONS)
    assert target.depends_on(replace(DEVICE, memory_bytes=7), OPTIONS) == key
    assert target.depends_on(DEVICE, replace(OPTIONS, batch_size=2)) != key
    assert target.depends_on(DEVICE, replace(OPTIONS, session=OnnxRuntimeSession(2))) != key


def test_a_session_of_another_target_is_refused() -> None:
    target = HostTarget(NoSource())
    for session in (PlainSession(), IpuSession()):
        options = replace(OPTIONS, session=session)
        with pytest.raises(BadInput, match=r"runs a model by onnxruntime, openvino, cuda, got .*; give a --runtime"):
            target.depends_on(DEVICE, options)
        with pytest.raises(BadInput, match="give a --runtime"):
            target.compile(LayerGraph("none", (), (), None, ""), LayerRange(0, 1), DEVICE, options)


def test_times_depend_on_the_runtime_its_version_and_the_format(open_target: Callable[[Any], HostTarget]) -> None:
    target = open_target(NoSource())
    assert f"onnxruntime {version('onnxruntime')}" in target.version
    sessions = {target.depends_on(DEVICE, replace(OPTIONS, session=kind())) for kind in SESSIONS.values()}
    assert len(sessions) == len(SESSIONS)
    short = replace(OPTIONS, session=OpenVinoSession(precision=Precision.BF16))
    assert target.depends_on(DEVICE, short) not in sessions


def test_without_a_runtime_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoauto.targets.host.runtimes.session.find_spec", lambda _: None)
    monkeypatch.setattr(host_target, "installed_versions", registry.installed_versions.__wrapped__)
    with pytest.raises(MissingExtra, match=r"^running on the host needs the extra host; try: .* install 'onnx"):
        HostTarget(NoSource()).version  # noqa: B018 (a property)
    with pytest.raises(MissingExtra, match=r"^--runtime openvino needs the extra openvino; try: .* install 'openvino"):
        HostTarget(NoSource()).compile(
            LayerGraph("none", (), (), None, ""),
            LayerRange(0, 1),
            DEVICE,
            replace(OPTIONS, session=OpenVinoSession()),
        )


@pytest.mark.slow
def test_outputs_in_another_format_are_compared_with_those_in_fp32(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    if Precision.BF16 not in HostTarget(NoSource()).precisions():
        pytest.skip("no runtime computes in bf16 here")
    model = residual_model(2, 64)
    stage = Stage(LayerRange(0, len(model.graph)), 0, 9, 0, 0, 0, {}, 1)
    cluster = Cluster("host", "host", (Device("core", 1e9, 1 << 30, 1, 1 << 30),), (Link(1e9, 1),), (Link(1e9, 1),))
    options = replace(OPTIONS, batch_size=4)
    sessions = OpenVinoSession(), OpenVinoSession(precision=Precision.BF16)
    opened = open_target(model.source)
    exact, rounded = (
        opened.run(model.graph, Plan((stage,)), cluster, replace(options, session=session), 1).output_error
        for session in sessions
    )
    assert exact is None
    assert rounded is not None
    assert 1e-4 < rounded < 2e-2


def test_layers_that_cannot_be_cut_out_are_an_error_of_the_model(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    graph = residual_model(1, 8).graph
    with pytest.raises(UnreadableModel, match=r"layers \[0, 1\) cannot be cut out"):
        open_target(NoSource()).compile(graph, LayerRange(0, 1), DEVICE, OPTIONS)


def test_a_measurement_becomes_a_compiled_range(
    open_target: Callable[[Any], HostTarget], residual_model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = residual_model(1, 64)
    target = open_target(model.source)
    measurement = Measurement(RunTimes(1234.6, 1300.0, 0.0, 5), session_bytes=7, parameter_bytes=9, peak_bytes=100)
    monkeypatch.setattr("autoauto.targets.host.measure.client.Meter.measure", lambda *_: measurement)
    compiled = target.compile(model.graph, LayerRange(0, 1), DEVICE, replace(OPTIONS, batch_size=2))
    assert compiled.forward_cycles == 1235
    assert compiled.steps[0].name == "matmul0"
    assert compiled.temporary_bytes == 100 + 2 * 64 * 4 * 2  # the input and the output of a single layer
    assert compiled.shared == {SESSION: 7}
    assert compiled.exclusive == {"parameter": 64 * 64 * 4}  # the size of the weights is a lower bound
    assert target.measurements == [measurement]
    assert target.compile(model.graph, LayerRange(0, 3), DEVICE, OPTIONS).steps[0].name == "matmul0 to add"


@pytest.mark.slow
def test_real_layers_take_time_and_memory_by_their_size(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    model = residual_model(2, 1024)
    target = open_target(model.source)
    small, large = (
        target.compile(model.graph, LayerRange(2, 3), DEVICE, replace(OPTIONS, batch_size=n)) for n in (64, 1024)
    )
    assert large.forward_cycles > 2 * small.forward_cycles  # 16 times as much arithmetic
    for compiled in (small, large):
        assert 4 * MIB <= compiled.exclusive["parameter"] <= 5 * MIB
    assert large.temporary_bytes >= 1024 * 1024 * 4  # its output
    whole = target.compile(model.graph, LayerRange(0, 5), DEVICE, replace(OPTIONS, batch_size=1024))
    assert 8 * MIB <= whole.exclusive["parameter"] <= 10 * MIB
    assert whole.forward_cycles > 4 * small.forward_cycles  # two products: 32 times as much arithmetic


@pytest.mark.slow
def test_a_model_is_profiled_kind_by_kind(
    open_target: Callable[[Any], HostTarget], residual_model: Models, tmp_path: Path
) -> None:
    model, cache = residual_model(4, 256), ProfileCache(tmp_path / "cache.db")
    target = open_target(model.source)
    profile = Profiler(model.graph, target, DEVICE, cache).profile(replace(OPTIONS, batch_size=3))
    assert len(target.measurements) == 3 * 2  # MatMul, Relu and Add, at batch sizes 2 and 4
    assert profile.layers[0].exclusive["parameter"] >= 256 * 256 * 4
    assert Profiler(model.graph, target, DEVICE, cache).profile(replace(OPTIONS, batch_size=3)) == profile
    assert len(target.measurements) == 3 * 2


def test_another_process_gets_the_target_without_the_process_that_measures() -> None:
    target = HostTarget(NoSource())
    target._meter = lambda: None  # type: ignore[assignment] # as little fit for another process as a meter
    assert pickle.loads(pickle.dumps(target))._meter is None
    target._meter = None


def on_devices(*gpus: str) -> HostTarget:
    return HostTarget(NoSource(), devices=HostDevices(gpus))


def test_devices_with_gpus_have_one_runtime_and_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    on_gpus, on_cores = on_devices("GPU-a", "GPU-b").traits, HostTarget(NoSource()).traits
    assert (on_gpus.groups, on_cores.groups) == ((), ("cores_per_device",))
    assert on_gpus.space["runtime"] == ("cuda",)
    assert "cuda" not in on_cores.space["runtime"]
    assert on_gpus.space["precision"] == on_cores.space["precision"] == (Precision.FP32,)


@pytest.mark.parametrize(("gpus", "session"), [((), CudaSession()), (("GPU-a",), OnnxRuntimeSession())])
def test_a_runtime_runs_on_its_own_devices_only(
    gpus: tuple[str, ...], session: HostSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(SESSIONS))
    target = on_devices(*gpus)
    with pytest.raises(BadInput, match=f"--runtime cuda and --device cuda:0 go together, got {session.runtime} and "):
        target.compile(LayerGraph("m", (), (), None, ""), LayerRange(0, 1), DEVICE, replace(OPTIONS, session=session))


def test_profiles_on_gpus_are_those_of_their_kind() -> None:
    options = replace(OPTIONS, session=CudaSession())
    other = replace(DEVICE, name="H100")
    on_first, on_second = map(on_devices, ("GPU-a", "GPU-b"))
    assert on_first.depends_on(DEVICE, options) == on_second.depends_on(DEVICE, options)
    assert on_first.depends_on(DEVICE, options) != on_first.depends_on(other, options)
    on_cores = HostTarget(NoSource())
    assert on_cores.depends_on(DEVICE, OPTIONS) == on_cores.depends_on(other, OPTIONS)
