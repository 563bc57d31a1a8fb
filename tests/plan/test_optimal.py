from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.plan import evaluate, exhaustive, optimal
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible


def fits(table: CostTable, partition: tuple[int, ...]) -> bool:
    stages = evaluate(table, partition).stages
    return all(stage.total_bytes <= stage.limit_bytes for stage in stages) and bool(table.cut_allowed[list(partition)].all())


@pytest.mark.parametrize("chunk", range(10))
def test_costs_what_the_cheapest_of_all_partitions_costs(random_table: Callable[[int], CostTable], chunk: int) -> None:
    n_feasible = 0
    for seed in range(500 * chunk, 500 * (chunk + 1)):
        table = random_table(seed)
        try:
            expected = exhaustive(table).cost_cycles
        except Infeasible as failure:
            with pytest.raises(Infeasible) as raised:
                optimal(table)
            assert raised.value.excess_bytes == failure.excess_bytes, seed
            continue
        plan = optimal(table)
        n_feasible += 1
        assert plan.cost_cycles == expected, seed
        assert fits(table, plan.partition), seed
    assert 100 < n_feasible < 400
