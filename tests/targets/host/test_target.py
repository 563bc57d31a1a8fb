import builtins
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.profiler import profile_model
from autoauto.profile.store.cache import ProfileCache
from autoauto.records.errors import MissingExtra, UnreadableModel
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange, SubModel
from autoauto.records.profile import CompileOptions
from autoauto.records.units import GIB, MIB, Precision
from autoauto.targets.host.measure.worker import Reading, Times
from autoauto.targets.host.target import SESSION, HostTarget

DEVICE = Device("core", 1e9, GIB, 1, GIB)
OPTIONS = CompileOptions(1, 1.0, Precision.FP32)

Models = Callable[[int, int], Any]


class NoSource:
    """Cuts nothing."""

    def cut(self, graph: LayerGraph, layers: LayerRange, batch_size: int) -> SubModel:
        raise UnreadableModel(f"layers {layers} cannot be cut out")

    def carried(self, graph: LayerGraph, cut: int, batch_size: int) -> Any:
        raise AssertionError


@pytest.fixture
def open_target() -> Iterator[Callable[[Any], HostTarget]]:
    """Make targets that are closed at the end."""
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


def test_a_profile_does_not_depend_on_limits_of_memory() -> None:
    target = HostTarget(NoSource())
    seen = target.depends_on(DEVICE, OPTIONS)
    assert target.depends_on(replace(DEVICE, memory_bytes=7), replace(OPTIONS, memory_proportion=0.3)) == seen
    assert target.depends_on(DEVICE, replace(OPTIONS, batch_size=2)) != seen


def test_the_version_names_what_a_time_depends_on(open_target: Callable[[Any], HostTarget]) -> None:
    version = open_target(NoSource()).version
    assert "ONNX Runtime" in version
    assert HostTarget(NoSource(), 2).version != version


def test_without_the_runtime_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def missing(name: str, *args: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtra, match=r"autoauto\[host\]"):
        HostTarget(NoSource()).version  # noqa: B018 (a property)


def test_layers_that_cannot_be_cut_out_are_one_clear_error(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    graph = residual_model(1, 8).graph
    with pytest.raises(UnreadableModel, match=r"layers \[0, 1\) cannot be cut out"):
        open_target(NoSource()).compile(graph, LayerRange(0, 1), DEVICE, OPTIONS)


def test_what_is_measured_becomes_a_compiled_range(
    open_target: Callable[[Any], HostTarget], residual_model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = residual_model(1, 64)
    target = open_target(model.source)
    reading = Reading(Times(1234.6, 1300.0, 0.0, 5), session_bytes=7, parameter_bytes=9, peak_bytes=100)
    monkeypatch.setattr("autoauto.targets.host.measure.client.Meter.measure", lambda *_: reading)
    compiled = target.compile(model.graph, LayerRange(0, 1), DEVICE, replace(OPTIONS, batch_size=2))
    assert compiled.forward_cycles == 1235
    assert compiled.steps[0].name == "matmul0"
    assert compiled.temporary_bytes == 100 + 2 * 64 * 4 * 2  # what comes in and goes out
    assert compiled.shared == {SESSION: 7}
    assert compiled.exclusive == {"parameter": 64 * 64 * 4}  # never less than the weights
    assert target.readings == [reading]
    assert target.compile(model.graph, LayerRange(0, 3), DEVICE, OPTIONS).steps[0].name == "matmul0 to add"


@pytest.mark.slow
def test_real_layers_take_time_and_memory_by_their_size(
    open_target: Callable[[Any], HostTarget], residual_model: Models
) -> None:
    model = residual_model(2, 1024)
    target = open_target(model.source)
    one, sixteen = (
        target.compile(model.graph, LayerRange(2, 3), DEVICE, replace(OPTIONS, batch_size=n)) for n in (64, 1024)
    )
    assert sixteen.forward_cycles > 2 * one.forward_cycles  # of 16, whatever disturbed either
    for compiled in (one, sixteen):
        assert 4 * MIB <= compiled.exclusive["parameter"] <= 5 * MIB
    assert sixteen.temporary_bytes >= 1024 * 1024 * 4  # its output
    whole = target.compile(model.graph, LayerRange(0, 5), DEVICE, replace(OPTIONS, batch_size=1024))
    assert 8 * MIB <= whole.exclusive["parameter"] <= 10 * MIB
    assert whole.forward_cycles > 4 * one.forward_cycles  # of 32 and more: two products


@pytest.mark.slow
def test_a_model_is_profiled_kind_by_kind(
    open_target: Callable[[Any], HostTarget], residual_model: Models, tmp_path: Path
) -> None:
    model, cache = residual_model(4, 256), ProfileCache(tmp_path / "cache.db")
    target = open_target(model.source)
    profile = profile_model(model.graph, target, DEVICE, replace(OPTIONS, batch_size=3), cache)
    assert len(target.readings) == 3 * 2  # MatMul, Relu and Add, at batch sizes 2 and 4
    assert profile.layers[0].exclusive["parameter"] >= 256 * 256 * 4
    assert profile_model(model.graph, target, DEVICE, replace(OPTIONS, batch_size=3), cache) == profile
    assert len(target.readings) == 3 * 2
