"""The shortest periods of orders that repeat every micro-batch, by CP-SAT."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.records.schedule import Order
from studies.steady_states import period_bound, problem, repeats, shortest_period

pytestmark = pytest.mark.slow


def test_a_row_says_what_is_proved(run_script: Callable[..., list[str]]) -> None:
    pytest.importorskip("ortools")
    _, row = run_script("steady_states", "--quick")
    order, stages, link, bound, ours, shortest = row.split()
    assert (order, stages, link) == ("v-min", "4", "0.5")
    assert float(bound) <= float(shortest) <= float(ours) + 0.5


def test_no_period_is_below_the_bound_and_slow_links_need_a_longer_one() -> None:
    pytest.importorskip("ortools")
    two, four = (problem(Order.V_MIN, n_stages, 2, 2) for n_stages in (4, 8))
    assert repeats(two, period_bound(two) - 1, 60) is False
    assert repeats(two, 2 * period_bound(two), 60) is True
    assert (period_bound(four), shortest_period(four, 60)) == (22, 24)
