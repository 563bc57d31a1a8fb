"""Devices on which ranges cost other cycles and other memory, as where each has a memory proportion of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from autoauto.evaluate.modes.training_steps import best_by_simulated_step, no_simulated_step_below
from autoauto.plan.pipeline.interleaved import chunk_table, evaluate_chunks, interleaved
from autoauto.plan.pipeline.optimal import has_plan, optimal
from autoauto.plan.pipeline.range_plans import best_with_stage_replicas
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.plan.queries import best_per_device_count, k_best, pareto_front
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Stage
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from tests.cost_tables import with_unlike_devices
from tests.drawn import daily, n_drawn
from tests.plan.exhaustive import all_fitting, exhaustive
from tests.plan.pipeline.test_by_step import plans_that_fit, random_table, step_cycles
from tests.plan.pipeline.test_ranges import outcome, with_exchange
from tests.plan.test_pareto_front import is_better, point_of

MakeTable = Callable[[int], CostTable]


@pytest.mark.parametrize("chunk", daily(range(2)))
def test_the_optimum_costs_what_the_cheapest_of_all_partitions_costs(training_table: MakeTable, chunk: int) -> None:
    n_feasible = n_differ = 0
    for seed in range(400 * chunk, 400 * (chunk + 1)):
        table = with_unlike_devices(training_table(seed), seed)
        best = outcome(exhaustive, table)
        assert outcome(optimal, table) == best, seed
        assert has_plan(table) is (best[0] is not None), seed
        n_feasible += best[0] is not None
        n_differ += best != outcome(optimal, table.of_devices[0])
    assert 100 < n_feasible < 350
    assert n_differ > 100


@pytest.mark.drawn
def test_where_any_device_reaches_any_other_it_does_too(any_table: MakeTable) -> None:
    for seed in range(n_drawn(300)):
        table = with_unlike_devices(with_exchange(any_table(seed), seed), seed)
        assert outcome(optimal, table) == outcome(exhaustive, table), seed


def test_the_next_best_plans_and_the_pareto_front_are_those_of_all_plans(any_table: MakeTable) -> None:
    n_plans = 0
    for seed in range(400):
        table = with_unlike_devices(any_table(seed), seed)
        plans = list(all_fitting(table))
        if not plans:
            continue
        costs = sorted(plan.cost_cycles for plan in plans)
        assert [plan.cost_cycles for plan in k_best(table, 5)] == costs[:5], seed
        points = set(map(point_of, plans))
        front = {point for point in points if not any(is_better(other, point) for other in points)}
        assert sorted(map(point_of, pareto_front(table))) == sorted(front), seed
        n_plans += len(plans)
    assert n_plans > 500


def test_the_first_devices_are_planned_with_their_own_costs(any_table: MakeTable) -> None:
    for seed in range(100):
        table = with_unlike_devices(any_table(seed), seed)
        for n, best in best_per_device_count(table).items():
            cost = None if isinstance(best, Infeasible) else best.cost_cycles
            assert cost == outcome(exhaustive, table.part(0, n))[0], (seed, n)


def test_several_chunks_a_device_cost_what_the_cheapest_of_all_plans_costs() -> None:
    for seed in range(30):
        table = random_table(np.random.default_rng(seed), 7, 2, Period.BARRIER)
        table.receive_cycles[0], table.send_cycles[-1] = 3, 4  # the host alone, as `chunk_table` needs it
        table = with_unlike_devices(replace(table, memory_limit_bytes=np.full(2, 10**6)), seed)
        rows = chunk_table(table, 2)
        plans = (evaluate_chunks(rows, 2, (0, *inner, 7)) for inner in combinations(range(1, 7), 3))
        assert interleaved(table, 2).plan.cost_cycles == min(plan.cost_cycles for plan in plans), seed


@pytest.mark.parametrize(("order", "period"), list(product((Order.ONE_F_ONE_B, Order.POPART), Period)))
def test_the_shortest_step_is_that_of_all_plans_and_proved(order: Order, period: Period) -> None:
    random, n_plans = np.random.default_rng(0), 0
    for seed, (n_layers, n_devices) in enumerate(((5, 2), (6, 3), (8, 4), (9, 3))):
        table = with_unlike_devices(random_table(random, n_layers, n_devices, period), seed + 1)
        table = replace(table, memory_limit_bytes=table.memory_limit_bytes + 20)
        knobs = Knobs(n_ipu=n_devices, schedule=order, n_micro_batches=2 * n_devices + 1)
        steps = [step_cycles(knobs, plan) for plan in plans_that_fit(table)]
        if steps:
            bounded = best_by_simulated_step(StageTable.of(table), knobs)
            assert step_cycles(knobs, bounded.plan) == bounded.step_cycles == bounded.bound_cycles == min(steps)
            assert not no_simulated_step_below(StageTable.of(table), knobs, min(steps) * 1.01)
        n_plans += len(steps)
    assert n_plans > 10


def test_the_last_stage_spares_cycles_of_its_own_device() -> None:
    """The columns of all stages, and of many plans at once, are those of single plans."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        rows = with_unlike_devices(random_table(random, 8, 3, Period.BARRIER), seed)
        rows = rows.with_memory(lambda memory: replace(memory, recompute=True))
        spared = rows.on(2).compute_prefix_cycles // 4
        stages = StageTable.of(rows, None, spared)
        costs = StageCosts.of(stages)
        plans = [(0, *inner, 8) for inner in combinations(range(1, 8), 2)]
        columns = costs.plans(np.array([costs.cuts(plan) for plan in plans]))
        for plan, together in zip(plans, columns, strict=True):
            single = stages.evaluate(plan, [True] * 3)
            assert together.sum(axis=1).tolist() == list(map(_cycles, single.stages))


def _cycles(stage: Stage) -> int:
    return stage.compute_cycles + stage.weight_cycles + stage.receive_cycles + stage.send_cycles


def test_stages_have_the_memory_of_their_device() -> None:
    for seed in range(20):
        table = with_unlike_devices(random_table(np.random.default_rng(seed), 8, 2, Period.BARRIER), seed)
        rows = arranged(table, (0, 1, 1, 0), [1] * 4)
        moments = (np.array([[1, 1]]), np.array([[1, 1]]))
        costs = StageCosts.of(StageTable(rows, (0, 1, 1, 0), moments))
        cuts = costs.cuts((0, 2, 4, 6, 8))
        plan = costs.evaluate(cuts, [False] * 4)
        for device in range(2):
            held = sum(stage.total_bytes for stage in plan.stages if stage.device == device)
            assert held - int(table.memory_limit_bytes[device]) == costs.excess_bytes(device, cuts)
            peaks = [table.on(device).memory.stage(*stage.layers).temporary_bytes for stage in plan.stages]
            own = [peak for peak, stage in zip(peaks, plan.stages, strict=True) if stage.device == device]
            assert sum(s.memory_bytes["temporary"] for s in plan.stages if s.device == device) == max(own)


def test_stage_replicas_are_refused(any_table: MakeTable) -> None:
    tables = (with_unlike_devices(any_table(seed), seed) for seed in range(100))
    table = next(table for table in tables if len(set(map(id, table.of_devices))) > 1)
    with pytest.raises(BadInput, match="like devices"):
        best_with_stage_replicas(table)


def test_equal_tables_are_planned_as_one(any_table: MakeTable) -> None:
    for seed in range(100):
        table = any_table(seed)
        same = replace(table, of_devices=(table,) * table.n_devices)
        assert outcome(optimal, same) == outcome(optimal, table), seed
