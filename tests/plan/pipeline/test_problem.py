from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise

import pytest

from autoauto.plan.pipeline.interleaved import interleaved
from autoauto.plan.pipeline.problem import compute_lower_bound, evaluate, largest_block, prepare, transfer_lower_bound
from autoauto.plan.queries import best_per_device_count, replicas
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput

MakeTable = Callable[[int], CostTable]


def test_a_plan_costs_what_the_table_says(any_table: MakeTable) -> None:
    for table in map(any_table, range(200)):
        problem = prepare(table)
        n_blocks, n_stages = len(problem.blocks), problem.n_stages
        for inner in combinations(range(1, n_blocks), n_stages - 1):
            cuts = [0, *inner, n_blocks]
            plan = evaluate(table, problem.partition(cuts))
            assert problem.compute_cycles(cuts) == plan.compute_cycles
            assert problem.transfer_cycles(cuts) == plan.transfer_cycles
            assert problem.cost_cycles(cuts) == plan.cost_cycles
            assert compute_lower_bound(problem) <= plan.compute_cycles
            assert transfer_lower_bound(problem) <= plan.transfer_cycles


def test_the_next_compute_is_one_that_a_range_takes(any_table: MakeTable) -> None:
    for table in map(any_table, range(200)):
        problem = prepare(table)
        cuts = problem.blocks.cuts
        taken = {
            table.compute_cycles(start, stop, device)
            for start, stop in combinations(cuts, 2)
            for device in range(table.n_devices)
        }
        for cycles in taken:
            following = min((more for more in taken if more > cycles), default=cycles + 1)
            assert problem.next_compute(cycles) == cycles
            assert problem.next_compute(cycles + 1) == following


def test_a_part_of_a_problem_is_the_problem_of_a_part_of_the_table(any_table: MakeTable) -> None:
    for table in map(any_table, range(100)):
        for first, stop in combinations(range(table.n_devices + 1), 2):
            part, prepared = prepare(table).part(first, stop), prepare(table.part(first, stop))
            assert part == prepared
            assert part.blocks.costs[0].prefix.tolist() == prepared.blocks.costs[0].prefix.tolist()
            assert part.blocks.costs[0].offsets.tolist() == prepared.blocks.costs[0].offsets.tolist()


def test_own_cycles_are_the_cycles_of_a_devices_own_clock(any_table: MakeTable) -> None:
    for table in map(any_table, range(100)):
        problem = prepare(table)
        for cycles in (0, 1, 17, 10**9):
            for own, speed in zip(problem.own_cycles(cycles), problem.speeds, strict=True):
                assert own <= cycles * speed < own + 1


def test_the_largest_block_is_the_one_that_computes_longest(any_table: MakeTable) -> None:
    for table in map(any_table, range(50)):
        problem = prepare(table)
        blocks = pairwise(problem.blocks.cuts)
        assert largest_block(problem) == max(table.compute_cycles(start, stop) for start, stop in blocks)


def test_some_plan_queries_refuse_several_micro_batches_in_flight(any_table: MakeTable) -> None:
    table = next(table for table in map(any_table, range(99)) if (table.n_devices, table.n_layers) == (2, 4))
    roomy = replace(table, memory_limit_bytes=table.memory_limit_bytes + 1000)
    queries = (best_per_device_count, replicas, partial(interleaved, n_chunks=2))
    for query in queries:
        query(replace(roomy, stash_entries=(0, 0)))
        with pytest.raises(BadInput, match=r"one micro-batch in flight only, got \[2, 1\]"):
            query(replace(roomy, stash_entries=(1, 0)))
