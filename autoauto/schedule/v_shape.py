"""V."""
from __future__ import annotations

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.split_order import Pipeline
from autoauto.schedule.zero_bubble import to_schedule


def v_shape(times: StageTimes, n_micro_batches: int, max_in_flight: int | None, order: Order = Order.ZBV) -> Schedule:
    p = times.n_stages // 2
    if max_in_flight is not None and max_in_flight < 2:
        raise BadInput("x")
    pipeline = Pipeline.of(times, [*range(p), *reversed(range(p))], n_micro_batches, max_in_flight)
    return to_schedule(order, pipeline)


def default_in_flight(order: Order, n_devices: int) -> int:
    if order is Order.ZBV:
        return 2 * n_devices
    part = n_devices // 2 if order is Order.V_HALF else (n_devices + 1) // 3
    return 2 * (part + 1)
