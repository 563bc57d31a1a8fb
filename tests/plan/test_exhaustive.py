from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from tests.cost_tables import make_table
from tests.plan.exhaustive import all_fitting, exhaustive


def table(limit: int) -> CostTable:
    """Four layers of 4, 1, 2 and 3 cycles and as many bytes on two devices; the first cut transfers fastest."""
    return make_table(
        np.array([0, 4, 5, 7, 10]),
        2,
        exclusive_prefix_bytes={"parameter": np.array([0, 4, 5, 7, 10])},
        receive_cycles=np.array([[0, 1, 9, 9], [0, 1, 9, 9]]),
        send_cycles=np.array([[0, 1, 9, 9, 0], [0, 1, 9, 9, 0]]),
        memory_limit_bytes=[limit, limit],
    )


def test_the_oracle_weighs_compute_against_transfer() -> None:
    plan = exhaustive(table(limit=10))
    assert (plan.partition, plan.compute_cycles, plan.transfer_cycles) == ((0, 1, 4), 6, 1)


def test_the_plans_of_the_oracle_are_those_that_are_evaluated() -> None:
    every = list(all_fitting(table(limit=10)))
    assert every == [evaluate(table(limit=10), plan.partition) for plan in every]
    assert len(every) == 3


def test_the_oracle_leaves_out_partitions_that_do_not_fit() -> None:
    plan = exhaustive(table(limit=5))
    assert (plan.partition, plan.compute_cycles, plan.transfer_cycles) == ((0, 2, 4), 5, 9)


def test_the_oracle_cuts_at_legal_cuts_only() -> None:
    tied = replace(table(limit=10), cut_allowed=np.array([True, False, False, True, True]))
    assert exhaustive(tied).partition == (0, 3, 4)


def test_the_oracle_reports_the_missing_bytes() -> None:
    with pytest.raises(Infeasible) as raised:
        exhaustive(table(limit=3))
    assert raised.value.excess_bytes == 2


def test_too_few_layers_have_no_missing_bytes(random_table: Callable[[int], CostTable]) -> None:
    short = next(t for t in map(random_table, range(999)) if t.n_layers < t.n_devices)
    with pytest.raises(Infeasible) as raised:
        exhaustive(short)
    assert raised.value.excess_bytes == 0
