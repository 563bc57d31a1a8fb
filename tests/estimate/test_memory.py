"""The memory columns of a cost table, and the memory of real plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from autoauto.estimate.memory import (
    exclusive_prefix_bytes,
    is_training,
    memory_limit_bytes,
    range_memory,
    shared_memory,
    stash_entries,
)
from autoauto.estimate.table import cost_table
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.optimal import optimal
from autoauto.profile.cache import ProfileCache
from autoauto.profile.profiler import Profiler
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget

MakeProfile = Callable[..., ModelProfile]


def test_shared_keys_are_numbered_and_their_largest_size_counts(
    make_profile: MakeProfile, nothing: LayerProfile
) -> None:
    sizes = [{"code_a": 5, "code_b": 7}, {"code_b": 9}, {}, {"state_a_1": 2, "code_a": 4}]
    shared = shared_memory(make_profile(*(replace(nothing, shared=size) for size in sizes)))
    assert shared.keys == ((0, 1), (1,), (), (2, 0))
    assert shared.n_bytes == (5, 9, 2)
    assert shared.categories == ("code", "code", "state")


def test_exclusive_bytes_add_up_by_category(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    sizes = [{"parameter": 5}, {"parameter": 7, "controlCode": 1}, {"controlCode": 2}]
    sums = exclusive_prefix_bytes(make_profile(*(replace(nothing, exclusive=size) for size in sizes)))
    assert {name: column.tolist() for name, column in sums.items()} == {
        "parameter": [0, 5, 12, 12],
        "controlCode": [0, 0, 1, 3],
    }


def test_the_peak_is_temporary_and_carried(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    layers = [replace(nothing, temporary_bytes=t, carried_bytes=c) for t, c in ((5, 1), (0, 8))]
    assert range_memory(make_profile(*layers)).peak_bytes.tolist() == [6, 8]
    with pytest.raises(BadInput, match="temporary and carried bytes"):
        range_memory(make_profile(replace(nothing, temporary_bytes=10**17)))


def test_layers_of_one_kind_store_once_what_a_subgraph_has(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    layers = [
        replace(nothing, exclusive={"control": code, "parameter": weight}, shared=shared, temporary_bytes=1)
        for code, weight, shared in ((5, 80, {}), (6, 70, {"parameter_3": 9}), (7, 60, {}), (5, 80, {}))
    ]
    profile = replace(make_profile(*layers), kinds=("a", "a", "b", "a"), outlined=("control",))
    plain, outlined = range_memory(profile).forms
    assert plain.by_category(0, 4, 0) == {"control": 23, "parameter": 290 + 9, "temporary": 1}
    assert outlined.by_category(0, 4, 0) == {"control": 6 + 7, "outlined": 80, "parameter": 290 + 9, "temporary": 1}
    assert outlined.by_category(2, 3, 0) == {"control": 7, "parameter": 60, "temporary": 1}, "no other is of its kind"


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.FP32])
def test_outlined_ranges_are_estimated_as_they_are_compiled(precision: Precision, tmp_path: Path) -> None:
    """Never below what the compiler says of the range, and equal for the whole model but for what layers share."""
    graph, device, options = (
        load_graph("bert-base-128"),
        load_cluster("c600").devices[0],
        CompileOptions(4, precision, session=IpuSession(0.3)),
    )
    memory = range_memory(Profiler(graph, IpuTarget(), device, ProfileCache(tmp_path / "profiles.db")).profile(options))
    random = Random(7)
    for start, stop in [(0, len(graph)), *(sorted(random.sample(range(len(graph) + 1), 2)) for _ in range(12))]:
        plain, outlined = (sum(form.by_category(start, stop, 0).values()) for form in memory.forms)
        small = replace(device, memory_bytes=1.0)
        whole = sum(compiled_bytes(IpuTarget().compile(graph, LayerRange(start, stop), small, options)).values())
        assert whole <= min(plain, outlined)
        if stop - start > len(graph) // 2:
            assert outlined < min(plain, 1.02 * whole)


def test_activations_add_up(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    profile = make_profile(replace(nothing, activation_bytes=3), replace(nothing, activation_bytes=4))
    assert range_memory(profile).activation_prefix_bytes.tolist() == [0, 3, 7]


def test_limits_are_rounded_down_after_the_proportion(make_cluster: Callable[..., Cluster]) -> None:
    for proportion in (0.85, 0.3, 1.0, 1 / 3):
        limits = memory_limit_bytes(make_cluster(2, 894 * 1024**2), proportion)
        assert limits.tolist() == [int(894 * proportion * 1024**2)] * 2


@pytest.mark.parametrize("proportion", [0.0, -0.1, 1.01, float("nan")])
def test_a_proportion_outside_its_range_is_refused(make_cluster: Callable[..., Cluster], proportion: float) -> None:
    with pytest.raises(BadInput, match=r"planning_proportion must be in \(0, 1\], got"):
        memory_limit_bytes(make_cluster(1), proportion)


def test_limits_above_int64_are_cut(make_cluster: Callable[..., Cluster]) -> None:
    assert memory_limit_bytes(make_cluster(1, 10**30), 1.0).tolist() == [2**62]


def compiled_for(profile: ModelProfile, training: bool) -> ModelProfile:
    return replace(profile, options=CompileOptions(1, Precision.FP16, training))


def test_options_of_a_profile_decide_on_training_else_in_flight_does(
    make_profile: MakeProfile, nothing: LayerProfile
) -> None:
    imported = make_profile(nothing)
    assert [is_training(imported, in_flight) for in_flight in (None, (1,), (2,))] == [False, True, True]
    assert [is_training(compiled_for(imported, mode), (1,)) for mode in (False, True)] == [False, True]
    assert is_training(compiled_for(imported, True), None, recompute=True)


@pytest.mark.parametrize(("in_flight", "recompute"), [((2,), False), ((1,), True), (None, True)])
def test_a_profile_for_inference_has_no_stash(
    make_profile: MakeProfile, nothing: LayerProfile, in_flight: tuple[int, ...] | None, recompute: bool
) -> None:
    with pytest.raises(BadInput, match="recompute and in_flight above 1 need a profile for training"):
        is_training(compiled_for(make_profile(nothing), False), in_flight, recompute)


@pytest.mark.parametrize("in_flight", [(), (1,), (1, 0), (1, 1, 1)])
def test_every_device_needs_a_count(in_flight: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"in_flight needs a count from 1 for each of 2 devices, got \["):
        stash_entries(2, in_flight)


def test_stashed_inputs_and_recomputed_inputs_by_layer(make_profile: MakeProfile, nothing: LayerProfile) -> None:
    layers = [replace(nothing, input_bytes=n, stashed_input_bytes=n // 2) for n in (5, 9)]
    profile = make_profile(*layers)
    memory = range_memory(profile)
    assert (memory.stashed_input_bytes.tolist(), memory.input_bytes.tolist()) == ([2, 4], [5, 9])


def test_a_batch_of_resnet50_trains_on_four_devices_in_1f1b_and_not_in_gpipe(tmp_path: Path) -> None:
    cluster = load_cluster("bow-2000")
    options, cache = CompileOptions(16, Precision.FP16, training=True), ProfileCache(tmp_path / "cache.db")
    profile = Profiler(load_graph("resnet50"), IpuTarget(), cluster.devices[0], cache).profile(options)
    plan = optimal(cost_table(profile, cluster, 0.85, in_flight=(4, 3, 2, 1)))
    assert all(stage.total_bytes <= stage.limit_bytes for stage in plan.stages)
    with pytest.raises(Infeasible) as refusal:
        optimal(cost_table(profile, cluster, 0.85, in_flight=(16,) * 4))
    assert refusal.value.memory_bytes["stash"] > refusal.value.excess_bytes > 0
    recomputing = optimal(cost_table(profile, cluster, 0.85, in_flight=(4, 3, 2, 1), recompute=True))
    assert recomputing.compute_cycles > plan.compute_cycles
