from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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


def test_what_every_device_keeps_counts_for_its_starts(training_table: Callable[[int], CostTable]) -> None:
    for table in map(training_table, range(200)):
        blocks, cuts = contract(table), contract(table).cuts
        limits = table.memory_limit_bytes.tolist()
        for device, starts in enumerate(earliest_starts_by_device(blocks, limits)):
            for stop in range(1, len(blocks) + 1):
                fits = (
                    sum(table.memory_bytes(cuts[start], cuts[stop], device).values()) <= limits[device]
                    for start in range(stop)
                )
                assert starts[stop] == next((start for start, fit in enumerate(fits) if fit), stop)


def test_devices_of_one_limit_and_stash_share_a_list(random_table: Callable[[int], CostTable]) -> None:
    blocks = replace(contract(random_table(3)), stash_entries=[0, 0, 0])
    small, large, again = earliest_starts_by_device(blocks, [30, 60, 30])
    assert small is again
    assert small == reach(blocks, 30).starts
    assert large == reach(blocks, 60).starts
    again, other = earliest_starts_by_device(replace(blocks, stash_entries=[0, 1]), [30, 30])
    assert again == small
    assert other == reach(blocks, 30, 1).starts
