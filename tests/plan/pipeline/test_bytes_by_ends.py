"""The bytes of many ranges at once are those of the table, range by range."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.plan.pipeline import fitting
from autoauto.plan.pipeline.blocks import contract
from autoauto.plan.pipeline.fitting import RangeEnds, SharedUses, bytes_by_ends, parts
from autoauto.records.costs.cost import CostTable


@pytest.mark.parametrize("most", [1, 7, 50_000])
def test_every_range_has_the_bytes_of_the_table(
    training_table: Callable[[int], CostTable], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "MAX_RANGES", most)
    n_shared = 0
    for table in map(training_table, range(20)):
        blocks = contract(table)
        form = blocks.costs[0].forms[0]
        shared, n_blocks = SharedUses.of(form.shared_keys, form.shared_bytes), len(blocks)
        every = parts([0] * (n_blocks + 1), range(1, n_blocks + 1))
        some = [RangeEnds(range(1, n_blocks + 1), range(1)), RangeEnds(range(n_blocks, n_blocks + 1), range(n_blocks))]
        known: dict[tuple[int, int], int] = {}
        for ends in (*every, *some):
            all_bytes = bytes_by_ends(form.one_in_flight, ends) + shared.by_ends(ends)
            for row, stop in enumerate(ends.stops):
                for column, start in enumerate(ends.starts):
                    if ends.are_ranges[row, column]:
                        assert known.setdefault((start, stop), int(all_bytes[row, column])) == all_bytes[row, column]
        assert len(known) == n_blocks * (n_blocks + 1) // 2
        for (start, stop), n_bytes in known.items():
            layers = blocks.cuts[start], blocks.cuts[stop]
            assert n_bytes == sum(table.memory.by_category(*layers, n_stash_entries=0).values())
            n_shared += len(table.memory.shared.of(layers)) < sum(map(len, table.memory.shared.keys[slice(*layers)]))
    assert n_shared > 100


def test_a_key_counts_once_however_often_a_block_has_it() -> None:
    uses = SharedUses.of([(0, 1, 0), (), (1, 2), (0,)], (5, 7, 0))
    assert uses.blocks.tolist() == [0, 0, 2, 3]
    assert sorted(zip(uses.previous.tolist(), uses.n_bytes.tolist(), strict=True)) == [(-1, 5), (-1, 7), (0, 5), (0, 7)]
    whole = uses.by_ends(RangeEnds(range(1, 5), range(4)))
    assert whole[3].tolist() == [12, 12, 12, 5]
    assert whole[0, 0] == 12
