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
    order, stages, link, bound, ours, group, shortest = row.split()
    assert (order, stages, link, group) == ("v-min", "4", "0.5", "1")
    assert float(bound) <= float(shortest) <= float(ours) + 0.5


def test_no_period_is_below_the_bound_and_slow_links_meet_it() -> None:
    pytest.importorskip("ortools")
    two, four = (problem(Order.V_MIN, n_stages, 2, 2) for n_stages in (4, 8))
    assert repeats(two, period_bound(two) - 1, 60) is False
    assert repeats(two, 2 * period_bound(two), 60) is True
    assert (period_bound(four), shortest_period(four, 60)) == (24, 24)


def test_two_micro_batches_together_meet_a_bound_that_every_order_has() -> None:
    """8 stages, links of half a forward: 8 forwards where all micro-batches are alike, 7.5 in twos."""
    pytest.importorskip("ortools")
    four = problem(Order.V_MIN, 8, 0.5, 2)
    assert [shortest_period(four, 60, group) for group in (1, 2)] == [16, 30]
    assert [period_bound(four, group) for group in (1, 2)] == [15, 30]
