"""How many activations an order holds on each device, known before anything has a duration."""

from __future__ import annotations

from autoauto.records.schedule import Order
from autoauto.schedule.orders import ZERO_BUBBLE, make_schedule


def in_flight(order: Order, n_devices: int, n_micro_batches: int) -> tuple[int, ...]:
    """The most activations that each device holds in an order of one stage a device.

    >>> in_flight(Order.ONE_F_ONE_B, 4, 8), in_flight(Order.ZB2P, 2, 8)
    ((4, 3, 2, 1), (4, 4))
    """
    if order in ZERO_BUBBLE:
        return (min(ZERO_BUBBLE[order] * n_devices, n_micro_batches),) * n_devices
    return make_schedule(order, n_devices, n_micro_batches).peak_in_flight
