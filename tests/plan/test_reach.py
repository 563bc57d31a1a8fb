from __future__ import annotations

from collections.abc import Callable

from autoauto.plan.blocks import contract
from autoauto.plan.reach import earliest_starts, earliest_starts_by_device
from autoauto.records.cost import CostTable


def test_every_earliest_start_fits_and_the_one_before_does_not(random_table: Callable[[int], CostTable]) -> None:
    for seed in range(300):
        table = random_table(seed)
        blocks = contract(table)
        limit = int(table.memory_limit_bytes[0])
        starts = earliest_starts(blocks, limit)
        for stop in range(1, len(blocks) + 1):
            ranges = [(start, blocks.cuts[start], blocks.cuts[stop]) for start in range(stop)]
            fitting = [start for start, *ends in ranges if sum(table.memory_bytes(*ends).values()) <= limit]
            assert starts[stop] == min(fitting, default=stop)


def test_devices_of_one_limit_share_a_list(random_table: Callable[[int], CostTable]) -> None:
    blocks = contract(random_table(3))
    small, large, again = earliest_starts_by_device(blocks, [30, 60, 30])
    assert small is again
    assert small == earliest_starts(blocks, 30)
    assert large == earliest_starts(blocks, 60)
