"""The makespan of long orders without simulating all of them: `order_step`.

Where all devices advance slot by slot, an order is a sequence of slots, and its makespan the sum over slots of what the
slowest device spends in each. With more micro-batches than the pipeline is long, more of them repeat the slots of the
steady state, whatever the times are:

    1f1b, 2 devices        3 micro-batches   F  FF BB F. .B BF ...       slots that occur once: fill and flush
                           4 micro-batches   ... two slots more          slots that occur once more a micro-batch

So the counts of slots are linear in the number of micro-batches from `2 n_devices` on, and two short orders tell them
for all long ones. It is a property of the orders that are the same for all times; tests compare them with whole orders.

Zero bubble orders are searched for, so the counts of theirs are not quite linear. Those of more than `LONG_STEP`
micro-batches are assumed to have so many times the slots of `LONG_STEP` as the lower bound of slots has.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from autoauto.records.schedule import Order, Schedule, StageTimes, Transfers
from autoauto.schedule.orders.registry import make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.step import StepFunction, slot_kinds, slot_sums, step_function

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
    """The makespan of an order that is the same for all times, as `step_function` of its schedule.

    Where transfers overlap with compute, every action is simulated.
    """
    if spec_of(order).splits_backward:
        assert transfers is Transfers.BARRIER
        return _step_in_slots(order, n_devices, n_micro_batches)
    short, more = like_the_long_step(order, n_devices, n_micro_batches), _repeats(order, n_devices)
    if transfers is not Transfers.BARRIER or short + more >= n_micro_batches:
        return step_function(make_schedule(order, n_devices, n_micro_batches, n_chunks=n_chunks), transfers)
    schedules = [make_schedule(order, n_devices, n, n_chunks=n_chunks) for n in (short, short + more)]
    counts, longer = map(slot_kinds, schedules)
    n_more = (n_micro_batches - short) // more - 1
    return slot_sums(schedules[0], {kind: n + n_more * (n - counts.get(kind, 0)) for kind, n in longer.items()})


def _step_in_slots(order: Order, n_devices: int, n_micro_batches: int) -> StepFunction:
    """That of `zero_bubble_in_slots`."""
    # Imported when needed: zero bubble orders take time to load, and most programs never use them.
    from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound

    short = min(n_micro_batches, LONG_STEP)
    schedule = zero_bubble_in_slots(order, n_devices, short)
    times, devices, spec = _equal_times(order, n_devices), stage_devices_of(order, n_devices), spec_of(order)
    limit = None if spec.default_max_in_flight is None else spec.default_max_in_flight(n_devices)
    n_slots, of_short = (lower_bound(ZeroBubbleProblem.of(times, devices, n, limit)) for n in (n_micro_batches, short))
    return slot_sums(schedule, {kind: n * n_slots / of_short for kind, n in slot_kinds(schedule).items()})


def _equal_times(order: Order, n_devices: int) -> StageTimes:
    """One tick for every action, none for messages."""
    ones = np.ones(len(stage_devices_of(order, n_devices)), dtype=np.int64)
    none = np.zeros(len(ones) + 1, dtype=np.int64)
    return StageTimes(ones, ones, ones, none, none[1:], none[1:], none[1:])


def like_the_long_step(order: Order, n_devices: int, n_micro_batches: int) -> int:
    """The fewest micro-batches that have the fill, the steady state and the flush of so many."""
    fewest, repeats = 2 * n_devices, _repeats(order, n_devices)
    return min(n_micro_batches, fewest + (n_micro_batches - fewest) % repeats)


def _repeats(order: Order, n_devices: int) -> int:
    """After how many micro-batches the steady state repeats itself: interleaved takes them in groups."""
    return n_devices if order is Order.INTERLEAVED else 1
