"""How many activations wait in the stash for their backward pass."""

from __future__ import annotations

from autoauto.records.schedule import BACKWARD, Order, Schedule
from autoauto.schedule.orders.registry import make_schedule, spec_of


def stash_entries(schedule: Schedule) -> tuple[int, ...]:
    """For every device how many micro-batches' activations its stash must have room for.

    None where every backward directly follows its own forward, else the most in flight: 2 (S - 1 - i) + 1 on device i
    of S in PopART's pipeline. Poplar's plugin holds the newest activations elsewhere, so its FIFOs are shorter by one.
    The unit is the activations of one stage, so of one chunk where a device has several. Inference stashes nothing.

    >>> from autoauto.schedule.orders.popart import popart
    >>> stash_entries(popart(3, 5, training=True))
    (5, 3, 0)
    """
    if not schedule.has(BACKWARD):
        return (0,) * schedule.n_devices
    depth = spec_of(schedule.order).fifo_depth if schedule.order else None
    if depth is not None:
        return _fifo_entries(schedule, depth)
    return tuple(0 if peak == 1 else peak for peak in schedule.peak_in_flight)


def _fifo_entries(schedule: Schedule, depth: int) -> tuple[int, ...]:
    entries = [0] * schedule.n_devices
    for stage, device in enumerate(schedule.devices):
        entries[device] += depth * (schedule.n_stages - 1 - stage)
    return tuple(entries)


def in_flight(order: Order, n_devices: int, n_micro_batches: int) -> tuple[int, ...]:
    """The most activations that each device holds in an order with its default limits, one stage a device.

    An order that takes a limit may use all of it, so its limit is the answer.

    >>> in_flight(Order.ONE_F_ONE_B, 4, 8), in_flight(Order.ZB2P, 2, 8)
    ((4, 3, 2, 1), (4, 4))
    """
    limit, n_stages = spec_of(order).default_max_in_flight, len(spec_of(order).stage_devices(n_devices, 1))
    if limit is not None and n_stages == n_devices:
        return (min(limit(n_devices), n_micro_batches),) * n_devices
    return make_schedule(order, n_devices, n_micro_batches).peak_in_flight
