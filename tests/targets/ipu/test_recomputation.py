"""The memory of ranges that compute their forward pass again."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoauto.estimate.memory import range_memory
from autoauto.graph.load import load_graph
from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import Profiler
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.costs.stash import checkpoints
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.targets.ipu.target import IpuTarget
from tests.drawn import n_examples

SHAPE, WEIGHT = (1, 64, 8, 8), (64, 64, 1, 1)
SIZE = 64 * 8 * 8 * 2
N_BLOCKS = 6


@pytest.fixture(scope="session")
def chain(graph_of: Any, node: Any) -> LayerGraph:
    """Blocks of three layers, of which a GELU and a convolution stash their inputs, and a shortcut around them."""
    nodes, before = [], "x:1x64x8x8"
    for i in range(N_BLOCKS):
        nodes += [
            node("Conv", [before, WEIGHT], SHAPE, f"a{i}"),
            node("Gelu", [f"a{i}"], SHAPE, f"b{i}"),
            node("Add", [f"b{i}", before], SHAPE, f"c{i}"),
        ]
        before = f"c{i}"
    made: LayerGraph = graph_of(nodes)
    return made


def compiled(graph: LayerGraph, start: int, stop: int, device: Device, options: CompileOptions) -> CompiledRange:
    return IpuTarget().compile(graph, LayerRange(start, stop), device, options)


def test_checkpoints_lie_between_blocks(chain: LayerGraph) -> None:
    assert checkpoints(chain)
    assert all(boundary % 3 == 0 for boundary in checkpoints(chain))


def test_a_model_that_stashes_little_has_none(graph_of: Any, node: Any) -> None:
    graph = graph_of([node("Conv", ["x:1x64x8x8", WEIGHT], SHAPE, "a"), node("Relu", ["a"], SHAPE, "b")])
    assert checkpoints(graph) == ()


def test_a_range_stashes_its_checkpoints_and_computes_one_segment(
    chain: LayerGraph, device: Device, options: Callable[..., CompileOptions]
) -> None:
    chosen, whole = checkpoints(chain), compiled(chain, 0, len(chain), device, options(4, training=True))
    assert whole.checkpoint_bytes == len(chosen) * 4 * SIZE
    assert whole.activation_bytes == 2 * N_BLOCKS * 4 * SIZE
    again = whole.recomputed()
    assert again.backward_cycles == whole.backward_cycles + whole.forward_cycles
    assert compiled_bytes(again)["temporary"] == whole.recompute_temporary_bytes < whole.temporary_bytes
    start, stop = chosen[-2:]
    segment = compiled(chain, start, stop, device, options(4, training=True))
    assert segment.checkpoint_bytes == 0
    tail = compiled(chain, chosen[-1], len(chain), device, options(4, training=True))
    spared = whole.recomputed(keeps_last=True)
    assert 0 < whole.last_segment_cycles < whole.forward_cycles
    assert again.backward_cycles - spared.backward_cycles == whole.last_segment_cycles
    assert tail.recomputed(keeps_last=True).backward_cycles == tail.backward_cycles, "one segment"
    assert compiled_bytes(spared) == compiled_bytes(again)
    assert segment.recompute_temporary_bytes == segment.temporary_bytes, "nothing to gain between two checkpoints"


def test_a_range_without_what_the_target_knows_of_recomputation_keeps_its_peak() -> None:
    plain = CompiledRange((), 5, {}, {}, backward_temporary_bytes=7)
    assert plain.recomputed() == plain


@pytest.mark.parametrize("name", ["resnet50-train", "bert-base-128-mlm"])
def test_the_estimate_bounds_ranges_compiled_whole(
    name: str, device: Device, options: Callable[..., CompileOptions], tmp_path: Any
) -> None:
    graph, chosen = load_graph(name), options(8, training=True)
    profile = Profiler(graph, IpuTarget(), device, ProfileCache(tmp_path / "cache.db")).profile(chosen)
    memory, n = range_memory(profile, recompute=True), len(graph)
    for start, stop in ((0, n), (0, n // 2), (n // 3, n), (n // 3, 2 * n // 3), (n - 9, n)):
        whole = compiled(graph, start, stop, device, chosen)
        inputs = profile.layers[start].input_bytes
        assert whole.recompute_temporary_bytes <= memory.temporary.between(start, stop)
        assert inputs + whole.checkpoint_bytes <= memory.stash_entry.between(start, stop)


@given(batch_size=st.integers(1, 40), start=st.integers(0, 16), n_layers=st.integers(1, 18))
@settings(deadline=None, max_examples=n_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_layer_more_never_needs_less(
    chain: LayerGraph,
    device: Device,
    options: Callable[..., CompileOptions],
    batch_size: int,
    start: int,
    n_layers: int,
) -> None:
    stop, chosen = min(start + n_layers, len(chain)), options(batch_size, training=True)
    part = compiled(chain, start, stop, device, chosen)
    for ends in ((max(start - 1, 0), stop), (start, min(stop + 1, len(chain)))):
        whole = compiled(chain, *ends, device, chosen)
        assert part.recompute_temporary_bytes <= whole.recompute_temporary_bytes
        assert part.checkpoint_bytes <= whole.checkpoint_bytes
        assert whole.recompute_temporary_bytes <= whole.temporary_bytes + whole.checkpoint_bytes
