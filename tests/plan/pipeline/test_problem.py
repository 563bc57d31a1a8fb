from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise

import pytest

from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.interleaved import interleaved
from autoauto.plan.pipeline.problem import largest_block, least_compute, least_transfer, prepare
from autoauto.plan.queries.device_counts import every_n, replicas
from autoauto.records.cost import CostTable
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
            assert least_compute(problem) <= plan.compute_cycles
            assert least_transfer(problem) <= plan.transfer_cycles


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


def test_a_part_is_the_problem_of_the_tables_part(any_table: MakeTable) -> None:
    for table in map(any_table, range(100)):
        for first, stop in combinations(range(table.n_devices + 1), 2):
            part, prepared = prepare(table).part(first, stop), prepare(table.part(first, stop))
            assert replace(part, prefix=prepared.prefix, begun=prepared.begun) == prepared
            assert part.prefix.tolist() == prepared.prefix.tolist()
            assert part.begun.tolist() == prepared.begun.tolist()


def test_own_cycles_are_the_most_that_a_device_counts(any_table: MakeTable) -> None:
    for table in map(any_table, range(100)):
        problem = prepare(table)
        for cycles in (0, 1, 17, 10**9):
            for own, speed in zip(problem.own_cycles(cycles), problem.speeds, strict=True):
                assert own <= cycles * speed < own + 1


def test_the_largest_block(any_table: MakeTable) -> None:
    for table in map(any_table, range(50)):
        problem = prepare(table)
        blocks = pairwise(problem.blocks.cuts)
        assert largest_block(problem) == max(table.compute_cycles(start, stop) for start, stop in blocks)


def test_one_micro_batch_in_flight_is_all_that_some_questions_take(any_table: MakeTable) -> None:
    table = next(table for table in map(any_table, range(99)) if (table.n_devices, table.n_layers) == (2, 4))
    roomy = replace(table, memory_limit_bytes=table.memory_limit_bytes + 1000)
    questions = (every_n, replicas, partial(interleaved, n_chunks=2))
    for ask in questions:
        ask(replace(roomy, stash_entries=(0, 0)))
        with pytest.raises(BadInput, match=r"one micro-batch in flight only, got \[2, 1\]"):
            ask(replace(roomy, stash_entries=(1, 0)))
