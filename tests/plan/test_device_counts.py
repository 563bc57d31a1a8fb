from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from autoauto.plan.queries import best_per_device_count, replicas
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plans.plan import Plan
from tests.cost_tables import one_clock
from tests.drawn import n_drawn
from tests.plan.exhaustive import exhaustive

MakeTable = Callable[[int], CostTable]


@pytest.mark.drawn
def test_every_device_count_gets_the_best_plan_of_the_first_devices(any_table: MakeTable) -> None:
    n_plans = n_failures = 0
    for table in map(any_table, range(n_drawn(600))):
        outcomes = best_per_device_count(table)
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
    assert min(n_plans, n_failures) > n_drawn(300)


def pipelines(table: CostTable, n_ipu: int) -> Iterator[Plan]:
    for first in range(0, table.n_devices - n_ipu + 1, n_ipu):
        try:
            yield exhaustive(table.part(first, first + n_ipu))
        except Infeasible:
            continue


def rate(plans: tuple[Plan, ...]) -> Fraction:
    return sum((Fraction(1, max(1, plan.cost_cycles)) for plan in plans), Fraction(0))


@pytest.mark.drawn
def test_no_other_length_of_replicas_is_faster(any_table: MakeTable) -> None:
    shapes = set()
    for table in map(any_table, range(n_drawn(400))):
        rates = [rate(tuple(pipelines(table, n_ipu))) for n_ipu in range(1, table.n_devices + 1)]
        try:
            best = replicas(table)
        except Infeasible:
            assert max(rates) == 0
            continue
        assert rate(best.plans) == max(rates)
        used = [stage.device for plan in best.plans for stage in plan.stages]
        assert len(set(used)) == len(used) <= table.n_devices
        shapes.add((best.n_ipu, len(best.plans)))
    assert {(1, 1), (1, 4), (2, 2), (4, 1)} <= shapes


def test_equal_devices_run_equal_replicas(any_table: MakeTable) -> None:
    table = next(t for t in map(any_table, range(999)) if (t.n_devices, t.n_layers) == (4, 9))
    even = replace(
        one_clock(table),
        receive_cycles=np.zeros_like(table.receive_cycles),
        send_cycles=np.zeros_like(table.send_cycles),
        memory_limit_bytes=np.full(4, sum(table.memory_bytes(0, 9).values())),
    )
    best = replicas(even)
    assert (best.n_ipu, len(best.plans)) == (1, 4)  # no pipeline is as even as copies of the whole model
    assert [plan.stages[0].device for plan in best.plans] == [0, 1, 2, 3]
    cost = even.compute_cycles(0, 9)
    assert best.samples_per_s(batch_size=2, clock_hz=1e9) == pytest.approx(4 * 2 * 1e9 / cost)
