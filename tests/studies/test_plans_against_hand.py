"""The table of planned cuts against those by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies import plans_against_hand


@pytest.mark.slow
def test_no_plan_loses_to_one_by_hand(run_script: Callable[..., list[str]]) -> None:
    header, *rows, first, second, last = run_script("plans_against_hand", "--quick")
    assert header.split() == " ".join(plans_against_hand.COLUMNS).split()
    assert len(rows) == 4
    assert all(row.split()[-1].startswith("+") for row in rows)
    assert [line.split()[:2] for line in (first, second)] == [[model, "2"] for model in plans_against_hand.QUICK]
    assert last.startswith("4 settings; slower than by hand: 0")
