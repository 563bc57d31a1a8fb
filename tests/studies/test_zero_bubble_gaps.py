"""The table of zero bubble orders and their bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies import zero_bubble_gaps as gaps


@pytest.mark.slow
def test_no_order_is_below_its_bound(run_script: Callable[..., list[str]]) -> None:
    _, *rows = run_script("zero_bubble_gaps", "--quick")
    assert len(rows) == len(gaps.ORDERS) * len(gaps.LINKS)
    assert all(float(row.split()[5]) >= 1 for row in rows)


def test_exact_needs_a_library_of_its_own() -> None:
    """Without OR-Tools one clear line; with it the bounds of a tiny pipeline agree."""
    pipeline = gaps.problem(gaps.Instance("zb1p", 2, 2, 0, None))
    try:
        found, proved = gaps.exact(pipeline, 1000, 5)
    except SystemExit as error:
        assert str(error) == "--exact needs OR-Tools: pip install ortools, or leave the option out"
    else:
        assert found == proved == gaps.lower_bound(pipeline)
