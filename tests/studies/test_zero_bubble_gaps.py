"""The table of zero bubble orders and their bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

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
