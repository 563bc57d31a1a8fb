"""Bisection that makes use of what successes and failures tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def least(
    attempt: Callable[[int], Found | None],
    realised: Callable[[Found], int],
    low: int,
    high: int,
    first: int,
    *,
    snap: Callable[[int], int] = int,
    tolerance: int = 0,
) -> Found | None:
    """What `attempt` finds at the smallest bound of `[low, high]` at which it finds anything; None when nowhere.

    Whoever succeeds at a bound must succeed at every larger one. What is found at a bound may do with less: `realised`
    tells how much, and the search goes on below that. `first` is tried first; while attempts fail, the distance from
    `low` doubles. `snap` raises a bound to the next one that anything can realise: below that nothing changes.
    With a `tolerance` the bound that is found may be too large by as much, but something is found if anything can be.
    """
    best = None
    bound, step = max(low, min(first, high)), max(first - low, 1)
    while low <= high - (0 if best is None else tolerance):
        found = attempt(bound)
        if found is None:
            low, step = snap(bound + 1), 2 * step
        else:
            best, high = found, realised(found) - 1
        bound = (low + high) // 2 if best is not None else min(low + step, high)
    return best
