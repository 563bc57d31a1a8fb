from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import prepare
from autoauto.plan.queries import k_best, ranked
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from tests.cost_tables import make_table
from tests.drawn import daily, n_drawn
from tests.plan.exhaustive import all_fitting

MakeTable = Callable[[int], CostTable]


@pytest.mark.parametrize("chunk", daily(range(2)))
def test_all_plans_are_ranked_by_cost(any_table: MakeTable, chunk: int) -> None:
    n_plans = 0
    for table in map(any_table, range(300 * chunk, 300 * (chunk + 1))):
        expected = {plan.partition: plan.cost_cycles for plan in all_fitting(table)}
        try:
            plans = k_best(table, 10**6)
        except Infeasible:
            assert not expected
            continue
        assert {plan.partition: plan.cost_cycles for plan in plans} == expected
        assert [plan.cost_cycles for plan in plans] == sorted(expected.values())
        assert k_best(table, 3) == plans[:3]
        n_plans += len(plans)
    assert n_plans > 500


def test_the_first_plans_of_a_long_model_are_found_without_all_others() -> None:
    table = make_table(np.arange(101) * 7, 8)
    cuts = [tuple(cuts) for cuts in islice(ranked(prepare(table)), 200)]
    assert len(set(cuts)) == 200
    assert {max(stop - start for start, stop in pairwise(plan)) for plan in cuts} == {13}  # ceil(100 / 8)


def test_the_best_is_the_optimum(any_table: MakeTable) -> None:
    table = replace(any_table(7), memory_limit_bytes=any_table(7).memory_limit_bytes + 1000)
    assert k_best(table, 1)[0].cost_cycles == optimal(table).cost_cycles


def test_zero_plans_are_refused(any_table: MakeTable) -> None:
    with pytest.raises(BadInput, match="must be at least 1, got 0"):
        k_best(any_table(0), 0)


@pytest.mark.drawn
def test_plans_whose_stash_does_not_fit_are_left_out(training_table: MakeTable) -> None:
    for table in map(training_table, range(n_drawn(200))):
        expected = {plan.partition for plan in all_fitting(table)}
        if expected:
            assert {plan.partition for plan in k_best(table, 10**6)} == expected
