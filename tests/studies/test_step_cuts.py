"""The table of cuts by the simulated step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies import step_cuts


@pytest.mark.slow
def test_no_order_loses_by_cuts_of_its_step(run_script: Callable[..., list[str]]) -> None:
    header, *rows = run_script("step_cuts", "--quick")
    assert header.split() == " ".join(step_cuts.COLUMNS).split()
    assert len(rows) == len(step_cuts.PERIODS) * 5  # orders of one stage a device
    assert all(float(row.split()[5]) >= 0 and float(row.split()[7]) >= 0 for row in rows)
