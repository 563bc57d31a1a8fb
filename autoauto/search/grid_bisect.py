"""The seed's search: every cell of the grid, bisected over the batch size."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from autoauto.records.trial import Knobs, SearchSpace
from autoauto.search.bisect import largest_feasible, max_tries
from autoauto.search.steps import Step, Steps, Tried


def grid_bisect(space: SearchSpace) -> Steps:
    """Find the largest batch size that fits in every cell (seed 001, "Auto Auto Pipeline").

    It assumes that a batch that fits lets smaller ones fit, and nothing of throughput: the best is the best measured. A
    cell that needs fewer tries than it may jumps ahead.
    """
    most_tries = max_tries(len(space.batch_size))
    for index, cell in enumerate(space.cells):
        yield from _bisect(cell, index * most_tries, len(space.cells) * most_tries)


def _bisect(cell: Sequence[Knobs], done: int, total: int) -> Generator[Step, Tried | None, None]:
    bisection = largest_feasible(cell)
    knobs = next(bisection)
    while True:
        tried = yield Step(knobs, done, total)
        assert tried is not None
        done += 1
        try:
            knobs = bisection.send(tried.score is not None)
        except StopIteration:
            return
