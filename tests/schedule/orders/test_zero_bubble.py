from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.orders.zero_bubble import zero_bubble
from autoauto.schedule.simulate.dependencies import check
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound

Draw = Callable[[Schedule], str]
TICKS_PER_CYCLE = 10
LIMITS: dict[str, Callable[[int], int | None]] = {
    "ZB1P(max_mem=p)": lambda p: p,
    "ZB2P(max_mem=2p)": lambda p: 2 * p,
    "ZB(no memory limit)": lambda p: None,
}


def equal(n_stages: int, forward: float, backward: float, weight: float, link: float = 0) -> StageTimes:
    def column(cycles: float, n: int = n_stages) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.full(n, round(cycles * TICKS_PER_CYCLE), dtype=np.int64)

    forward_links = column(link, n_stages + 1)
    forward_links[[0, -1]] = 0
    nothing = column(0)
    compute = column(forward), column(backward), column(weight)
    return StageTimes(*compute, forward_links, column(link), nothing, nothing, TICKS_PER_CYCLE)


def unequal(n_stages: int, seed: int) -> StageTimes:
    rng = np.random.default_rng(seed)
    forward, backward, weight, links, back_links = (rng.integers(1, 9, n_stages) for _ in range(5))
    nothing = np.zeros(n_stages, dtype=np.int64)
    return StageTimes(forward, backward, weight, np.append(links, 0), back_links, nothing, nothing)


def test_zb1p_on_two_devices_is_as_drawn(draw: Draw) -> None:
    assert draw(zero_bubble(equal(2, 1, 1, 1), 3, 2)) == (
        "0F0 0F1     0B0 0W0 0F2 0B1 0W1 0B2 0W2\n"  # the bubble: no third activation, and no gradient yet
        "    1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2"
    )


def test_zb1p_on_three_devices_is_as_drawn(draw: Draw) -> None:
    assert draw(zero_bubble(equal(3, 1, 1, 1), 4, 3)) == (
        "0F0 0F1 0F2         0B0 0W0 0F3 0B1 0W1 0B2 0W2 0B3 0W3\n"
        "    1F0 1F1 1F2 1B0 1W0 1B1 1W1 1F3 1B2 1W2 1B3 1W3\n"
        "        2F0 2B0 2F1 2B1 2W0 2F2 2B2 2F3 2B3 2W1 2W2 2W3"
    )


def test_zb2p_on_two_devices_is_as_drawn(draw: Draw) -> None:
    assert draw(zero_bubble(equal(2, 1, 1, 1), 3, 4)) == (
        "0F0 0F1 0F2 0B0 0W0 0B1 0W1     0B2 0W2\n"
        "    1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1W2"
    )  # fmt: skip


def test_no_worse_than_the_public_schedulers(vectors: Callable[[str], Any]) -> None:
    cases = [case for case in vectors("schedules_zero_bubble")["cases"] if case["schedule"] in LIMITS]
    assert len(cases) == 18
    for case in cases:
        times = equal(case["p"], case["tF"], case["tB"], case["tW"], case["tComm"])
        schedule = zero_bubble(times, case["m"], LIMITS[case["schedule"]](case["p"]))
        check(schedule)
        assert simulate(schedule, times).makespan_cycles <= case["makespan"] + 1e-9, case
        assert max(schedule.peak_in_flight) <= max(case["peak_in_flight"]), case


def test_the_bubbles_are_those_of_the_paper() -> None:
    for p, (forward, backward, weight) in product((2, 3, 4), ((1, 1, 1), (2, 2, 1), (10, 11, 9))):
        times, m = equal(p, forward, backward, weight), 3 * p
        work, skew = m * (forward + backward + weight), (p - 1) * forward
        zb1p, zb2p = (simulate(zero_bubble(times, m, k), times) for k in (p, 2 * p))
        assert zb1p.makespan_cycles == work + (p - 1) * (forward + backward - weight)
        assert zb2p.makespan_cycles == work + skew


def test_the_limit_names_the_order() -> None:
    orders = [zero_bubble(equal(3, 1, 1, 1), 2, limit).order for limit in (1, 3, 4, None)]
    assert orders == [Order.ZB1P, Order.ZB1P, Order.ZB2P, Order.ZB2P]


def test_unequal_stages_and_links_stay_within_the_limit() -> None:
    for seed, (p, m, limit) in enumerate(((2, 5, 1), (3, 7, 3), (4, 9, 5), (5, 6, None))):
        times = unequal(p, seed)
        schedule = zero_bubble(times, m, limit)
        check(schedule)
        assert max(schedule.peak_in_flight) <= (limit or m)
        problem = ZeroBubbleProblem.of(times, range(p), m, limit)
        assert lower_bound(problem) <= simulate(schedule, times).makespan_cycles <= 1.5 * lower_bound(problem)


def test_one_device_never_idles() -> None:
    times = equal(1, 1, 2, 3)
    for limit in (1, 2, None):
        assert simulate(zero_bubble(times, 9, limit), times).makespan_cycles == 54


@pytest.mark.parametrize(("m", "limit"), [(0, 2), (2, 0)])
def test_impossible_limits_are_refused(m: int, limit: int) -> None:
    with pytest.raises(BadInput, match=r"at least 1, got .*0$"):
        make_schedule(Order.ZB1P, 2, m, times=equal(2, 1, 1, 1), max_in_flight=limit)
