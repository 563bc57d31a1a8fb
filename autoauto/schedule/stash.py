"""How many micro-batches are in flight: on a device, `in_flight`, and on its stages, `in_flight_by_stage`.

What a stash must have room for: `stash_entries`. Whether the last stage goes back at once: `turns_at_once`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from autoauto.records.schedule import BACKWARD, FORWARD, Order, Schedule, StepShape
from autoauto.records.units import IntArray
from autoauto.schedule.orders.registry import has_one_stage_each, make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.simulate import like_the_long_step


def stash_entries(schedule: Schedule) -> tuple[int, ...]:
    """For every device how many micro-batches' activations its stash must have room for.

    None where every backward directly follows its own forward, else the most in flight: 2 (S - 1 - i) + 1 on device i
    of S in PopART's pipeline. Poplar's plugin holds the newest activations elsewhere, so its FIFOs are shorter by one.
    The unit is the activations of one stage, so of one chunk where a device has several. Inference stashes nothing.
    """
    if not schedule.has(BACKWARD):
        return (0,) * schedule.n_devices
    depth = spec_of(schedule.order).fifo_depth if schedule.order else None
    if depth is None:
        return tuple(0 if peak == 1 else peak for peak in schedule.peak_in_flight)
    entries = [0] * schedule.n_devices
    for stage, device in enumerate(schedule.devices):
        entries[device] += depth * (schedule.n_stages - 1 - stage)
    return tuple(entries)


def in_flight(order: Order, n_devices: int, n_micro_batches: int) -> tuple[int, ...]:
    """The most activations that each device holds in an order with its default limits, one stage a device.

    An order that takes a limit may use all of it, so its limit is the answer.
    """
    limit = spec_of(order).default_max_in_flight
    n_stages = len(stage_devices_of(order, n_devices))
    if limit is not None and n_stages == n_devices:
        return (min(limit(n_devices), n_micro_batches),) * n_devices
    return make_schedule(order, n_devices, n_micro_batches).peak_in_flight


@lru_cache(maxsize=256)
def in_flight_by_stage(order: Order, n_devices: int, n_micro_batches: int, n_chunks: int) -> tuple[IntArray, ...]:
    """For every device, (moments, its stages): the numbers in flight whenever no other moment has more of each.

    An order that takes a limit may use all of it, for any of the stages of a device.

    >>> [moments.tolist() for moments in in_flight_by_stage(Order.INTERLEAVED, 2, 4, 2)]
    [[[3, 2], [4, 1]], [[2, 1], [3, 0]]]
    >>> [moments.tolist() for moments in in_flight_by_stage(Order.ZBV, 2, 8, 2)]
    [[[4, 0], [0, 4]], [[4, 0], [0, 4]]]
    """
    if has_one_stage_each(StepShape(order, n_devices, n_micro_batches, n_chunks)):
        return tuple(np.array([[count]]) for count in in_flight(order, n_devices, n_micro_batches))
    limit = spec_of(order).default_max_in_flight
    if limit is None:
        few = like_the_long_step(order, n_devices, n_micro_batches)
        schedule = make_schedule(order, n_devices, few, n_chunks=n_chunks)
        return tuple(_moments(schedule, device) for device in range(n_devices))
    # One stage may hold all of the limit, or all micro-batches and its sibling the rest of it.
    most, n_own = limit(n_devices), stage_devices_of(order, n_devices).count(0)
    first = min(most, n_micro_batches)
    rest = min(most - first, (n_own - 1) * n_micro_batches)
    corners = np.full((n_own, n_own), rest)
    np.fill_diagonal(corners, first)
    return (np.unique(corners, axis=0)[::-1],) * n_devices


@lru_cache(maxsize=256)
def turns_at_once(order: Order, n_devices: int, n_micro_batches: int, n_chunks: int) -> bool:
    """True if the last stage always runs the backward pass of a micro-batch directly after its forward pass.

    It then need not compute again what it has just computed. A zero bubble order keeps some of it for a later half.
    """
    if spec_of(order).splits_backward:
        return False
    schedule = make_schedule(order, n_devices, like_the_long_step(order, n_devices, n_micro_batches), n_chunks=n_chunks)
    program = schedule.programs[schedule.devices[-1]]
    last, codes = schedule.n_stages - 1, schedule.codes
    own = (codes.stages(program) == last) & (codes.kinds(program) == FORWARD)
    following = np.roll(program, -1)[own]
    turned = (codes.stages(following) == last) & (codes.kinds(following) == BACKWARD)
    return bool((turned & (codes.micro_batches(following) == codes.micro_batches(program[own]))).all())


def _moments(schedule: Schedule, device: int) -> IntArray:
    own = np.array([stage for stage, on in enumerate(schedule.devices) if on == device])
    codes, program = schedule.codes, schedule.programs[device]
    kinds = codes.kinds(program)
    change = (kinds == FORWARD).astype(np.int64) - (kinds == BACKWARD)
    of_stages = change[:, None] * (codes.stages(program)[:, None] == own)
    counts = np.unique(np.cumsum(of_stages, axis=0), axis=0)
    # The Pareto front: rows that no other row has all the numbers of, or more; `more` counts the row itself.
    more = (counts[:, None] <= counts[None]).all(axis=2).sum(axis=1)
    largest: IntArray = counts[more == 1]
    return largest
