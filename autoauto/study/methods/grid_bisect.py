"""Bisection over candidates of which the first few are feasible and the rest are not."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

from autoauto.records.knobs import Knobs, SearchSpace
from autoauto.study.methods.protocol import Step, Steps, Tried

T = TypeVar("T")


def max_tries(n_candidates: int) -> int:
    """The most candidates that `largest_feasible` asks for among `n_candidates`: ceil(log2(n_candidates + 1)).

    n candidates have n + 1 answers ("none fits" is one of them), and every try halves those left.

    >>> [max_tries(n) for n in (0, 1, 2, 3, 4, 127, 128)]
    [0, 1, 2, 2, 3, 7, 8]
    """
    return n_candidates.bit_length()


def largest_feasible(candidates: Sequence[T]) -> Generator[T, bool, T | None]:
    """The last feasible one of `candidates`, None when none is; all before a feasible one must be feasible.

    Yields the candidates to try and is sent whether they are feasible. Unlike the seed's search it tries a single
    candidate, and the smallest when all others failed (SEARCH.md section 1).

    >>> search = largest_feasible([1, 2, 4])
    >>> next(search), search.send(True)
    (2, 4)
    """
    n_feasible, n_left = 0, len(candidates)  # candidates[:n_feasible] are feasible, candidates[n_left:] are not
    while n_feasible < n_left:
        middle = (n_feasible + n_left) // 2
        if (yield candidates[middle]):
            n_feasible = middle + 1
        else:
            n_left = middle
    return candidates[n_feasible - 1] if n_feasible else None


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
