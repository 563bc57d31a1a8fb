"""Schedule x times -> Timeline: `simulate` finds when every action runs, in exact integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.errors import BadInput
from autoauto.records.schedule import FORWARD, Schedule, StageTimes, Transfers
from autoauto.records.timeline import Timeline
from autoauto.schedule.simulate.barrier import barrier
from autoauto.schedule.simulate.dependencies import compute_ticks
from autoauto.schedule.simulate.earliest import earliest_starts

MAX_TICKS = 2**62


def simulate(schedule: Schedule, times: StageTimes, transfers: Transfers = Transfers.OVERLAP) -> Timeline:
    """Run every device's program in its order, each action as soon as `transfers` let it.

    Overlap: an action starts when the device's previous one has stopped and its inputs have arrived (earliest.py);
    slots are ignored. Barrier: all devices advance slot by slot (barrier.py). The timeline ends when the host has the
    last result. The simulation takes time in proportion to the number of actions, in any order.

    Raises:
        BadInput: the schedule cannot run to its end, and the message says who waits for whom; or ticks would not fit
            in 64 bits.

    >>> from fractions import Fraction
    >>> from autoauto.schedule.orders.one_f_one_b import one_f_one_b
    >>> from autoauto.schedule.times import stage_times
    >>> schedule = one_f_one_b(4, 8)
    >>> cycles = ([Fraction(c)] * 4 for c in (1, 2, 0, 0))
    >>> times = stage_times(schedule.devices, *cycles, split_backward=False)
    >>> simulate(schedule, times).makespan_cycles  # (m + p - 1)(tf + tb)
    33
    """
    _check_size(schedule, times)
    durations = compute_ticks(schedule, times)
    if transfers is Transfers.BARRIER:
        return barrier(schedule, times, durations)
    return _overlap(schedule, times, durations)


def _overlap(schedule: Schedule, times: StageTimes, durations: Sequence[IntArray]) -> Timeline:
    starts = earliest_starts(schedule, times)
    stops = tuple(map(np.add, starts, durations))
    return Timeline(
        schedule,
        starts,
        stops,
        exchanges=(np.zeros((0, 2), dtype=np.int64),) * schedule.n_devices,
        stop_tick=max(_last_arrival(schedule, stops, times), *(int(column.max(initial=0)) for column in stops)),
        ticks_per_cycle=times.ticks_per_cycle,
    )


def _last_arrival(schedule: Schedule, stops: Sequence[IntArray], times: StageTimes) -> int:
    """When the host has the last result: the last stage sends one after the other."""
    device, codes = schedule.devices[-1], schedule.codes
    program = schedule.programs[device]
    results = stops[device][(codes.kinds(program) == FORWARD) & (codes.stages(program) == schedule.n_stages - 1)]
    after = np.arange(len(results), 0, -1) * times.forward_links[-1]  # from the first message that waits for none
    return int((results + after).max(initial=0))


def _check_size(schedule: Schedule, times: StageTimes) -> None:
    """Even one after the other, all actions and messages must end before `MAX_TICKS`."""
    columns = (times.forward, times.backward, times.weight, times.forward_links, times.backward_links, *times.checks)
    exchange = sum(map(int, (*times.forward_exchange, *times.backward_exchange)))
    ticks = schedule.n_actions * (2 * max(int(column.max(initial=0)) for column in columns) + exchange)
    if ticks > MAX_TICKS:
        raise BadInput(
            f"all actions one after the other must take less than 2**62 ticks, got up to {ticks:.3g}; "
            "try fewer decimals of cycles or fewer micro-batches"
        )
