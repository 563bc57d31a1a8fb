from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from autoauto.plan.pipeline.blocks import contract
from autoauto.plan.pipeline.fitting import Fitting
from autoauto.records.costs.cost import CostTable

MakeTable = Callable[[int], CostTable]


def fitting_ranges(table: CostTable, device: int, limit: int) -> set[tuple[int, int]]:
    """The ranges of blocks that fit, from the definition of memory."""
    cuts = contract(table).cuts
    return {
        (start, stop)
        for start, stop in combinations(range(len(cuts)), 2)
        if sum(table.memory_bytes(cuts[start], cuts[stop], device).values()) <= limit
    }


def ranges(fitting: Fitting) -> set[tuple[int, int]]:
    """The ranges that are said to fit."""
    return {(start, stop) for start, latest in enumerate(fitting.latest) for stop in range(start + 1, latest + 1)}


def fittings(make_table: MakeTable) -> Iterator[tuple[set[tuple[int, int]], Fitting]]:
    for table in map(make_table, range(300)):
        limits = table.memory_limit_bytes.tolist()
        for device, fitting in enumerate(Fitting.of_devices(contract(table), limits)):
            yield fitting_ranges(table, device, limits[device]), fitting


@pytest.mark.parametrize("kind", ["random_table", "training_table"])
def test_the_ranges_are_those_that_fit_and_every_stop_has_its_earliest_start(
    request: pytest.FixtureRequest, kind: str
) -> None:
    n_not_nested = 0
    for fits, fitting in fittings(request.getfixturevalue(kind)):
        assert ranges(fitting) == fits
        for stop, earliest in enumerate(fitting.earliest):
            assert earliest == min((start for start, other in fits if other == stop), default=stop)
            if fitting.nested:
                assert all((start, stop) in fits for start in range(earliest, stop))
        n_not_nested += not fitting.nested
    assert (n_not_nested > 20) == (kind == "training_table")


def test_a_stage_fits_when_one_of_its_forms_does(outlined_table: MakeTable) -> None:
    more = 0
    for seed in range(300):
        table = outlined_table(seed)
        cuts = contract(table).cuts
        forms = {
            (a, b): [sum(form.by_category(cuts[a], cuts[b], 0).values()) for form in table.memory.forms]
            for a, b in combinations(range(len(cuts)), 2)
        }
        plain_bytes = sorted(plain for plain, _ in forms.values())
        limit = plain_bytes[seed % len(plain_bytes)] - 1
        limited = replace(table, memory_limit_bytes=np.full(table.n_devices, limit))
        assert all(
            sum(limited.memory_bytes(cuts[a], cuts[b]).values()) == (n[0] if n[0] <= limit else min(n))
            for (a, b), n in forms.items()
        )
        fits = ranges(Fitting.of(contract(table).costs[0], limit))
        assert fits == {ends for ends, n in forms.items() if min(n) <= limit}
        more += fits > ranges(Fitting.of(contract(table.plain).costs[0], limit))
    assert more > 10, "no limit at which subgraphs matter"


def test_devices_of_one_limit_and_stash_share_an_object(random_table: MakeTable) -> None:
    blocks = contract(random_table(3))
    blocks = replace(blocks, costs=blocks.costs[:1] * 3, stash_entries=[0, 0, 0])
    small, large, again = Fitting.of_devices(blocks, [30, 60, 30])
    assert small is again
    assert (small, large) == (Fitting.of(blocks.costs[0], 30), Fitting.of(blocks.costs[0], 60))
    again, other = Fitting.of_devices(replace(blocks, stash_entries=[0, 1]), [30, 30])
    assert again == small
    assert other == Fitting.of(blocks.costs[0], 30, 1)


def test_ranges_that_fit_in_one_of_two_ways() -> None:
    either = Fitting.up_to([2, 2, 2, 3]).or_in(Fitting.up_to([0, 3, 3, 3]))
    assert either.latest == [2, 3, 3, 3]
    assert either.earliest == [0, 0, 0, 1]
    assert either.nested
    assert not Fitting.up_to([0, 3, 2, 3]).nested
