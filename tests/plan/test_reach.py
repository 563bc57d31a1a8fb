from __future__ import annotations

from collections.abc import Callable

from autoauto.plan.blocks import contract
from autoauto.plan.reach import earliest_starts_by_device, reach
from autoauto.records.cost import CostTable


def test_a_start_fits_the_one_before_does_not_and_the_next_limit_moves_one(
    random_table: Callable[[int], CostTable],
) -> None:
    for seed in range(300):
        table = random_table(seed)
        blocks = contract(table)
        limit = int(table.memory_limit_bytes[0])
        starts, next_bytes = reach(blocks, limit)
        over = []
        for stop in range(1, len(blocks) + 1):
            ranges = [(start, blocks.cuts[start], blocks.cuts[stop]) for start in range(stop)]
            n_bytes = [sum(table.memory_bytes(*ends).values()) for _, *ends in ranges]
            assert starts[stop] == next((start for start in range(stop) if n_bytes[start] <= limit), stop)
            over += [n for n in n_bytes if n > limit]
        assert next_bytes == min(over, default=None)


def test_devices_of_one_limit_share_a_list(random_table: Callable[[int], CostTable]) -> None:
    blocks = contract(random_table(3))
    small, large, again = earliest_starts_by_device(blocks, [30, 60, 30])
    assert small is again
    assert small == reach(blocks, 30).starts
    assert large == reach(blocks, 60).starts
