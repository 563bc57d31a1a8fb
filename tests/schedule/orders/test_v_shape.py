from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.registry import make_schedule, spec_of
from autoauto.schedule.orders.v_shape import v_shape
from autoauto.schedule.simulate.dependencies import check
from autoauto.schedule.simulate.simulate import simulate

TICKS_PER_CYCLE = 10


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


def test_zbv_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(v_shape(equal(4, 1, 1, 1), 2, 4)) == (
        "0F0 0F1     3F0 3B0 3F1 3B1 0B0 3W0 0B1 3W1 0W0 0W1\n    1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 2W0 1W0 2W1 1W1"
    )


def test_v_min_is_as_drawn(draw: Callable[[Schedule], str]) -> None:
    assert draw(v_shape(equal(6, 1, 1, 1), 2, 4, Order.V_MIN)) == (
        "0F0 0F1             5F0 5B0 5F1 5B1 5W0 5W1 0B0 0W0     0B1 0W1\n"
        "    1F0 1F1     4F0     4F1 4B0 4W0 4B1 1B0 1W0 4W1 1B1 1W1\n"
        "        2F0 3F0 2F1 3F1         3B0 2B0 3W0 3B1 2B1 2W0 3W1 2W1"
    )


def default_in_flight(order: Order, n_devices: int) -> int:
    limit = spec_of(order).default_max_in_flight
    assert limit is not None
    return limit(n_devices)


def test_no_worse_than_the_public_schedulers(vectors: Callable[[str], Any]) -> None:
    cases = [case for case in vectors("schedules_zero_bubble")["cases"] if case["chunks"] == 2]
    assert len(cases) == 18
    for case in cases:
        order, p = Order(case["schedule"].lower()), case["p"]
        times = equal(2 * p, case["tF"], case["tB"], case["tW"], case["tComm"])
        schedule = v_shape(times, case["m"], default_in_flight(order, p), order)
        check(schedule)
        assert simulate(schedule, times).makespan_cycles <= case["makespan"] + 1e-9, case
        assert max(schedule.peak_in_flight) <= max(case["peak_in_flight"]), case


def test_every_device_has_two_stages() -> None:
    schedule = v_shape(equal(6, 1, 1, 1), 2, None, Order.V_HALF)
    assert schedule.devices == (0, 1, 2, 2, 1, 0)
    assert schedule.order is Order.V_HALF


def test_zbv_has_no_bubble_but_the_skew_of_its_starts() -> None:
    for p in (2, 3, 4, 6):
        times = equal(2 * p, 1, 1, 1)
        assert simulate(v_shape(times, 2 * p, 2 * p), times).makespan_cycles == 12 * p + p - 1


def test_unequal_stages_and_links_stay_within_the_limit() -> None:
    for seed, (p, m, limit) in enumerate(((1, 3, 2), (2, 5, 2), (3, 4, 5), (4, 3, None))):
        schedule = v_shape(unequal(2 * p, seed), m, limit)
        check(schedule)
        assert max(schedule.peak_in_flight) <= (limit or 2 * m)


def test_the_default_limits_are_those_of_the_paper() -> None:
    peaks = {  # of the public building blocks, for 2 to 8 devices
        Order.V_HALF: [4, 4, 6, 6, 8, 8, 10],
        Order.V_MIN: [4, 4, 4, 6, 6, 6, 8],
    }
    for order, expected in peaks.items():
        assert [default_in_flight(order, p) for p in range(2, 9)] == expected
    assert default_in_flight(Order.ZBV, 5) == 10


def test_impossible_v_shapes_are_refused() -> None:
    with pytest.raises(BadInput, match="two stages a device, got 3 stages"):
        v_shape(equal(3, 1, 1, 1), 2, 4)
    with pytest.raises(BadInput, match="n_micro_batches must be at least 1, got 0"):
        make_schedule(Order.ZBV, 2, 0, times=equal(4, 1, 1, 1))
    with pytest.raises(BadInput, match="at least 2 activations, got max_in_flight 1"):
        v_shape(equal(4, 1, 1, 1), 2, 1)
