from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from autoauto.estimate import anchored, cost_table
from autoauto.plan import evaluate
from autoauto.records.profile import LayerProfile

if TYPE_CHECKING:
    from tests.estimate.conftest import MakeCluster, MakeProfile


def test_measured_stages_take_what_they_took(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=cycles) for cycles in (10, 30, 20, 0, 20)]
    table = cost_table(make_profile(*layers), make_cluster(3), 1.0)
    first, second, third = evaluate(table, (0, 2, 3, 5)).stages
    told = anchored(table, [replace(first, forward_cycles=80), replace(second, forward_cycles=7)])
    assert [told.compute_cycles(n, n + 1) for n in range(5)] == [20, 60, 7, 0, 20]
    assert told.compute_cycles(*third.layers) == third.compute_cycles
    assert told.memory_limit_bytes is table.memory_limit_bytes


def test_what_it_takes_to_enter_goes_with_the_stage(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    layers = [replace(nothing, forward_cycles=cycles) for cycles in (10, 30, 20, 20)]
    table = replace(cost_table(make_profile(*layers), make_cluster(2), 1.0), entry_cycles=np.array([0, 4, 10, 5]))
    first, second = evaluate(table, (0, 2, 4)).stages
    told = anchored(table, [replace(first, forward_cycles=80), replace(second, forward_cycles=25)])
    assert [told.compute_cycles(*stage.layers) for stage in (first, second)] == [80, 25]
    assert told.entry_cycles.tolist() == [0, 8, 5, 2]


def test_a_stage_that_was_estimated_to_take_nothing_stays(
    make_profile: MakeProfile, make_cluster: MakeCluster, nothing: LayerProfile
) -> None:
    table = cost_table(make_profile(nothing, nothing), make_cluster(1), 1.0)
    [stage] = evaluate(table, (0, 2)).stages
    assert anchored(table, [replace(stage, forward_cycles=9)]).compute_cycles(0, 2) == 0
