from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.plan.blocks import contract
from autoauto.records.cost import CostTable


@pytest.mark.parametrize("kind", ["random_table", "training_table"])
def test_blocks_cost_what_their_layers_cost(request: pytest.FixtureRequest, kind: str) -> None:
    make_table: Callable[[int], CostTable] = request.getfixturevalue(kind)
    for seed in range(100):
        table = replace(make_table(seed), speeds=())
        blocks = contract(table)
        n_blocks = len(blocks)
        assert blocks.cuts == [cut for cut in range(table.n_layers + 1) if table.cut_allowed[cut]]
        assert n_blocks == len(blocks.cuts) - 1
        for first in range(n_blocks):
            for last in range(first + 1, n_blocks + 1):
                start, stop = blocks.cuts[first], blocks.cuts[last]
                own_cycles = blocks.compute_prefix_cycles[last] - blocks.start_cycles[first]
                assert own_cycles == table.compute_cycles(start, stop)
                for device in range(table.n_devices):
                    n_bytes = sum(table.memory_bytes(start, stop, device).values())
                    assert block_bytes(table, first, last, device) == n_bytes
                for device in range(table.n_devices):
                    transfer = blocks.receive_cycles[device][first] + blocks.send_cycles[device][last]
                    assert transfer == table.transfer_cycles(device, start, stop)


def block_bytes(table: CostTable, first: int, last: int, device: int) -> int:
    blocks = contract(table)
    exclusive = blocks.exclusive_prefix_bytes[last] - blocks.exclusive_prefix_bytes[first]
    keys = {key for keys in blocks.shared_keys[first:last] for key in keys}
    peak = max(blocks.peak_bytes[first:last]) - blocks.not_kept_bytes[first]
    kept = max(blocks.recompute_bytes[first:last], default=blocks.kept_bytes[last] - blocks.not_kept_bytes[first])
    return exclusive + sum(blocks.shared_bytes[key] for key in keys) + peak + blocks.stash_entries[device] * kept


def test_devices_with_equal_links_share_their_columns(random_table: Callable[[int], CostTable]) -> None:
    table = next(table for table in map(random_table, range(99)) if table.n_devices > 2)
    table.receive_cycles[1:] = table.receive_cycles[1]
    rows = contract(table).receive_cycles
    assert rows[1] is rows[2]
    assert rows[0] is not rows[1]
