"""What orders hold in flight, known before anything has a duration."""

import numpy as np
import pytest

from autoauto.records.schedule import Order, StageTimes
from autoauto.schedule.in_flight import in_flight
from autoauto.schedule.orders import make_schedule


@pytest.mark.parametrize(
    ("order", "held"),
    [
        (Order.GPIPE, (8, 8, 8)),
        (Order.ONE_F_ONE_B, (3, 2, 1)),
        (Order.POPART, (5, 3, 1)),
        (Order.ZB1P, (3, 3, 3)),
        (Order.ZB2P, (6, 6, 6)),
    ],
)
def test_each_order_holds_its_own(order: Order, held: tuple[int, ...]) -> None:
    assert in_flight(order, 3, 8) == held


@pytest.mark.parametrize("order", [Order.ZB1P, Order.ZB2P])
@pytest.mark.parametrize("n_micro_batches", [1, 2, 5, 12])
def test_zero_bubble_orders_never_hold_more(order: Order, n_micro_batches: int) -> None:
    ticks = np.array([3, 5, 4])
    links, none = np.zeros(4, dtype=np.int64), np.zeros(3, dtype=np.int64)
    times = StageTimes(ticks, ticks, ticks, links, none, none, none)
    schedule = make_schedule(order, 3, n_micro_batches, times=times)
    limit = in_flight(order, 3, n_micro_batches)
    assert all(held <= most for held, most in zip(schedule.peak_in_flight, limit, strict=True))
