from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.plan import every_n, exhaustive
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan


def test_each_is_the_plan_of_the_first_devices(any_table: Callable[[int], CostTable]) -> None:
    n_plans = n_failures = 0
    for table in map(any_table, range(600)):
        outcomes = every_n(table)
        assert list(outcomes) == list(range(1, table.n_devices + 1))
        for n_ipu, outcome in outcomes.items():
            part = table.part(0, n_ipu)
            if isinstance(outcome, Plan):
                assert (len(outcome.stages), outcome.cost_cycles) == (n_ipu, exhaustive(part).cost_cycles)
                n_plans += 1
            else:
                with pytest.raises(Infeasible) as raised:
                    exhaustive(part)
                assert raised.value.excess_bytes == outcome.excess_bytes
                n_failures += 1
    assert min(n_plans, n_failures) > 300
