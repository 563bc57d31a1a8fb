from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from autoauto.plan import interleaved, optimal
from autoauto.plan.chunks import chunk_table, device_bytes, evaluate_chunks
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.plan import Plan

MakeTable = Callable[[int], CostTable]


def tables(any_table: MakeTable, seeds: range) -> Iterator[tuple[CostTable, int]]:
    """Random tables with the host's constants in all rows, as the estimate has them, and a number of chunks."""
    for seed in seeds:
        table = any_table(seed)
        host_in, host_out = seed % 5, seed % 7
        table.receive_cycles[0] = 0
        table.send_cycles[-1] = 0
        waiting = replace(
            table,
            receive_cycles=table.receive_cycles + host_in,
            send_cycles=table.send_cycles + host_out,
            memory_limit_bytes=table.memory_limit_bytes * 2,
        )
        yield waiting, 1 + seed % 3


def all_plans(table: CostTable, n_chunks: int) -> Iterator[tuple[Plan, int]]:
    """Every plan and the bytes that it lacks."""
    rows = chunk_table(table, n_chunks)
    allowed = [cut for cut in range(1, table.n_layers) if table.cut_allowed[cut]]
    for inner in combinations(allowed, rows.n_devices - 1):
        plan = evaluate_chunks(rows, table.n_devices, (0, *inner, table.n_layers))
        yield plan, max(0, *excess_bytes(table, plan))


def excess_bytes(table: CostTable, plan: Plan) -> Iterator[int]:
    for device, limit in enumerate(table.memory_limit_bytes.tolist()):
        yield device_bytes(table, [stage.layers for stage in plan.stages if stage.device == device]) - limit


def test_costs_what_the_cheapest_of_all_plans_costs(any_table: MakeTable) -> None:
    n_feasible = n_infeasible = 0
    for table, n_chunks in tables(any_table, range(1500)):
        fitting = [plan.cost_cycles for plan, excess in all_plans(table, n_chunks) if not excess]
        try:
            found = interleaved(table, n_chunks)
        except Infeasible:
            assert not fitting
            n_infeasible += 1
            continue
        assert found.plan.cost_cycles == found.bound_cycles == min(fitting)
        assert max(excess_bytes(table, found.plan)) <= 0
        n_feasible += 1
    assert min(n_feasible, n_infeasible) > 300


def test_a_short_search_says_how_far_from_the_best_it_may_be(any_table: MakeTable) -> None:
    n_open = 0
    for table, n_chunks in tables(any_table, range(800)):
        try:
            least_cost = interleaved(table, n_chunks).plan.cost_cycles
            found = interleaved(table, n_chunks, max_nodes=1)
        except Infeasible:
            continue
        assert found.bound_cycles <= least_cost <= found.plan.cost_cycles
        n_open += found.gap > 0
    assert n_open > 50


def test_one_chunk_a_device_is_the_ordinary_plan(any_table: MakeTable) -> None:
    for table, _ in tables(any_table, range(300)):
        try:
            expected = optimal(table).cost_cycles
        except Infeasible:
            continue
        assert interleaved(table, 1).plan.cost_cycles == expected


def test_chunks_are_dealt_out_in_turn(any_table: MakeTable) -> None:
    table, _ = next(t for t in tables(any_table, range(99)) if (t[0].n_devices, t[0].n_layers) == (2, 8))
    roomy = replace(table, memory_limit_bytes=table.memory_limit_bytes + 1000)
    assert [stage.device for stage in interleaved(roomy, 3).plan.stages] == [0, 1, 0, 1, 0, 1]


def test_too_few_layers_for_the_chunks(any_table: MakeTable) -> None:
    table, _ = next(t for t in tables(any_table, range(99)) if t[0].n_devices == 4 and t[0].n_layers < 8)
    with pytest.raises(Infeasible, match="2 chunks on 4 devices need 7 places to cut") as raised:
        interleaved(table, 2)
    assert raised.value.excess_bytes == 0


def test_no_chunks_are_refused(any_table: MakeTable) -> None:
    with pytest.raises(BadInput, match="chunks a device must be at least 1, got 0"):
        interleaved(any_table(0), 0)
