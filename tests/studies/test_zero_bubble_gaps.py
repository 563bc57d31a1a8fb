"""The table of zero bubble orders and their bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

import pytest

from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound
from studies import zero_bubble_gaps as gaps


@pytest.mark.slow
def test_no_order_is_below_its_bound(run_script: Callable[..., list[str]]) -> None:
    _, *rows = run_script("zero_bubble_gaps", "--quick")
    assert len(rows) == len(gaps.ORDERS) * len(gaps.LINKS)
    assert all(float(row.split()[5]) >= 1 for row in rows)


def test_exact_needs_a_library_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(SystemExit, match=r"--exact needs OR-Tools: pip install ortools"):
        gaps.exact(gaps.problem(gaps.Instance("zb1p", 2, 2, 0, None)), 1000, 5)


@pytest.mark.slow
def test_no_bound_of_a_v_is_above_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT does not know the bound here. The turn's loss of memory decides in some of these instances."""
    pytest.importorskip("ortools")
    monkeypatch.setattr(gaps, "lower_bound", lambda _: 0)
    for seed in range(40):
        random = Random(seed)
        p, m = random.choice((1, 2, 3)), random.randint(1, 5)
        n = 2 * p
        ticks = tuple(random.choice((0, 1, 2, 3, 5)) for _ in range(3 * n))
        down, up = ([random.randint(0, 4) for _ in range(n)] for _ in range(2))
        limit = min(random.randint(2, 5), 2 * m)
        v = ZeroBubbleProblem((*range(p), *reversed(range(p))), ticks, (0, *down), tuple(up), m, limit)
        shortest, proved = gaps.exact(v, m * (sum(ticks) + sum(down) + sum(up)) + 1, 60)
        assert lower_bound(v) <= shortest == proved
