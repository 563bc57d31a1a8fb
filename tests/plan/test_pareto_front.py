from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import pytest

from autoauto.plan.queries import pareto_front
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plans.plan import Plan
from tests.drawn import daily, n_drawn
from tests.plan.exhaustive import all_fitting

MakeTable = Callable[[int], CostTable]


def point_of(plan: Plan) -> tuple[int, int, int]:
    return plan.compute_cycles, plan.transfer_cycles, plan.peak_memory_bytes


def is_better(point: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return point != other and all(a <= b for a, b in zip(point, other, strict=True))


@pytest.mark.parametrize("chunk", daily(range(4)))
def test_the_front_has_every_pareto_optimal_point_once(any_table: MakeTable, chunk: int) -> None:
    lengths = set()
    for table in map(any_table, range(300 * chunk, 300 * (chunk + 1))):
        points = {point_of(plan) for plan in all_fitting(table)}
        front = {point for point in points if not any(is_better(other, point) for other in points)}
        try:
            plans = [point_of(plan) for plan in pareto_front(table)]
        except Infeasible:
            assert not front
            continue
        assert sorted(plans) == sorted(front)
        lengths.add(len(plans))
    assert max(lengths) >= 6


@pytest.mark.drawn
def test_all_stages_of_a_front_are_plain_or_none_is(outlined_table: MakeTable) -> None:
    """Where a plan fits without subgraphs for equal layers, the front is that of such plans; else all have them."""
    n_outlined = 0
    for table in map(outlined_table, range(n_drawn(300))):
        one_form, outlined = table.plain, table.memory.outlined
        assert outlined is not None
        if not list(all_fitting(one_form)):
            one_form = replace(table, memory=outlined)
            n_outlined += bool(list(all_fitting(one_form)))
        points = {point_of(plan) for plan in all_fitting(one_form)}
        front = {point for point in points if not any(is_better(other, point) for other in points)}
        try:
            assert sorted(map(point_of, pareto_front(table))) == sorted(front)
        except Infeasible:
            assert not front
    assert n_outlined


def test_the_front_starts_with_the_smallest_compute(any_table: MakeTable) -> None:
    table = next(table for table in map(any_table, range(999)) if len(list(all_fitting(table))) > 20)
    first = next(pareto_front(table))
    assert first.compute_cycles == min(plan.compute_cycles for plan in all_fitting(table))
    assert len(list(islice(pareto_front(table), 2))) == 2


@pytest.mark.drawn
def test_the_stash_counts_for_the_peak_memory(training_table: MakeTable) -> None:
    for table in map(training_table, range(n_drawn(200))):
        points = {point_of(plan) for plan in all_fitting(table)}
        front = {point for point in points if not any(is_better(other, point) for other in points)}
        if front:
            assert sorted(map(point_of, pareto_front(table))) == sorted(front)
