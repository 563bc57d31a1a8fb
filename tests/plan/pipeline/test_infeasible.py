from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.pipeline.problem import prepare
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.layers import LayerRange
from tests.plan.exhaustive import exhaustive

MakeTable = Callable[[int], CostTable]


def short_of_memory(random_table: MakeTable) -> Iterator[tuple[CostTable, int]]:
    """Tables that fit nowhere, each with the bytes that are missing by exhaustive search."""
    for table in map(random_table, range(5000, 5400)):
        if table.cut_allowed[1:-1].sum() >= table.n_devices - 1:
            try:
                exhaustive(table)
            except Infeasible as failure:
                yield table, failure.excess_bytes


def test_the_missing_bytes_suffice_and_one_byte_less_does_not(random_table: MakeTable) -> None:
    n_tables = 0
    for table, excess in short_of_memory(random_table):
        n_tables += 1
        assert why_infeasible(table, prepare(table)).excess_bytes == excess > 0
        optimal(replace(table, memory_limit_bytes=table.memory_limit_bytes + excess))
        with pytest.raises(Infeasible):
            optimal(replace(table, memory_limit_bytes=table.memory_limit_bytes + excess - 1))
    assert n_tables > 30


def test_the_error_names_the_range_that_exceeds_its_device(random_table: MakeTable) -> None:
    for table, excess in short_of_memory(random_table):
        failure = why_infeasible(table, prepare(table))
        assert failure.layers is not None
        assert failure.memory_bytes == table.memory_bytes(*failure.layers)
        assert sum(failure.memory_bytes.values()) - excess in table.memory_limit_bytes
        assert str(failure).startswith(f"every stage must fit its device, but at best one exceeds it by {excess} B: ")
        assert f"layers {failure.layers} need" in str(failure)
        assert "\n" not in str(failure)


def test_the_stash_counts_for_the_missing_bytes(training_table: MakeTable) -> None:
    n_tables = 0
    for table, excess in short_of_memory(training_table):
        failure = why_infeasible(table, prepare(table))
        assert failure.excess_bytes == excess > 0
        n_tables += failure.memory_bytes.get("stash", 0) > 0
    assert n_tables > 20


def test_fewer_layers_than_devices_are_infeasible(random_table: MakeTable) -> None:
    table = next(t for t in map(random_table, range(999)) if (t.n_layers, t.n_devices) == (2, 4))
    with pytest.raises(Infeasible, match="4 devices need a layer each, got 2; try at most 2") as raised:
        optimal(table)
    assert (raised.value.excess_bytes, raised.value.layers) == (0, None)


def test_shared_variables_may_leave_too_few_cuts(random_table: MakeTable) -> None:
    table = next(t for t in map(random_table, range(999)) if (t.n_layers, t.n_devices) == (6, 4))
    tied = replace(table, cut_allowed=np.array([True, True, False, False, False, True, True]))
    with pytest.raises(Infeasible, match=r"need 3 cuts .* got 2; layers \[1, 5\) must stay together") as raised:
        optimal(tied)
    assert (raised.value.excess_bytes, raised.value.layers) == (0, LayerRange(1, 5))
