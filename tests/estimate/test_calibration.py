"""Entry overhead of ranges, and tables calibrated to measured stages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from autoauto.estimate.table import calibrated, cost_table, monotone_entry_cycles, with_entry_overhead
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.correction import Correction, RangeFeature
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import LayerProfile
from autoauto.records.units import Precision

if TYPE_CHECKING:
    from tests.estimate.conftest import MakeCluster, MakeProfile


def test_a_range_costs_its_entry_overhead(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=100, input_bytes=n_bytes) for n_bytes in (60, 30, 90)]
    profile = replace(make_profile(*layers), options=CompileOptions(1, Precision.FP32))
    plain = cost_table(profile, make_cluster(2), 1.0)
    correction = Correction(features={RangeFeature.ENTRY: 2.0}, batch_sizes=((1, 0.5), (4, 1.0)), n_examples=5)
    table = with_entry_overhead(plain, profile, correction)
    assert [table.compute_cycles(start, 3) for start in range(3)] == [300, 200 + 10, 100 + 30]
    assert with_entry_overhead(plain, profile, Correction({"": 2.0})) is plain


def test_a_range_costs_no_more_than_one_that_starts_before_it() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        cycles, entry = random.integers(0, 50, 9), random.integers(0, 200, 9)
        prefix = np.concatenate(([0], np.cumsum(cycles)))
        lowered = monotone_entry_cycles(entry, prefix)
        assert (lowered <= entry).all()
        assert (lowered >= 0).all()
        assert (lowered[1:] <= lowered[:-1] + cycles[:-1]).all()
        assert monotone_entry_cycles(lowered, prefix).tolist() == lowered.tolist()


def test_a_calibrated_stage_costs_its_measured_cycles(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=cycles) for cycles in (10, 30, 20, 0, 20)]
    table = cost_table(make_profile(*layers), make_cluster(3), 1.0)
    first, second, third = evaluate(table, (0, 2, 3, 5)).stages
    table_after = calibrated(table, [replace(first, forward_cycles=80), replace(second, forward_cycles=7)])
    assert [table_after.compute_cycles(n, n + 1) for n in range(5)] == [20, 60, 7, 0, 20]
    assert table_after.compute_cycles(*third.layers) == third.compute_cycles
    assert table_after.memory_limit_bytes is table.memory_limit_bytes


def test_entry_overhead_is_scaled_with_its_stage(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=cycles) for cycles in (10, 30, 20, 20)]
    table = replace(cost_table(make_profile(*layers), make_cluster(2), 1.0), entry_cycles=np.array([0, 4, 10, 5]))
    first, second = evaluate(table, (0, 2, 4)).stages
    table_after = calibrated(table, [replace(first, forward_cycles=80), replace(second, forward_cycles=25)])
    assert [table_after.compute_cycles(*stage.layers) for stage in (first, second)] == [80, 25]
    assert table_after.entry_cycles.tolist() == [0, 8, 5, 2]


def test_a_stage_with_an_estimate_of_0_is_not_scaled(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    table = cost_table(make_profile(nothing, nothing), make_cluster(1), 1.0)
    [stage] = evaluate(table, (0, 2)).stages
    assert calibrated(table, [replace(stage, forward_cycles=9)]).compute_cycles(0, 2) == 0
