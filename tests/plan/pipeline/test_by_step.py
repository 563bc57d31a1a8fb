"""The plan with the shortest step against all plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from autoauto.evaluate.modes.training_steps import (
    LONG_STEP,
    PLANNING_EFFORT,
    best_by_simulated_step,
    no_simulated_step_below,
    pipeline_step_cycles,
)
from autoauto.plan.pipeline import by_step
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import evaluate
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.pipeline.stage_table import StageTable, arranged
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from autoauto.records.schedule import Order
from autoauto.schedule.orders.registry import stage_devices_of
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs
from tests.cost_tables import make_table, with_memory

FIXED = (Order.GPIPE, Order.ONE_F_ONE_B, Order.POPART)


def random_table(random: np.random.Generator, n_layers: int, n_devices: int, period: Period) -> CostTable:
    """Layers with backward passes and memory, on devices of several clocks with links."""
    forward = random.integers(1, 50, n_layers)
    backward = 2 * forward + random.integers(0, 20, n_layers)
    sums = [np.concatenate(([0], np.cumsum(column))) for column in (forward + backward, backward)]
    n_bytes = np.concatenate(([0], np.cumsum(random.integers(1, 10, n_layers))))
    table = make_table(
        sums[0],
        n_devices,
        backward_prefix_cycles=sums[1],
        receive_cycles=random.integers(2, 20, (n_devices, n_layers)),
        send_cycles=random.integers(2, 20, (n_devices, n_layers + 1)),
        memory_limit_bytes=np.full(n_devices, int(1.6 * n_bytes[-1] / n_devices)),
    )
    speeds = tuple(Fraction(int(random.integers(2, 5)), 3) for _ in range(n_devices))
    table = replace(table, period=period, speeds=speeds, weight_prefix_cycles=sums[1] // 2)
    return with_memory(table, exclusive_prefix_bytes={"parameter": n_bytes})


def plans_that_fit(table: CostTable) -> Iterator[Plan]:
    for inner in combinations(range(1, table.n_layers), table.n_devices - 1):
        plan = evaluate(table, (0, *inner, table.n_layers))
        if all(stage.total_bytes <= stage.limit_bytes for stage in plan.stages):
            yield plan


def step_cycles(knobs: Knobs, plan: Plan) -> float:
    return timeline_of(knobs.step, plan).makespan_cycles


@pytest.mark.parametrize(("order", "period"), list(product(FIXED, Period)))
def test_it_is_the_best_of_all_plans_and_proved(order: Order, period: Period) -> None:
    random, n_plans = np.random.default_rng(0), 0
    for n_layers, n_devices in ((5, 2), (6, 3), (8, 4), (9, 3)):
        table = random_table(random, n_layers, n_devices, period)
        knobs = Knobs(
            n_ipu=n_devices, memory_proportion=0.6, batch_size=1, schedule=order, n_micro_batches=2 * n_devices + 1
        )
        steps = [step_cycles(knobs, plan) for plan in plans_that_fit(table)]
        if steps:
            bounded = best_by_simulated_step(StageTable.of(table), knobs)
            assert step_cycles(knobs, bounded.plan) == bounded.step_cycles == min(steps)
            assert bounded.bound_cycles == bounded.step_cycles
        n_plans += len(steps)
    assert n_plans > 10


@pytest.mark.parametrize(("order", "period"), list(product((Order.ZB1P, Order.ZB2P), (Period.BARRIER, Period.OVERLAP))))
def test_zero_bubble_plans_are_between_their_bound_and_the_starting_plan(order: Order, period: Period) -> None:
    table = random_table(np.random.default_rng(2), 7, 3, period)
    knobs = Knobs(n_ipu=3, memory_proportion=0.6, batch_size=1, schedule=order, n_micro_batches=4)
    bounded = best_by_simulated_step(StageTable.of(table), knobs)
    assert bounded.step_cycles == step_cycles(knobs, bounded.plan) <= step_cycles(knobs, optimal(table))
    assert bounded.bound_cycles <= min(step_cycles(knobs, plan) for plan in plans_that_fit(table))


@pytest.mark.parametrize("smaller", ["MAX_PARTIAL", "MAX_EDGES", "ROUNDS"])
def test_a_search_that_is_cut_short_has_a_valid_bound(smaller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = random_table(np.random.default_rng(1), 14, 4, Period.BARRIER)
    knobs = Knobs(n_ipu=4, memory_proportion=0.6, batch_size=1, schedule=Order.ONE_F_ONE_B, n_micro_batches=9)
    best = best_by_simulated_step(StageTable.of(table), knobs)
    monkeypatch.setattr(by_step, smaller, 1)
    short = best_by_simulated_step(StageTable.of(table), knobs)
    assert best.step_cycles is not None
    assert short.step_cycles is not None
    assert best.gap == 0
    assert short.bound_cycles <= best.step_cycles <= short.step_cycles <= step_cycles(knobs, optimal(table))


def test_no_move_of_a_cut_makes_a_plan_shorter_that_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that are cut short, with the first and the last stage on one device."""
    monkeypatch.setattr(by_step, "MAX_PARTIAL", 1)
    monkeypatch.setattr(by_step, "ROUNDS", 1)
    knobs = Knobs(n_ipu=4, batch_size=1, schedule=Order.POPART_RING, n_micro_batches=9)
    devices, moments, n_tried = stage_devices_of(Order.POPART_RING, 4), in_flight_by_stage(*knobs.step), 0
    for seed in range(8):
        table = arranged(random_table(np.random.default_rng(seed), 60, 4, Period.OVERLAP), devices, [1] * len(devices))
        stages = StageTable(table, devices, moments)
        best = best_by_simulated_step(stages, knobs)
        assert best.step_cycles is not None
        costs = StageCosts.of(stages)
        for cut, step in product(range(1, 5), (-16, -8, -4, -1, 1, 4, 8, 16) if best.gap else ()):
            cuts = np.array(best.plan.partition)
            cuts[cut] += step
            if (np.diff(cuts) > 0).all() and costs.resolve(cuts) is not None:
                plan = costs.evaluate(cuts, [False] * len(devices))
                assert step_cycles(knobs, plan) >= best.step_cycles
                n_tried += 1
    assert n_tried > 20


@pytest.mark.parametrize("period", [Period.BARRIER, Period.OVERLAP])
@pytest.mark.parametrize("order", [*FIXED, Order.ZB1P])
def test_what_is_said_of_all_plans_without_the_best_one_is_so(order: Order, period: Period) -> None:
    random, n_certain = np.random.default_rng(5), 0
    for n_layers, n_devices in ((5, 2), (6, 3), (8, 4), (9, 3), (7, 3)):
        stages = StageTable.of(random_table(random, n_layers, n_devices, period))
        knobs = Knobs(
            n_ipu=n_devices, memory_proportion=0.6, batch_size=1, schedule=order, n_micro_batches=2 * n_devices + 1
        )
        shortest = min((step_cycles(knobs, plan) for plan in plans_that_fit(stages.rows)), default=np.inf)
        for cycles in shortest * np.array([0.5, 0.9, 0.98, 1.0, 1.0001, 1.5]) if shortest < np.inf else [1e3, 1e6]:
            is_certain = no_simulated_step_below(stages, knobs, float(cycles))
            assert not (is_certain and cycles > shortest)
            n_certain += is_certain
    assert n_certain > 5


def test_choosing_whether_to_recompute_is_never_worse_than_not_recomputing() -> None:
    random = np.random.default_rng(7)
    for n_layers, n_devices in ((8, 4), (9, 3), (12, 4)):
        rows = random_table(random, n_layers, n_devices, Period.BARRIER)
        again = replace(rows, compute_prefix_cycles=rows.compute_prefix_cycles * 4 // 3)
        memory = replace(rows.memory, recompute=True)
        stages = StageTable.of(rows, replace(again, memory=memory))
        knobs = Knobs(
            n_ipu=n_devices,
            memory_proportion=0.6,
            batch_size=1,
            schedule=Order.ONE_F_ONE_B,
            n_micro_batches=2 * n_devices,
        )
        plain = best_by_simulated_step(StageTable.of(rows), knobs)
        assert best_by_simulated_step(stages, knobs).cost_cycles <= plain.cost_cycles


@pytest.mark.parametrize("period", [Period.BARRIER, Period.OVERLAP])
@pytest.mark.parametrize("order", [Order.ZB1P, Order.V_MIN])
def test_the_step_of_a_long_zero_bubble_order_follows_from_a_shorter_one(order: Order, period: Period) -> None:
    n_each = 2 if order is Order.V_MIN else 1
    table = random_table(np.random.default_rng(2), 12, 4, period)
    table = replace(table, memory_limit_bytes=table.memory_limit_bytes * 8)
    knobs = Knobs(
        n_ipu=4,
        memory_proportion=0.6,
        batch_size=1,
        schedule=order,
        n_micro_batches=LONG_STEP + 70,
        stages_per_device=n_each,
    )
    cuts = (0, 3, 6, 9, 12) if n_each == 1 else (0, 1, 3, 4, 6, 7, 9, 11, 12)
    devices = stage_devices_of(order, 4)
    moments = in_flight_by_stage(order, 4, knobs.mode.n_micro_batches, n_each)
    rows = table if n_each == 1 else arranged(table, devices, [1] * len(devices))
    stages = StageTable(rows, devices, moments)
    plan = stages.evaluate(cuts, [False] * len(devices))
    whole = timeline_of(knobs.step, plan, PLANNING_EFFORT).makespan_cycles
    assert pipeline_step_cycles(knobs, plan) == pytest.approx(whole, rel=6e-3)


def test_no_plan_fits() -> None:
    table = replace(random_table(np.random.default_rng(0), 6, 2, Period.BARRIER), memory_limit_bytes=np.zeros(2, int))
    with pytest.raises(Infeasible):
        best_by_simulated_step(
            StageTable.of(table),
            Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=Order.GPIPE, n_micro_batches=4),
        )
