"""Slots, in which all devices advance together: `slots` of a schedule, and its `barrier` timeline.

In every slot all devices compute, wait for the slowest, exchange at once, and wait for the longest exchange:

    device 0   F F . x x | F . . x .        F compute, x exchange, . wait, | start of the next slot
    device 1   F F F x . | F F F x x
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Schedule, StageTimes
from autoauto.records.units import IntArray
from autoauto.schedule.simulate.dependencies import exchange_ticks, in_order, refuse, row_devices
from autoauto.schedule.simulate.earliest import earliest_starts


def slots(schedule: Schedule) -> tuple[IntArray, ...]:
    """The slot of every action, for every device in the order of its program.

    The schedule's own slots where it has them, else the earliest ones: later by one than those of the device's previous
    action and of the inputs from other devices. Raises BadInput if the schedule cannot run to its end; the message says
    who waits for whom.
    """
    if schedule.slots is not None:
        return schedule.slots
    n_stages = schedule.n_stages
    ones, zeros = np.ones(n_stages, dtype=np.int64), np.zeros(n_stages + 1, dtype=np.int64)
    checks = (np.ones(schedule.codes.n_numbers, dtype=np.int64),) * n_stages
    return earliest_starts(
        schedule, StageTimes(ones, ones, ones, zeros, zeros[1:], zeros[1:], zeros[1:], checks=checks)
    )


BySlot = tuple[IntArray, IntArray]
"""Some slots, ascending, and what a device spends in each of them."""


def barrier(schedule: Schedule, times: StageTimes, durations: Sequence[IntArray]) -> Timeline:
    """The timeline of devices that start every slot together; `durations` are the ticks of every device's actions.

    A device runs its actions of a slot back to back. When the slowest is done all exchange, and the next slot starts
    when the longest exchange is over. A device exchanges for the actions that it ran; where the schedule has slots of
    its own, for all its stages in every slot, as PopART and Poplar copy between all devices in every cycle. Raises
    BadInput if the schedule cannot run to its end; the message says who waits for whom.
    """
    if schedule.slots is not None and not in_order(schedule):
        refuse(schedule)
    rows = slots(schedule)
    n_slots = 1 + max(int(row.max(initial=-1)) for row in rows)
    exchanges = _exchanges(schedule, times, rows, n_slots)
    compute = _longest(map(_by_slot, rows, durations), n_slots)
    length = compute + _longest(exchanges, n_slots)
    slot_starts = np.cumsum(length) - length
    starts = tuple(_starts(row, ticks, slot_starts) for row, ticks in zip(rows, durations, strict=True))
    return Timeline(
        schedule,
        starts,
        stops=tuple(map(np.add, starts, durations)),
        exchanges=tuple(_spans((slot_starts + compute)[where], ticks) for where, ticks in exchanges),
        stop_tick=int(length.sum()),
        ticks_per_cycle=times.ticks_per_cycle,
    )


def _exchanges(schedule: Schedule, times: StageTimes, rows: Sequence[IntArray], n_slots: int) -> list[BySlot]:
    if schedule.slots is None:
        return list(map(_by_slot, rows, exchange_ticks(schedule, times)))
    of_device = np.zeros(schedule.n_devices + 1, dtype=np.int64)  # and one for rows that are on none
    of_row = np.concatenate((times.forward_exchange, times.backward_exchange))
    np.add.at(of_device, row_devices(schedule)[: len(of_row)], of_row)
    return [(np.arange(n_slots), np.full(n_slots, ticks)) for ticks in of_device[:-1]]


def _by_slot(row: IntArray, ticks: IntArray) -> BySlot:
    where, first = np.unique(row, return_index=True)
    return where, np.add.reduceat(ticks, first)


def _longest(devices: Iterable[BySlot], n_slots: int) -> IntArray:
    """The most ticks that any device spends in each slot, (n_slots,)."""
    longest = np.zeros(n_slots, dtype=np.int64)
    for where, ticks in devices:
        longest[where] = np.maximum(longest[where], ticks)
    return longest


def _starts(row: IntArray, ticks: IntArray, slot_starts: IntArray) -> IntArray:
    before = np.cumsum(ticks) - ticks
    in_earlier_slots = before[np.searchsorted(row, row)]
    starts: IntArray = slot_starts[row] + before - in_earlier_slots
    return starts


def _spans(start: IntArray, ticks: IntArray) -> IntArray:
    return np.stack((start, start + ticks), axis=1)[ticks > 0]
