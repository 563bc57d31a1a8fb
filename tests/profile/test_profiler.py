"""Profiles of models: what is compiled, what is shared, and layers alone in a model of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from gc import collect
from math import inf
from pathlib import Path

import pytest

from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import Profiler
from autoauto.profile.variants import isolate
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, ProgramStep
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Device
from autoauto.records.layers import Derivative, LayerGraph, LayerRange, derivative
from autoauto.records.units import Precision
from autoauto.targets.ipu.session import IpuSession

DEVICE = Device("bow", 1.85e9, 894 * 1024**2, 1472, 638976)
OPTIONS = CompileOptions(4, Precision.FP16, session=IpuSession())


class CountingTarget:
    """Compiles to numbers that a reader can check, and records what it compiles."""

    version = "counting 1"

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        return device, options

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        layer = graph.layers[layers.start]
        self.compiled.append(layer.kind)
        weights = sum(graph.tensors[i].n_bytes(1, options.precision) for i in layer.weights)
        steps = (ProgramStep(layer.name, 100, 50), ProgramStep(layer.name, 20, 70))
        shared = {f"vertexCode_{layer.kind}": 300, "vertexCode_copy": 40, "stack_program": 9}
        return CompiledRange(steps, 0, shared, {"controlCode": 5, "parameter": weights, "gradient": weights})


@pytest.fixture
def cache(tmp_path: Path) -> ProfileCache:
    return ProfileCache(tmp_path / "cache.db")


def test_every_kind_is_compiled_once_and_then_never_again(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    graph = chain(kinds=["a", "b", "a", "a", "b"])
    target = CountingTarget()
    first = Profiler(graph, target, DEVICE, cache).profile(OPTIONS)
    assert target.compiled == ["a", "b"]
    assert Profiler(graph, target, DEVICE, cache).profile(OPTIONS) == first
    assert target.compiled == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [{"batch_size": 8}, {"session": IpuSession(0.3)}, {"precision": Precision.FP32}, {"training": True}],
)
def test_another_option_is_another_compile(
    chain: Callable[..., LayerGraph], cache: ProfileCache, change: dict[str, object]
) -> None:
    target = CountingTarget()
    Profiler(chain(kinds=["a"]), target, DEVICE, cache).profile(OPTIONS)
    Profiler(chain(kinds=["a"]), target, DEVICE, cache).profile(replace(OPTIONS, **change))  # type: ignore[arg-type]
    assert target.compiled == ["a", "a"]


class BoundTarget(CountingTarget):
    """Kind "a" takes as long under any bound of 0.5 of a tile or more, kind "b" under none but its own."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        compiled = super().compile(graph, layers, device, options)
        is_free = graph.layers[layers.start].kind == "a"
        return replace(compiled, binding_below_bytes=0.5 * device.tile_memory_bytes if is_free else inf)


def test_sessions_whose_bound_does_not_bind_share_a_compile(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    target, graph = BoundTarget(), chain(kinds=["a", "b"])
    profiler = Profiler(graph, target, DEVICE, cache)
    profiles = [profiler.profile(replace(OPTIONS, session=IpuSession(p))) for p in (0.3, 0.6, 0.5, 1.0)]
    assert target.compiled == ["a", "b", "a", "b", "b", "b"]
    assert len({repr(profile.layers) for profile in profiles}) == 1
    del profiler
    collect()  # what it has not written yet it writes now
    again = Profiler(graph, target, DEVICE, cache)
    assert again.profile(replace(OPTIONS, session=IpuSession(0.5))) == profiles[2]
    assert len(target.compiled) == 6


def test_layers_share_bytes_with_equal_keys(chain: Callable[..., LayerGraph], cache: ProfileCache) -> None:
    profile = Profiler(chain(kinds=["a", "b"]), CountingTarget(), DEVICE, cache).profile(OPTIONS)
    assert profile.layers[0].shared == {"vertexCode_a": 300, "vertexCode_copy": 40, "stack_program": 9}
    assert profile.layers[1].shared == {"vertexCode_b": 300, "vertexCode_copy": 40, "stack_program": 9}
    assert profile.layers[0].forward_cycles == 120
    assert profile.layers[0].temporary_bytes == 70


def test_a_weight_that_two_layers_read_is_counted_once_in_a_range(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    graph = chain(kinds=["a", "b"], tie=(0, 1))
    profile = Profiler(graph, CountingTarget(), DEVICE, cache).profile(OPTIONS)
    weight = graph.layers[0].weights[0]
    n_bytes = graph.tensors[weight].n_bytes(1, Precision.FP16)
    for layer in profile.layers:
        assert layer.exclusive["parameter"] == 0
        assert layer.shared[f"parameter_{weight}"] == n_bytes


def test_the_first_layer_is_compiled_separately_for_training(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    target = CountingTarget()
    Profiler(chain(kinds=["a", "b", "a", "a"]), target, DEVICE, cache).profile(replace(OPTIONS, training=True))
    assert target.compiled == ["a", "b", "a"]  # the input of the model needs no gradient


def test_every_layer_has_the_bytes_that_it_is_the_first_to_stash(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    graph = chain(kinds=["a", "b", "a"])
    for training in (False, True):
        profile = Profiler(graph, CountingTarget(), DEVICE, cache).profile(replace(OPTIONS, training=training))
        n_bytes = 4 * 64 * 2 * training
        assert [layer.activation_bytes for layer in profile.layers] == [n_bytes] * 3
        assert [layer.stashed_input_bytes for layer in profile.layers] == [0] * 3


def test_the_gradient_of_a_weight_that_two_layers_read_is_counted_once(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    graph = chain(kinds=["a", "b", "c"], tie=(0, 1))
    weight = graph.layers[0].weights[0]
    profile = Profiler(graph, CountingTarget(), DEVICE, cache).profile(replace(OPTIONS, training=True))
    shared = [{key for key in layer.shared if key.startswith("gradient")} for layer in profile.layers]
    assert shared == [{f"gradient_{weight}"}, {f"gradient_{weight}"}, set()]
    assert [layer.exclusive["gradient"] for layer in profile.layers] == [0, 0, 64 * 64 * 2]


def test_progress_counts_kinds(chain: Callable[..., LayerGraph], cache: ProfileCache) -> None:
    seen: list[tuple[int, int]] = []
    Profiler(chain(kinds=["a", "b", "a"]), CountingTarget(), DEVICE, cache).profile(
        OPTIONS, lambda *count: seen.append(count)
    )
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_a_model_of_fixed_batch_is_refused_above_one(chain: Callable[..., LayerGraph], cache: ProfileCache) -> None:
    graph = replace(chain(kinds=["a"]), fixed_batch="Reshape r1 mixes samples")
    with pytest.raises(Infeasible, match="Reshape r1"):
        Profiler(graph, CountingTarget(), DEVICE, cache).profile(OPTIONS)
    assert len(Profiler(graph, CountingTarget(), DEVICE, cache).profile(replace(OPTIONS, batch_size=1))) == 1


class SlowTarget(CountingTarget):
    """Compiles at powers of two; a layer takes 100 cycles and 10 more a sample squared, 7 bytes a sample."""

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        high = 1 << (batch_size - 1).bit_length()
        return (batch_size,) if high == batch_size else (high // 2, high)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        return options.batch_size

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        n = options.batch_size
        self.compiled.append(f"{graph.layers[layers.start].kind}{n}")
        return CompiledRange(
            (ProgramStep("all", 100 + 10 * n * n, 7 * n),), 0, {"runtime_session": 9}, {"parameter": n}
        )


def test_numbers_are_interpolated_between_two_compiled_batch_sizes(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    target = SlowTarget()
    profile = Profiler(chain(kinds=["a", "b", "a"]), target, DEVICE, cache).profile(replace(OPTIONS, batch_size=7))
    assert target.compiled == ["a4", "b4", "a8", "b8"]
    first = profile.layers[0]
    assert first.forward_cycles == 100 + 10 * (16 + 3 * (64 - 16) // 4)
    assert first.temporary_bytes == 7 * 7
    assert (first.shared, first.exclusive) == ({"runtime_session": 9}, {"parameter": 7})


def test_sizes_of_tensors_are_exact_between_compiled_batch_sizes(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    graph, options = chain(kinds=["a", "b"]), replace(OPTIONS, batch_size=7)
    exact = Profiler(graph, CountingTarget(), DEVICE, cache).profile(options)
    between = Profiler(graph, SlowTarget(), DEVICE, cache).profile(options)
    assert [layer.output_bytes for layer in between.layers] == [layer.output_bytes for layer in exact.layers]
    assert between.layers[0].input_bytes == 7 * 64 * 2
    assert between.options == options


def test_neighbouring_batch_sizes_share_their_compiles(chain: Callable[..., LayerGraph], cache: ProfileCache) -> None:
    target = SlowTarget()
    for batch_size in (1, 2, 3, 4, 5, 6, 7, 8):
        options = replace(OPTIONS, batch_size=batch_size, session=IpuSession(batch_size / 10))
        Profiler(chain(kinds=["a"]), target, DEVICE, cache).profile(options)
    assert target.compiled == ["a1", "a2", "a4", "a8"]


def test_compiled_layers_are_cached_when_a_later_compile_fails(
    chain: Callable[..., LayerGraph], cache: ProfileCache
) -> None:
    class Failing(SlowTarget):
        def compile(
            self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions
        ) -> CompiledRange:
            if graph.layers[layers.start].kind == "b":
                raise BadInput("b is broken")
            return super().compile(graph, layers, device, options)

    with pytest.raises(BadInput, match="b is broken"):
        Profiler(chain(kinds=["a", "b"]), Failing(), DEVICE, cache).profile(OPTIONS)
    target = SlowTarget()
    Profiler(chain(kinds=["a", "b"]), target, DEVICE, cache).profile(OPTIONS)
    assert target.compiled == ["b4"]


def test_a_layer_alone_reads_inputs_and_writes_outputs_of_its_model(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 1, Derivative(graph, frozenset()))
    (layer,) = alone.layers
    assert [alone.tensors[i].producer for i in layer.inputs] == [-1]
    assert [(alone.tensors[i].producer, alone.tensors[i].last_use) for i in layer.outputs] == [(0, 1)]
    shapes = [graph.tensors[i].shape for i in graph.layers[1].operands]
    assert [alone.tensors[i].shape for i in layer.operands] == shapes


def test_inputs_with_gradients_come_from_a_layer_before(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 1, derivative(graph))
    before, layer = alone.layers
    assert before.outputs == layer.inputs
    assert [alone.tensors[i][4:6] for i in (*layer.inputs, *layer.outputs)] == [(0, 1), (1, 2)]
    assert derivative(alone).trained == {0, 1}


def test_a_layer_without_inputs_with_gradients_has_no_layer_before(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "b", "a"])
    alone = isolate(graph, 0, derivative(graph))
    assert len(alone) == 1
    assert not derivative(alone).needs_gradient(alone.layers[0].inputs[0])


def test_a_layer_alone_has_the_same_stash_as_in_the_model(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a", "b", "a"])
    for index in range(3):
        alone = isolate(graph, index, derivative(graph))
        (stash_alone,), (stash,) = derivative(alone).stashed(len(alone) - 1), derivative(graph).stashed(index)
        assert alone.tensors[stash_alone].name == graph.tensors[stash].name
