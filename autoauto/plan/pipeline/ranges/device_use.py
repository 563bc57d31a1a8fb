"""How many devices of every kind a line of stages uses so far: the states of a `RangeProblem`, and its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.errors import BadInput

MAX_STATES = 100_000
"""With more ways to use devices of several kinds, only those are tried that use all kinds about evenly, and the plan
has a lower bound: that of a line in which every device is of any kind. Four kinds of 16 devices have 83,521."""


def even_spread(n_devices: Sequence[int], n_total: int) -> int:
    """By how many devices of a kind a state may differ from an even use of all kinds, for up to `MAX_STATES` states.

    Raises:
        BadInput: there are far more states where it is 1.
    """
    spread = max(n_devices)
    while spread > 1 and _n_usages(n_devices, n_total, spread) > MAX_STATES:
        spread //= 2
    if _n_usages(n_devices, n_total, spread) > 10 * MAX_STATES:
        raise BadInput(f"devices of {len(n_devices)} kinds are used in too many ways to be planned; try fewer kinds")
    return spread


def _even_use(n_devices: Sequence[int], total: int, spread: int) -> list[range]:
    """How many devices of every kind are in use where `total` of all are, by no more than `spread` from even."""
    even = [Fraction(n * total, sum(n_devices)) for n in n_devices]
    return [
        range(max(0, ceil(share - spread)), min(n, total, floor(share + spread)) + 1)
        for n, share in zip(n_devices, even, strict=True)
    ]


def usages(n_devices: Sequence[int], n_total: int, spread: int) -> Iterator[tuple[int, ...]]:
    """How many devices of every kind may be in use, at most `n_total` together, the fewest first.

    >>> list(usages((1, 2), 2, 2)), list(usages((2, 2), 4, 1))
    ([(0, 0), (0, 1), (1, 0), (0, 2), (1, 1)], [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (2, 0), (1, 2), (2, 1), (2, 2)])
    """
    for total in range(n_total + 1):
        *others, last = _even_use(n_devices, total, spread)
        for used in product(*others):
            if total - sum(used) in last:
                yield (*used, total - sum(used))


def _n_usages(n_devices: Sequence[int], n_total: int, spread: int) -> int:
    """The number of `usages`: for every total a coefficient of a product of polynomials, one a kind."""
    n_usages = 0
    for total in range(n_total + 1):
        ways = [1]  # by the devices of the kinds so far
        for used in _even_use(n_devices, total, spread):
            ways = [sum(ways[n - m] for m in used if 0 <= n - m < len(ways)) for n in range(total + 1)]
        n_usages += ways[total]
    return n_usages


def steps_between(
    usage: Sequence[tuple[int, ...]], ways: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """`RangeProblem.steps`: every way from every state to another, by how many devices are in use."""
    state_of = {used: state for state, used in enumerate(usage)}
    by_total: dict[int, list[tuple[int, ...]]] = {}
    for used in usage:
        by_total.setdefault(sum(used), []).append(used)
    for total, (way, (kind, m)) in product(range(max(by_total)), enumerate(ways)):
        next_of = ((used, (*used[:kind], used[kind] + m, *used[kind + 1 :])) for used in by_total[total])
        pairs = [(state_of[used], state_of[after]) for used, after in next_of if after in state_of]
        if pairs:
            before, after = zip(*pairs, strict=True)
            yield way, np.array(before), np.array(after)
