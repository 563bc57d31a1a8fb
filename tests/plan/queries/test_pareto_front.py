from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest

from autoauto.plan.queries.pareto_front import staircase
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan
from tests.plan.exhaustive import all_fitting

MakeTable = Callable[[int], CostTable]


def step(plan: Plan) -> tuple[int, int, int]:
    return plan.compute_cycles, plan.transfer_cycles, plan.peak_memory_bytes


def is_better(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("chunk", range(4))
def test_every_best_trade_once_and_no_other(any_table: MakeTable, chunk: int) -> None:
    lengths = set()
    for table in map(any_table, range(300 * chunk, 300 * (chunk + 1))):
        steps = {step(plan) for plan in all_fitting(table)}
        best = {one for one in steps if not any(is_better(other, one) for other in steps)}
        try:
            found = [step(plan) for plan in staircase(table)]
        except Infeasible:
            assert not best
            continue
        assert sorted(found) == sorted(best)
        lengths.add(len(found))
    assert max(lengths) >= 6


def test_begins_with_all_memory_from_the_least_compute_on(any_table: MakeTable) -> None:
    table = next(table for table in map(any_table, range(999)) if len(list(all_fitting(table))) > 20)
    first = next(staircase(table))
    assert first.compute_cycles == min(plan.compute_cycles for plan in all_fitting(table))
    assert len(list(islice(staircase(table), 2))) == 2


def test_the_stash_counts_for_the_peak(training_table: MakeTable) -> None:
    for table in map(training_table, range(200)):
        steps = {step(plan) for plan in all_fitting(table)}
        best = {one for one in steps if not any(is_better(other, one) for other in steps)}
        if best:
            assert sorted(map(step, staircase(table))) == sorted(best)
