from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.plan.pipeline.blocks import contract
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
                own_cycles = blocks.costs[0].compute_prefix_cycles[last] - blocks.costs[0].start_offset_cycles[first]
                assert own_cycles == table.compute_cycles(start, stop)
                for device in range(table.n_devices):
                    n_bytes = sum(table.memory_bytes(start, stop, device).values())
                    assert block_bytes(table, first, last, device) == n_bytes
                for device in range(table.n_devices):
                    transfer = blocks.receive_cycles[device][first] + blocks.send_cycles[device][last]
                    assert transfer == table.transfer_cycles(device, start, stop)


def block_bytes(table: CostTable, first: int, last: int, device: int) -> int:
    blocks = contract(table)
    (memory,) = blocks.costs[0].forms
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
