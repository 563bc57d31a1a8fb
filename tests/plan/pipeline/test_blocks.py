from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from autoauto.plan.pipeline.blocks import contract, earliest_starts, earliest_starts_by_device
from autoauto.records.costs.cost import CostTable
from tests.cost_tables import one_clock


@pytest.mark.parametrize("kind", ["random_table", "training_table"])
def test_blocks_cost_what_their_layers_cost(request: pytest.FixtureRequest, kind: str) -> None:
    make_table: Callable[[int], CostTable] = request.getfixturevalue(kind)
    for seed in range(100):
        table = one_clock(make_table(seed))
        blocks = contract(table)
        n_blocks = len(blocks)
        assert blocks.cuts == [cut for cut in range(table.n_layers + 1) if table.cut_allowed[cut]]
        assert n_blocks == len(blocks.cuts) - 1
        for first in range(n_blocks):
            for last in range(first + 1, n_blocks + 1):
                start, stop = blocks.cuts[first], blocks.cuts[last]
                own_cycles = blocks.compute_prefix_cycles[last] - blocks.start_offset_cycles[first]
                assert own_cycles == table.compute_cycles(start, stop)
                for device in range(table.n_devices):
                    n_bytes = sum(table.memory_bytes(start, stop, device).values())
                    assert block_bytes(table, first, last, device) == n_bytes
                for device in range(table.n_devices):
                    transfer = blocks.receive_cycles[device][first] + blocks.send_cycles[device][last]
                    assert transfer == table.transfer_cycles(device, start, stop)


def block_bytes(table: CostTable, first: int, last: int, device: int) -> int:
    blocks = contract(table)
    (memory,) = blocks.forms
    keys = {key for keys in memory.shared_keys[first:last] for key in keys}
    others = memory.one_in_flight.plus(blocks.stash_entries[device], memory.stash_entry)
    largest = sum(max(column[first:last]) for column in others.maxima_bytes)
    return sum(memory.shared_bytes[key] for key in keys) + others.stop_bytes[last] - others.start_bytes[first] + largest


def test_devices_with_equal_links_share_their_columns(random_table: Callable[[int], CostTable]) -> None:
    table = next(table for table in map(random_table, range(99)) if table.n_devices > 2)
    table.receive_cycles[1:] = table.receive_cycles[1]
    rows = contract(table).receive_cycles
    assert rows[1] is rows[2]
    assert rows[0] is not rows[1]


def test_reach_finds_the_earliest_start_that_fits_and_the_next_limit_that_changes_a_start(
    random_table: Callable[[int], CostTable],
) -> None:
    for seed in range(300):
        table = random_table(seed)
        blocks = contract(table)
        limit = int(table.memory_limit_bytes[0])
        starts, next_bytes = earliest_starts(blocks, limit)
        over = []
        for stop in range(1, len(blocks) + 1):
            phase_candidates = [(start, blocks.cuts[start], blocks.cuts[stop]) for start in range(stop)]
            n_bytes = [sum(table.memory_bytes(*ends).values()) for _, *ends in phase_candidates]
            assert starts[stop] == next((start for start in range(stop) if n_bytes[start] <= limit), stop)
            over += [n for n in n_bytes if n > limit]
        assert next_bytes == min(over, default=None)


def test_a_stage_fits_when_one_of_its_forms_does(outlined_table: Callable[[int], CostTable]) -> None:
    """And `next_bytes` is the least that lets one more stage fit in any form."""
    earlier = 0
    for seed in range(300):
        table = outlined_table(seed)
        blocks, cuts = contract(table), contract(table).cuts
        forms = [[sum(form.by_category(a, b, 0).values()) for form in table.memory.forms] for a, b in _ranges(cuts)]
        smallest = dict(zip(_ranges(cuts), map(min, forms), strict=True))
        plain_bytes = sorted(plain for plain, _ in forms)
        limit = plain_bytes[seed % len(plain_bytes)] - 1
        starts, next_bytes = earliest_starts(blocks, limit)
        limited = replace(table, memory_limit_bytes=np.full(table.n_devices, limit))
        assert all(
            sum(limited.memory_bytes(*ends).values()) == (n[0] if n[0] <= limit else min(n))
            for ends, n in zip(_ranges(cuts), forms, strict=True)
        )
        for stop in range(1, len(cuts)):
            fitting = [start for start in range(stop) if smallest[cuts[start], cuts[stop]] <= limit]
            assert starts[stop] == min(fitting, default=stop)
        assert next_bytes == min((n for n in smallest.values() if n > limit), default=None)
        earlier += starts != earliest_starts(contract(table.plain), limit).starts
    assert earlier > 10, "no limit at which subgraphs matter"


def _ranges(cuts: list[int]) -> list[tuple[int, int]]:
    return [(start, stop) for index, start in enumerate(cuts) for stop in cuts[index + 1 :]]


def test_the_stash_of_a_device_counts_for_its_earliest_starts(training_table: Callable[[int], CostTable]) -> None:
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
    assert small == earliest_starts(blocks, 30).starts
    assert large == earliest_starts(blocks, 60).starts
    again, other = earliest_starts_by_device(replace(blocks, stash_entries=[0, 1]), [30, 30])
    assert again == small
    assert other == earliest_starts(blocks, 30, 1).starts
