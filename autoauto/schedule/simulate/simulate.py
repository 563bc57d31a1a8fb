"""Schedule x times -> Timeline: `simulate` finds when every action runs, in exact integers.

The makespan of long orders without simulating all of them: `order_step`.

Where all devices advance slot by slot, an order is a sequence of slots, and its makespan the sum over slots of what the
slowest device spends in each. With more micro-batches than the pipeline is long, more of them repeat the slots of the
steady state, whatever the times are:

    1f1b, 2 devices        3 micro-batches   F  FF BB F. .B BF ...       slots that occur once: fill and flush
                           4 micro-batches   ... two slots more          slots that occur once more a micro-batch

So the counts of slots are linear in the number of micro-batches from twice the stages on, and two short orders tell
them for all long ones. It is a property of the orders that are the same for all times; tests compare them with whole
orders.

Zero bubble orders are searched for, so the counts of theirs are not quite linear. Those of more than `LONG_STEP`
micro-batches are assumed to have so many times the slots of `LONG_STEP` as the lower bound of slots has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import FORWARD, Order, Schedule, StageTimes, Transfers
from autoauto.records.units import IntArray
from autoauto.schedule.orders.registry import make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.barrier import barrier
from autoauto.schedule.simulate.dependencies import compute_ticks
from autoauto.schedule.simulate.earliest import earliest_starts
from autoauto.schedule.simulate.step import StepFunction, slot_kinds, slot_sums, step_function

MAX_TICKS = 2**62


def simulate(schedule: Schedule, times: StageTimes, transfers: Transfers = Transfers.OVERLAP) -> Timeline:
    """Run every device's program in its order, each action as soon as `transfers` let it.

    Overlap: an action starts when the device's previous one has stopped and its inputs have arrived (earliest.py);
    slots are ignored. Barrier: all devices advance slot by slot (barrier.py). The timeline ends when the host has the
    last result. The simulation takes time in proportion to the number of actions, in any order.

    Raises:
        BadInput: the schedule cannot run to its end, and the message says who waits for whom; or ticks would not fit
            in 64 bits.
    """
    _check_size(schedule, times)
    durations = compute_ticks(schedule, times)
    if transfers is Transfers.BARRIER:
        return barrier(schedule, times, durations)
    starts = earliest_starts(schedule, times)
    stops = tuple(map(np.add, starts, durations))
    stop_tick = _last_arrival(schedule, stops, times)
    for column in stops:
        stop_tick = max(stop_tick, int(column.max(initial=0)))
    return Timeline(
        schedule,
        starts,
        stops,
        exchanges=(np.zeros((0, 2), dtype=np.int64),) * schedule.n_devices,
        stop_tick=stop_tick,
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


LONG_STEP = 128  # micro-batches: zero bubble orders of more are not made to tell their step
SLOT_EFFORT = 0.05
"""The share of the search's effort for an order in slots. The whole finds fewer of them in 5 of 30 shapes, which are 5
orders of 2 to 8 devices and 8 to 64 micro-batches: up to 6 % fewer, in v-half and v-min."""


@lru_cache(maxsize=64)
def zero_bubble_in_slots(order: Order, n_devices: int, n_micro_batches: int) -> Schedule:
    """A zero bubble order for devices that wait for the slowest after every action; so all actions take equally long.

    It is the same for all times, and has about the fewest slots.
    """
    return make_schedule(order, n_devices, n_micro_batches, times=_equal_times(order, n_devices), effort=SLOT_EFFORT)


def order_step(order: Order, n_devices: int, n_micro_batches: int, n_chunks: int, transfers: Transfers) -> StepFunction:
    """The makespan of an order as a function of times, for an order that is the same whatever the times are.

    Where transfers overlap with compute, every action is simulated.
    """
    if spec_of(order).splits_backward:
        assert transfers is Transfers.BARRIER
        return _step_in_slots(order, n_devices, n_micro_batches)
    short = like_the_long_step(order, n_devices, n_micro_batches)
    more = _repeats(order, n_devices)
    if transfers is not Transfers.BARRIER or short + more >= n_micro_batches:
        return step_function(make_schedule(order, n_devices, n_micro_batches, n_chunks=n_chunks), transfers)
    # The counts of slots are linear from `short` micro-batches on: what `more` of them add, all the rest add again.
    schedule = make_schedule(order, n_devices, short, n_chunks=n_chunks)
    counts = slot_kinds(schedule)
    longer = slot_kinds(make_schedule(order, n_devices, short + more, n_chunks=n_chunks))
    n_more = (n_micro_batches - short) // more - 1
    return slot_sums(schedule, {kind: n + n_more * (n - counts.get(kind, 0)) for kind, n in longer.items()})


def _step_in_slots(order: Order, n_devices: int, n_micro_batches: int) -> StepFunction:
    """The step function of a zero bubble order whose devices run in slots, `zero_bubble_in_slots`."""
    # Imported when needed: zero bubble orders take time to load, and most programs never use them.
    from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound

    short = min(n_micro_batches, LONG_STEP)
    schedule = zero_bubble_in_slots(order, n_devices, short)
    times, devices = _equal_times(order, n_devices), stage_devices_of(order, n_devices)
    default_limit = spec_of(order).default_max_in_flight
    limit = None
    if default_limit is not None:
        limit = default_limit(n_devices)
    n_slots = lower_bound(ZeroBubbleProblem.of(times, devices, n_micro_batches, limit))
    of_short = lower_bound(ZeroBubbleProblem.of(times, devices, short, limit))
    return slot_sums(schedule, {kind: n * n_slots / of_short for kind, n in slot_kinds(schedule).items()})


def _equal_times(order: Order, n_devices: int) -> StageTimes:
    """One tick for every action, none for messages."""
    ones = np.ones(len(stage_devices_of(order, n_devices)), dtype=np.int64)
    none = np.zeros(len(ones) + 1, dtype=np.int64)
    return StageTimes(ones, ones, ones, none, none[1:], none[1:], none[1:])


def like_the_long_step(order: Order, n_devices: int, n_micro_batches: int) -> int:
    """The fewest micro-batches that have the fill, the steady state and the flush of so many."""
    fewest, repeats = 2 * len(stage_devices_of(order, n_devices)), _repeats(order, n_devices)
    return min(n_micro_batches, fewest + (n_micro_batches - fewest) % repeats)


def _repeats(order: Order, n_devices: int) -> int:
    """After how many micro-batches the steady state repeats itself: some orders take them in groups."""
    return n_devices if spec_of(order).in_groups else 1
