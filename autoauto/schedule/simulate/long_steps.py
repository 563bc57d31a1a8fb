"""The makespan of long orders without simulating all of them: `order_step`.

Where all devices advance slot by slot, an order is a sequence of slots, and its makespan the sum over slots of what the
slowest device spends in each. With more micro-batches than the pipeline is long, more of them repeat the slots of the
steady state, whatever the times are:

    1f1b, 2 devices        3 micro-batches   F  FF BB F. .B BF ...       slots that occur once: fill and flush
                           4 micro-batches   ... two slots more          slots that occur once more a micro-batch

So the counts of slots are linear in the number of micro-batches from `2 n_devices` on, and two short orders tell them
for all long ones. It is a property of the orders that are the same for all times; tests compare them with whole orders.
"""

from __future__ import annotations

from autoauto.records.schedule import Order, Transfers
from autoauto.schedule.orders.registry import make_schedule, spec_of
from autoauto.schedule.simulate.step import StepFunction, slot_kinds, slot_sums, step_function


def order_step(order: Order, n_devices: int, n_micro_batches: int, n_chunks: int, transfers: Transfers) -> StepFunction:
    """The makespan of an order that is the same for all times, as `step_function` of its schedule.

    Where transfers overlap with compute, every action is simulated.
    """
    assert not spec_of(order).splits_backward
    short, more = like_the_long_step(order, n_devices, n_micro_batches), _repeats(order, n_devices)
    if transfers is not Transfers.BARRIER or short + more >= n_micro_batches:
        return step_function(make_schedule(order, n_devices, n_micro_batches, n_chunks=n_chunks), transfers)
    schedules = [make_schedule(order, n_devices, n, n_chunks=n_chunks) for n in (short, short + more)]
    counts, longer = map(slot_kinds, schedules)
    n_more = (n_micro_batches - short) // more - 1
    return slot_sums(schedules[0], {kind: n + n_more * (n - counts.get(kind, 0)) for kind, n in longer.items()})


def like_the_long_step(order: Order, n_devices: int, n_micro_batches: int) -> int:
    """The fewest micro-batches that have the fill, the steady state and the flush of so many."""
    fewest, repeats = 2 * n_devices, _repeats(order, n_devices)
    return min(n_micro_batches, fewest + (n_micro_batches - fewest) % repeats)


def _repeats(order: Order, n_devices: int) -> int:
    """After how many micro-batches the steady state repeats itself: interleaved takes them in groups."""
    return n_devices if order is Order.INTERLEAVED else 1
