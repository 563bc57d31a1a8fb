from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from autoauto.estimate.table import cost_table
from autoauto.plan.pipeline.optimal import anytime, has_plan, incumbents, optimal
from autoauto.plan.pipeline.problem import evaluate, prepare
from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline, profile_from_auto_pipeline
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import SharedMemory
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from tests.cost_tables import make_table
from tests.drawn import daily, n_drawn
from tests.plan.exhaustive import exhaustive

MakeTable = Callable[[int], CostTable]


def fits(table: CostTable, partition: tuple[int, ...]) -> bool:
    stages = evaluate(table, partition).stages
    within = all(stage.total_bytes <= stage.limit_bytes for stage in stages)
    return within and all(table.cut_allowed[cut] for cut in partition)


def test_the_cases_of_auto_pipeline(
    vectors: Callable[[str], Any], expand_profile: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    cases = vectors("auto_pipeline_partition")
    for case in (*cases["upstream"], *cases["random"]):
        profile = profile_from_auto_pipeline(expand_profile(case["profile"]))
        table = cost_table(profile, cluster_from_auto_pipeline(case["cluster"]), cases["memoryProportion"])
        if not case.get("feasible", True):
            with pytest.raises(Infeasible) as raised:
                optimal(table)
            assert raised.value.excess_bytes > 0
            continue
        plan = optimal(table)
        accepted = case.get("accepted_partitions") or case["optimal_partitions"]
        assert list(plan.partition) in accepted
        assert plan.cost_cycles == case.get("optimal_cost", case.get("optimal_cost_brute_force"))


def outcome(plan: Callable[[CostTable], Plan], table: CostTable) -> tuple[int | None, int]:
    """The cost of the best plan, if any, and the missing bytes."""
    try:
        best = plan(table)
    except Infeasible as failure:
        return None, failure.excess_bytes
    assert fits(table, best.partition)
    return best.cost_cycles, 0


@pytest.mark.parametrize("chunk", daily(range(4)))
def test_the_optimum_costs_what_the_cheapest_of_all_partitions_costs(random_table: MakeTable, chunk: int) -> None:
    n_feasible = 0
    for seed in range(500 * chunk, 500 * (chunk + 1)):
        table = random_table(seed)
        best = outcome(optimal, table)
        assert best == outcome(exhaustive, table), seed
        n_feasible += best[0] is not None
    assert 100 < n_feasible < 400


@pytest.mark.parametrize("chunk", daily(range(4)))
def test_in_every_mode_the_optimum_costs_what_the_cheapest_of_all_partitions_costs(
    any_table: MakeTable, chunk: int
) -> None:
    modes = set()
    for seed in range(500 * chunk, 500 * (chunk + 1)):
        table = any_table(seed)
        best = outcome(optimal, table)
        assert best == outcome(exhaustive, table), seed
        assert has_plan(table) is (best[0] is not None)
        modes.add((table.period, len(set(table.speeds)) > 1, best[0] is None))
    assert len(modes) == 16  # four periods, one clock or several, feasible or not


def test_with_subgraphs_the_optimum_costs_what_the_cheapest_of_all_partitions_costs(outlined_table: MakeTable) -> None:
    cheaper = 0
    for table in map(outlined_table, range(300)):
        best = outcome(optimal, table)
        assert best == outcome(exhaustive, table)
        cheaper += best != outcome(optimal, table.plain)
    assert cheaper > 15


@pytest.mark.drawn
def test_every_incumbent_has_a_valid_lower_bound(any_table: MakeTable) -> None:
    n_stops = 0
    for seed in range(n_drawn(1000)):
        table = any_table(seed)
        lowest_cost, _ = outcome(exhaustive, table)
        problem, bound = prepare(table), 0
        for incumbent in incumbents(problem):
            assert lowest_cost is not None
            plan = evaluate(table, problem.partition(incumbent.cuts))
            assert fits(table, plan.partition)
            assert bound <= incumbent.bound_cycles <= lowest_cost <= incumbent.cost_cycles == plan.cost_cycles
            bound = incumbent.bound_cycles
            n_stops += 1
        assert bound == (lowest_cost or 0)
    assert n_stops > n_drawn(700)


def test_the_search_stops_when_time_is_up_or_the_gap_is_small_enough() -> None:
    table = long_table(1, n_layers=200, n_devices=8, n_sizes=200)
    best = optimal(table).cost_cycles
    first = anytime(table, seconds=0.0)
    assert first.bound_cycles <= best <= first.plan.cost_cycles
    assert 0 < first.gap == pytest.approx(1 - first.bound_cycles / first.plan.cost_cycles)
    near = anytime(table, rel_gap=first.gap / 2)
    assert near.gap <= first.gap / 2
    assert near.bound_cycles <= best <= near.plan.cost_cycles
    assert anytime(table).gap == 0


def test_a_faster_device_gets_more() -> None:
    table = make_table(np.array([0, 6, 12, 18, 24]), 2)
    assert optimal(table).partition == (0, 2, 4)
    faster = optimal(replace(table, speeds=(Fraction(1), Fraction(3))))
    assert (faster.partition, faster.compute_cycles) == ((0, 1, 4), 6)
    slower = optimal(replace(table, speeds=(Fraction(1), Fraction(4, 10))))
    assert (slower.partition, slower.compute_cycles) == ((0, 3, 4), 18)


def test_devices_that_do_more_at_the_same_time_have_a_shorter_period() -> None:
    table = long_table(2, n_layers=30, n_devices=3, n_sizes=30)
    plans = {period: optimal(replace(table, period=period)) for period in Period}
    hidden = plans[Period.OVERLAP]
    assert hidden.cost_cycles == max(hidden.compute_cycles, hidden.transfer_cycles)
    order = (Period.BARRIER, Period.SERIAL, Period.OVERLAP, Period.DUPLEX)
    costs = [plans[period].cost_cycles for period in order]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def test_one_device_takes_all_layers(random_table: MakeTable) -> None:
    tables = [table for table in map(random_table, range(200)) if table.n_devices == 1]
    roomy = [
        table for table in tables if sum(table.memory_bytes(0, table.n_layers).values()) <= table.memory_limit_bytes[0]
    ]
    assert len(roomy) > 10
    assert all(optimal(table).partition == (0, table.n_layers) for table in roomy)


def test_a_model_without_any_cost_still_gets_a_layer_on_every_device() -> None:
    table = make_table(np.zeros(4, dtype=np.int64), 3)
    assert optimal(table).partition == (0, 1, 2, 3)


def three_axis_cost(table: CostTable) -> int:
    """A dynamic programme over devices, ends and transfer caps, for models that the oracle cannot enumerate."""
    n, p = table.n_layers, table.n_devices
    legal = {
        (start, stop): sum(table.memory_bytes(start, stop).values())
        for start in range(n)
        for stop in range(start + 1, n + 1)
        if table.cut_allowed[start] and table.cut_allowed[stop]
    }
    caps = sorted({table.transfer_cycles(device, *ends) for device in range(p) for ends in legal})
    best = 2**62
    for cap in caps:
        costs = [0] + [2**62] * n
        for device in range(p):
            limit = int(table.memory_limit_bytes[device])
            after = [2**62] * (n + 1)
            for (start, stop), n_bytes in legal.items():
                if n_bytes <= limit and table.transfer_cycles(device, start, stop) <= cap:
                    after[stop] = min(after[stop], max(costs[start], table.compute_cycles(start, stop)))
            costs = after
        best = min(best, cap + costs[n])
    return best


@pytest.mark.parametrize("seed", range(3))
def test_a_dynamic_programme_agrees_on_longer_models(seed: int) -> None:
    table = long_table(seed, n_layers=24, n_devices=5, n_sizes=3)
    assert optimal(table).cost_cycles == three_axis_cost(table)


def long_table(seed: int, n_layers: int, n_devices: int, n_sizes: int) -> CostTable:
    """A model with `n_sizes` sizes of boundary, shared code, ties, and nine tenths of the memory in use."""
    random = Random(seed)
    compute = [random.randint(1, 10**10) for _ in range(n_layers)]
    weights = [random.randint(1, 10**10) for _ in range(n_layers)]
    sizes = [random.randint(1, 10**9) for _ in range(n_sizes)]
    boundary = [random.choice(sizes) for _ in range(n_layers + 1)]
    speeds = [random.choice((1, 1, 1, 5)) for _ in range(n_devices)]
    tied = {random.randrange(1, n_layers) for _ in range(n_layers // 10)}
    return make_table(
        np.array([0, *accumulate(compute)]),
        n_devices,
        exclusive_prefix_bytes={"parameter": np.array([0, *accumulate(weights)])},
        shared=SharedMemory(
            keys=tuple((random.randrange(8),) for _ in range(n_layers)),
            n_bytes=tuple(random.randint(1, 10**9) for _ in range(8)),
            categories=("code",) * 8,
        ),
        peak_bytes=np.array([random.randint(1, 10**9) for _ in range(n_layers)]),
        receive_cycles=np.array([[size * speed for size in boundary[:-1]] for speed in speeds]),
        send_cycles=np.array([[size * speed for size in boundary] for speed in speeds]),
        cut_allowed=np.array([cut not in tied for cut in range(n_layers + 1)]),
        memory_limit_bytes=np.full(n_devices, int(sum(weights) / n_devices / 0.9) + 10**10),
    )


def test_two_thousand_layers_on_sixteen_devices() -> None:
    table = long_table(0, n_layers=2000, n_devices=16, n_sizes=2000)
    plan = optimal(table)
    assert fits(table, plan.partition)
    total = int(table.compute_prefix_cycles[-1])
    assert total <= 16 * plan.compute_cycles < 1.05 * total
    for shift in (-1, 1):  # no single cut can be moved with profit
        for moved in range(1, 16):
            cuts = list(plan.partition)
            cuts[moved] += shift
            if all(a < b for a, b in pairwise(cuts)) and fits(table, tuple(cuts)):
                assert evaluate(table, cuts).cost_cycles >= plan.cost_cycles


@pytest.mark.parametrize("chunk", daily(range(2)))
def test_in_training_the_optimum_costs_what_the_cheapest_of_all_partitions_costs(
    training_table: MakeTable, chunk: int
) -> None:
    n_feasible = n_stash_counts = 0
    for seed in range(300 * chunk, 300 * (chunk + 1)):
        table = training_table(seed)
        best = outcome(optimal, table)
        assert best == outcome(exhaustive, table), seed
        n_feasible += best[0] is not None
        n_stash_counts += best != outcome(optimal, replace(table, stash_entries=(0,) * table.n_devices))
    assert 60 < n_feasible < 240
    assert n_stash_counts > 60


def test_fewer_micro_batches_in_flight_let_a_device_take_more() -> None:
    """Four layers that stash 10 bytes each, on two devices of 60 bytes."""
    cycles, activations = np.array([0, 6, 7, 8, 9]), np.arange(5) * 10
    table = make_table(cycles, 2, activation_prefix_bytes=activations, memory_limit_bytes=[60, 60])
    gpipe, one_f_one_b = (optimal(replace(table, stash_entries=entries)) for entries in ((2, 2), (1, 0)))
    assert (gpipe.partition, one_f_one_b.partition) == ((0, 2, 4), (0, 1, 4))
    assert [stage.memory_bytes["stash"] for stage in gpipe.stages] == [40, 40]
    assert [stage.memory_bytes.get("stash", 0) for stage in one_f_one_b.stages] == [10, 0]
