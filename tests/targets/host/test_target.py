"""The host as a target: what it measures, what it caches under, and its errors."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import profile_model
from autoauto.records.costs.options import CompileOptions, HostPrecision, HostRuntime
from autoauto.records.errors import BadInput, MissingExtra, UnreadableModel
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange, SubModel
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import GIB, MIB, Precision
from autoauto.targets.host import target as host_target
from autoauto.targets.host.devices import HostDevices
from autoauto.targets.host.measure.worker import Measurement, RunTimes
from autoauto.targets.host.runtimes import registry
from autoauto.targets.host.target import SESSION, HostTarget

DEVICE = Device("core", 1e9, GIB, 1, GIB)
OPTIONS = CompileOptions(1, 1.0, Precision.FP32)

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
    assert target.depends_on(replace(DEVICE, memory_bytes=7), replace(OPTIONS, memory_proportion=0.3)) == key
    assert target.depends_on(DEVICE, replace(OPTIONS, batch_size=2)) != key
    assert target.depends_on(DEVICE, replace(OPTIONS, cores_per_device=2)) != key


def test_times_depend_on_the_runtime_its_version_and_the_format(open_target: Callable[[Any], HostTarget]) -> None:
    target = open_target(NoSource())
    assert f"onnxruntime {version('onnxruntime')}" in target.version
    sessions = {target.depends_on(DEVICE, replace(OPTIONS, runtime=runtime)) for runtime in HostRuntime}
    assert len(sessions) == len(HostRuntime)
    short = replace(OPTIONS, runtime=HostRuntime.OPENVINO, computes_in=HostPrecision.BF16)
    assert target.depends_on(DEVICE, short) not in sessions


def test_without_a_runtime_the_error_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    monkeypatch.setattr(host_target, "installed_versions", registry.installed_versions.__wrapped__)
    with pytest.raises(MissingExtra, match=r"^running on the host needs the extra host; try: .* install 'onnx"):
        HostTarget(NoSource()).version  # noqa: B018 (a property)
    with pytest.raises(MissingExtra, match=r"^--runtime openvino needs the extra openvino; try: .* install 'openvino"):
        HostTarget(NoSource()).compile(
            LayerGraph("none", (), (), None, ""),
            LayerRange(0, 1),
            DEVICE,
            replace(OPTIONS, runtime=HostRuntime.OPENVINO),
        )


@pytest.mark.slow
def test_outputs_in_another_format_are_compared_with_those_in_fp32(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    if HostPrecision.BF16 not in HostTarget(NoSource()).precisions():
        pytest.skip("no runtime computes in bf16 here")
    model = residual_model(2, 64)
    stage = Stage(LayerRange(0, len(model.graph)), 0, 9, 0, 0, 0, {}, 1)
    cluster = Cluster("host", "host", (Device("core", 1e9, 1 << 30, 1, 1 << 30),), (Link(1e9, 1),), (Link(1e9, 1),))
    options = replace(OPTIONS, batch_size=4, runtime=HostRuntime.OPENVINO)
    opened = open_target(model.source)
    exact, rounded = (
        opened.run(model.graph, Plan((stage,)), cluster, replace(options, computes_in=precision), 1).output_error
        for precision in (HostPrecision.FP32, HostPrecision.BF16)
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
    profile = profile_model(model.graph, target, DEVICE, replace(OPTIONS, batch_size=3), cache)
    assert len(target.measurements) == 3 * 2  # MatMul, Relu and Add, at batch sizes 2 and 4
    assert profile.layers[0].exclusive["parameter"] >= 256 * 256 * 4
    assert profile_model(model.graph, target, DEVICE, replace(OPTIONS, batch_size=3), cache) == profile
    assert len(target.measurements) == 3 * 2


def test_another_process_gets_the_target_without_the_process_that_measures() -> None:
    target = HostTarget(NoSource())
    target._meter = lambda: None  # type: ignore[assignment] # as little fit for another process as a meter
    assert pickle.loads(pickle.dumps(target))._meter is None
    target._meter = None


def on_devices(*gpus: str) -> HostTarget:
    return HostTarget(NoSource(), devices=HostDevices(gpus))


def test_devices_with_gpus_have_one_runtime_and_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(HostRuntime))
    on_gpus, on_cores = on_devices("GPU-a", "GPU-b").traits, HostTarget(NoSource()).traits
    assert (on_gpus.groups_cores, on_cores.groups_cores) == (False, True)
    assert on_gpus.space["runtime"] == (HostRuntime.CUDA,)
    assert HostRuntime.CUDA not in on_cores.space["runtime"]
    assert on_gpus.space["precision"] == on_cores.space["precision"] == (HostPrecision.FP32,)


@pytest.mark.parametrize(("gpus", "runtime"), [((), HostRuntime.CUDA), (("GPU-a",), HostRuntime.ONNXRUNTIME)])
def test_a_runtime_runs_on_its_own_devices_only(
    gpus: tuple[str, ...], runtime: HostRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda: tuple(HostRuntime))
    target = on_devices(*gpus)
    with pytest.raises(BadInput, match=f"--runtime cuda and --device cuda:0 go together, got {runtime} and "):
        target.compile(LayerGraph("m", (), (), None, ""), LayerRange(0, 1), DEVICE, replace(OPTIONS, runtime=runtime))


def test_profiles_on_gpus_are_those_of_their_kind() -> None:
    options = replace(OPTIONS, runtime=HostRuntime.CUDA)
    other = replace(DEVICE, name="H100")
    on_first, on_second = map(on_devices, ("GPU-a", "GPU-b"))
    assert on_first.depends_on(DEVICE, options) == on_second.depends_on(DEVICE, options)
    assert on_first.depends_on(DEVICE, options) != on_first.depends_on(other, options)
    on_cores = HostTarget(NoSource())
    assert on_cores.depends_on(DEVICE, OPTIONS) == on_cores.depends_on(other, OPTIONS)
