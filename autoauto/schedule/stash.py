"""How many activations wait in the stash for their backward."""

from __future__ import annotations

from autoauto.records.schedule import BACKWARD, Order, Schedule
from autoauto.schedule.orders.registry import ZERO_BUBBLE, make_schedule

_FIFO_DEPTHS = {Order.GROUPED: 2, Order.POPLAR_INTERLEAVED: 1, Order.SEQUENTIAL: 0}
"""Entries of a FIFO of Poplar's TensorFlow plugin, for every stage from its own to the last (IPU.md, section 4)."""


def stash_entries(schedule: Schedule) -> tuple[int, ...]:
    """For every device how many micro-batches' activations its stash must have room for.

    None where every backward directly follows its own forward, else the most in flight: 2 (S - 1 - i) + 1 on device i
    of S in PopART's pipeline. Poplar's plugin keeps the newest activations elsewhere, so that its FIFOs are shorter.
    Counted in stages' activations, so in chunks where a device has several. Inference stashes nothing.

    >>> from autoauto.schedule.popart import popart
    >>> stash_entries(popart(3, 5, training=True))
    (5, 3, 0)
    """
    if not schedule.has(BACKWARD):
        return (0,) * schedule.n_devices
    if schedule.order in _FIFO_DEPTHS:
        return _fifo_entries(schedule, _FIFO_DEPTHS[schedule.order])
    return tuple(0 if peak == 1 else peak for peak in schedule.peak_in_flight)


def _fifo_entries(schedule: Schedule, depth: int) -> tuple[int, ...]:
    entries = [0] * schedule.n_devices
    for stage, device in enumerate(schedule.devices):
        entries[device] += depth * (schedule.n_stages - 1 - stage)
    return tuple(entries)


def in_flight(order: Order, n_devices: int, n_micro_batches: int) -> tuple[int, ...]:
    """The most activations that each device holds in an order of one stage a device.

    >>> in_flight(Order.ONE_F_ONE_B, 4, 8), in_flight(Order.ZB2P, 2, 8)
    ((4, 3, 2, 1), (4, 4))
    """
    if order in ZERO_BUBBLE:
        return (min(ZERO_BUBBLE[order] * n_devices, n_micro_batches),) * n_devices
    return make_schedule(order, n_devices, n_micro_batches).peak_in_flight
