"""The bisection of every cell."""

from collections.abc import Callable
from typing import Any

from autoauto.records.trial import Knobs, SearchSpace
from autoauto.search.bisect import max_tries
from autoauto.search.grid_bisect import grid_bisect
from autoauto.search.steps import Tried


def test_cell_by_cell_down_to_the_largest_that_fits() -> None:
    steps = grid_bisect(SearchSpace((1, 2), (0.6,), (1, 2, 4, 8)))
    step, seen = next(steps), []
    try:
        while True:
            assert step.knobs is not None
            seen.append((step.knobs.n_ipu, step.knobs.batch_size, step.done))
            fits = step.knobs.batch_size <= 2 * step.knobs.n_ipu
            step = steps.send(Tried(1.0 if fits else None, True))
    except StopIteration:
        pass
    assert step.total == 2 * 3
    assert seen == [(1, 4, 0), (1, 2, 1), (2, 4, 3), (2, 8, 4)]


def test_a_cell_takes_no_more_tries_than_a_bisection(world: Callable[..., Any]) -> None:
    for seed in range(20):
        some = world(seed)
        cells: dict[tuple[int, float], list[Knobs]] = {}
        for knobs in some.run(grid_bisect(some.space)):
            cells.setdefault((knobs.n_ipu, knobs.memory_proportion), []).append(knobs)
        assert len(cells) == len(some.space.cells)
        assert max(map(len, cells.values())) <= max_tries(len(some.space.batch_size))
