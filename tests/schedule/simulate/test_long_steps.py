"""Long orders from two short ones, against the simulation of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, StageTimes, Transfers
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import LONG_STEP, order_step, simulate, zero_bubble_in_slots
from autoauto.schedule.simulate.step import time_rows

ORDERS = [
    (Order.GPIPE, 1),
    (Order.ONE_F_ONE_B, 1),
    (Order.POPART, 1),
    (Order.INTERLEAVED, 2),
    (Order.INTERLEAVED, 3),
]


@pytest.mark.parametrize(("order", "n_chunks"), ORDERS)
def test_a_long_step_is_that_of_the_whole_simulation(order: Order, n_chunks: int) -> None:
    random, n_compared = np.random.default_rng(0), 0
    for n_devices in (2, 3, 5):
        n_stages = n_devices * n_chunks
        forward, backward, weight, back_links, send, send_back = (random.integers(0, 50, n_stages) for _ in range(6))
        links = random.integers(0, 50, n_stages + 1)
        times = StageTimes(forward, backward, weight, links, back_links, send, send_back)
        for n_micro_batches in range(1, 8 * n_devices):
            try:
                schedule = make_schedule(order, n_devices, n_micro_batches, n_chunks=n_chunks)
            except BadInput:  # too few for the order, or no whole groups
                continue
            whole = simulate(schedule, times, Transfers.BARRIER).stop_tick
            step = order_step(order, n_devices, n_micro_batches, n_chunks, Transfers.BARRIER)
            assert step.ticks(time_rows(times)[:, None]).tolist() == [whole]
            n_compared += 1
    assert n_compared > 15


def test_it_takes_no_longer_for_a_step_of_any_length() -> None:
    step = order_step(Order.ONE_F_ONE_B, 4, 100_000, 1, Transfers.BARRIER)
    ones = np.ones(4, dtype=np.int64)
    none, links = 0 * ones, np.zeros(5, dtype=np.int64)
    rows = time_rows(StageTimes(ones, ones, none, links, none, none, none))[:, None]
    assert step.ticks(rows).tolist() == [2 * (100_000 + 3)]  # (m + p - 1)(tf + tb)


@pytest.mark.parametrize(("order", "n_stages"), [(Order.ZB1P, 3), (Order.ZB2P, 3), (Order.ZBV, 6), (Order.V_MIN, 6)])
def test_a_zero_bubble_step_in_slots_is_that_of_its_order(order: Order, n_stages: int) -> None:
    random = np.random.default_rng(1)
    forward, backward, weight, back_links, send, send_back = (random.integers(1, 50, n_stages) for _ in range(6))
    links = random.integers(1, 50, n_stages + 1)
    times = StageTimes(forward, backward, weight, links, back_links, send, send_back)
    rows = time_rows(times)[:, None]

    def step_ticks(n_micro_batches: int) -> float:
        return float(order_step(order, 3, n_micro_batches, 1, Transfers.BARRIER).ticks(rows)[0])

    for n_micro_batches in (1, 4, 11):
        schedule = zero_bubble_in_slots(order, 3, n_micro_batches)
        assert step_ticks(n_micro_batches) == simulate(schedule, times, Transfers.BARRIER).stop_tick
    longer = zero_bubble_in_slots(order, 3, 2 * LONG_STEP)
    whole = simulate(longer, times, Transfers.BARRIER).stop_tick
    assert step_ticks(2 * LONG_STEP) == pytest.approx(whole, rel=0.02)
