"""Bisection over candidates of which the first few are feasible and the rest are not."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

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
