from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.phase_ranges import one_range, ranges
from autoauto.records.cost import CostTable


@pytest.mark.parametrize("seed", range(40))
def test_ranges_are_those_of_the_table_and_none_within_the_limit_is_missing(
    training_table: Callable[[int], CostTable], seed: int
) -> None:
    table = training_table(seed)
    keys = ("parameter", "code") * len(table.shared_bytes)
    table = replace(
        table.part(0, 1),
        stash_entries=(0,),
        recompute_bytes=np.zeros(0, dtype=np.int64),
        shared_categories=keys[: len(table.shared_bytes)],
    )
    limit = int(table.memory_limit_bytes[0])
    found = {}
    for candidates in ranges(table, limit):
        columns = (candidates.starts, candidates.base_bytes, candidates.variable_bytes)
        for start, base, variables in zip(*(column.tolist() for column in columns), strict=True):
            found[start, candidates.stop] = (base, variables)
    expected = {}
    for stop in range(1, table.n_layers + 1):
        for start in range(stop):
            memory = table.memory_bytes(start, stop)
            if sum(memory.values()) <= limit:
                expected[start, stop] = (sum(memory.values()), memory.get("parameter", 0))
                single = one_range(table, start, stop)
                assert (int(single.base_bytes[0]), int(single.variable_bytes[0])) == expected[start, stop]
    assert found == expected
