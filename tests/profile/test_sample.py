"""Which ranges are chosen as examples, and how they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.profile.sample import MAX_RANGES, choose, is_sampled, sample, sample_batch_sizes
from autoauto.records.costs.correction import WholeRange
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, LayerProfile, ModelProfile, ProgramStep
from autoauto.records.errors import OutOfMemory
from autoauto.records.hardware import Cluster, Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import Run
from autoauto.records.units import Precision

DEVICE = Device("small", 1e6, 10**8, 1, 10**8)
OPTIONS = CompileOptions(64, Precision.FP16)


@given(st.integers(2, 80), st.integers(1, MAX_RANGES), st.floats(0.1, 20), st.integers(0, 9))
def test_ranges_differ_and_lie_in_the_model(n_layers: int, most: int, budget: float, seed: int) -> None:
    chosen = choose(["Conv", "Relu"] * (n_layers // 2), [5] * (n_layers // 2 * 2), budget, most, seed)
    assert len(set(chosen)) == len(chosen) <= most
    assert all(0 <= start < stop <= n_layers and stop - start >= 2 for start, stop in chosen)
    assert chosen == choose(["Conv", "Relu"] * (n_layers // 2), [5] * (n_layers // 2 * 2), budget, most, seed)


def test_lengths_and_positions_are_spread() -> None:
    chosen = choose(["Conv"] * 160, [1] * 160, 100.0, 16)
    lengths = sorted(stop - start for start, stop in chosen)
    assert lengths[0] < 20
    assert lengths[-1] > 100
    assert all(later < 2 * earlier for earlier, later in pairwise(lengths))
    covered = {layer for layers in chosen for layer in range(*layers)}
    assert len(covered) == 160


def test_rare_operators_are_in_some_range() -> None:
    operators = ["Conv"] * 60 + ["Gelu"] * 6 + ["Conv"] * 60
    rare = [
        any("Gelu" in operators[slice(*layers)] for layers in choose(operators, [1] * 126, 100.0, 8, seed))
        for seed in range(20)
    ]
    assert all(rare)


def test_a_budget_ends_the_sample_but_not_before_a_third() -> None:
    def cost(budget: float) -> tuple[int, float]:
        chosen = choose(["Conv"] * 100, [3] * 100, budget, 24)
        return len(chosen), sum(stop - start for start, stop in chosen) / 100

    assert cost(1000.0)[0] == 24
    assert cost(0.0)[0] == 8
    n_ranges, spent = cost(4.0)
    assert 8 < n_ranges < 24
    assert spent <= 4.0


def test_one_layer_has_no_ranges() -> None:
    assert choose(["Conv"], [1], 10.0, 8) == []


def test_samples_at_few_batch_sizes_are_enough_for_all() -> None:
    sampled: list[int] = []
    for batch_size in range(128, 0, -1):
        if not is_sampled(batch_size, sampled):
            sampled += sample_batch_sizes(batch_size)
        assert is_sampled(batch_size, sampled)
    assert sampled == [16, 64, 1]


class SmallTarget:
    """Compiles ranges of at most five layers."""

    version = "small"

    def __init__(self) -> None:
        self.compiled: list[tuple[LayerRange, int]] = []

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        return device, options

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        self.compiled.append((layers, options.batch_size))
        if layers.stop - layers.start > 5:
            raise OutOfMemory("too much", 1, layers, {})
        return CompiledRange((ProgramStep("all", 7, 3),), 2, {"code_a": 4}, {})


def profile_of(n_layers: int, cycles: int) -> ModelProfile:
    layers = (LayerProfile(cycles, 0, {}, {}, 0, 0, 0, 0, 0),) * n_layers
    names = ("layer",) * n_layers, ("a",) * n_layers, (None,) * n_layers
    return ModelProfile("chain", "small", OPTIONS, *names, layers)


def test_a_sample_is_compiled_at_the_batch_size_of_the_profile(chain: Callable[..., LayerGraph]) -> None:
    graph, target, counts = chain(kinds=["a"] * 8), SmallTarget(), []
    wholes = sample(graph, target, DEVICE, profile_of(8, 9), 0.5, lambda done, total: counts.append((done, total)))
    assert {batch_size for _, batch_size in target.compiled} == {OPTIONS.batch_size}
    assert 0 < len(wholes) < len(target.compiled)
    assert all(whole == WholeRange(whole.layers, 7, 2, {"code": 4, "temporary": 3}) for whole in wholes)
    assert counts[0][0] == 0
    assert counts[-1][0] == counts[-1][1]


class RunningTarget(SmallTarget):
    """A real device: it runs plans, too."""

    def run(self, graph: LayerGraph, plan: Plan, cluster: Cluster, options: CompileOptions, replicas: int) -> Run:
        raise AssertionError("a sample runs no plan")


def test_a_real_device_takes_fewer_ranges_of_a_large_model(chain: Callable[..., LayerGraph]) -> None:
    graph = chain(kinds=["a"] * 100)

    def n_ranges(target: SmallTarget, seconds: float) -> int:
        sample(graph, target, DEVICE, profile_of(100, round(seconds * DEVICE.clock_hz / 100)), 1.0)
        return len(target.compiled)

    assert n_ranges(RunningTarget(), 1.0) == 12
    assert n_ranges(RunningTarget(), 0.05) == n_ranges(SmallTarget(), 1.0) > 12


@pytest.mark.slow
def test_ranges_are_the_same_in_every_process() -> None:
    """Although sets of names have another order in every process."""
    operators = ["Conv", "Relu after Conv", "Conv", "Add", "Relu after Add", "MatMul"] * 4
    cycles = [100, 10, 100, 10, 10, 100] * 4
    asked = f"from autoauto.profile.sample import choose; print(choose({operators}, {cycles}, 100.0, {MAX_RANGES}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(6)
    }
    assert len(printed) == 1
