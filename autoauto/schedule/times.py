"""How long stages take: `stage_times` from cycles a device, `plan_times` from a plan; and `timeline_of` a plan.

The step of training: as a function of the costs of a plan, `PlanStep`, and with its end, `with_step_end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain, pairwise
from math import lcm

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from autoauto.records.plans.timeline import StepEnd, Timeline
from autoauto.records.schedule import Order, Schedule, StageTimes, StepShape, Transfers
from autoauto.records.units import Array, FloatArray, IntArray
from autoauto.schedule.orders.registry import chunks_of, make_schedule, spec_of
from autoauto.schedule.simulate.simulate import simulate, zero_bubble_in_slots
from autoauto.schedule.simulate.step import StepFunction, time_rows


def in_turn(schedule: Schedule, times: StageTimes) -> Timeline:
    """The timeline of a schedule of `Schedule.of_inference`, with transfers while devices compute.

    A micro-batch starts in a stage when it has arrived at the device whose turn it is, and that device has stopped with
    the one before. A device sends one message after the other, and receives one after the other; the host has a link to
    every device of the first stage and of the last.
    """
    forward, links = times.forward.tolist(), times.forward_links.tolist()
    stops = np.zeros((schedule.n_stages, schedule.n_micro_batches), dtype=np.int64)
    # When every device has computed, received and sent the last micro-batch so far.
    computed = [0] * schedule.n_devices
    received = [0] * schedule.n_devices
    sent = [0] * schedule.n_devices
    devices_of = [schedule.devices_of(stage) for stage in range(schedule.n_stages)]
    for t in range(schedule.n_micro_batches):
        ready, sender = 0, None
        for stage, devices in enumerate(devices_of):
            device = devices[t % len(devices)]
            start = max(ready, received[device])
            if sender is not None:
                start = max(start, sent[sender])
            ready = received[device] = start + links[stage]
            if sender is not None:
                sent[sender] = ready
            ready = computed[device] = max(ready, computed[device]) + forward[stage]
            stops[stage, t] = ready
            sender = device
        assert sender is not None  # there is a stage
        sent[sender] = max(ready, sent[sender]) + links[-1]
    codes = schedule.codes
    starts, ends = [], []
    for program in schedule.programs:
        own_stage = codes.stages(program[:1])  # all actions of a device are on one stage
        end = stops[own_stage, codes.micro_batches(program)]
        starts.append(end - times.forward[own_stage])
        ends.append(end)
    return Timeline(
        schedule,
        starts=tuple(starts),
        stops=tuple(ends),
        exchanges=(np.zeros((0, 2), dtype=np.int64),) * schedule.n_devices,
        stop_tick=max(sent),
        ticks_per_cycle=times.ticks_per_cycle,
    )


MAX_TICKS_PER_CYCLE = 10**6
MAX_TICKS = 2**53  # of one action or message


def stage_times(
    devices: Sequence[int],
    forward: Sequence[Fraction],
    backward: Sequence[Fraction],
    weight: Sequence[Fraction],
    comm: Sequence[Fraction],
    *,
    split_backward: bool,
) -> StageTimes:
    """The times of stages from the cycles of devices: stage s is on `devices[s]`, all else is given per device.

    A device with v stages spends 1/v of its cycles on each. A message between devices d and d + 1 takes `comm[d]`
    either way; between any two others it goes the way round from the last device to the first, which is the last entry.
    Messages to the host or within a device take nothing. When all devices exchange at once, an action takes what the
    slower of its stage's two links does. Without `split_backward` BACKWARD does the weight gradient, too. Raises
    BadInput unless there is one number for every device, and for a negative or huge one, or so many decimals that a
    cycle would need more than 10**6 ticks to make all of them whole.
    """
    n_stages = Counter(devices)
    columns = {"forward": forward, "backward": backward, "weight": weight, "communication": comm}
    n_devices = max(devices) + 1
    for name, cycles in columns.items():
        if len(cycles) != n_devices:
            raise BadInput(f"{name} cycles must be given for each of {n_devices} devices, got {len(cycles)} numbers")
        if min(cycles) < 0:
            raise BadInput(f"{name} cycles must be at least 0, got {float(min(cycles)):g}")
    forward = [forward[d] / n_stages[d] for d in devices]
    backward = [backward[d] / n_stages[d] for d in devices]
    weight = [weight[d] / n_stages[d] for d in devices]
    if not split_backward:
        backward = [b + w for b, w in zip(backward, weight, strict=True)]
        weight = [Fraction(0)] * len(devices)
    links = [Fraction(0)]  # to the host, at both ends
    links += [_link(comm, device, other) for device, other in pairwise(devices)]
    links.append(Fraction(0))
    # A tick is so small a part of a cycle that all times are whole: the simulation is exact.
    scale = lcm(*(value.denominator for value in chain(forward, backward, weight, links)))
    if scale > MAX_TICKS_PER_CYCLE:
        raise BadInput(
            f"cycles, divided among the stages of a device, must be whole in parts of at most 1/{MAX_TICKS_PER_CYCLE}, "
            f"got parts of 1/{scale}; try fewer decimals"
        )
    link_ticks = _ticks(links, scale)
    exchange = np.maximum(link_ticks[:-1], link_ticks[1:])
    return StageTimes(
        forward=_ticks(forward, scale),
        backward=_ticks(backward, scale),
        weight=_ticks(weight, scale),
        forward_links=link_ticks,
        backward_links=link_ticks[:-1],
        forward_exchange=exchange,
        backward_exchange=exchange,
        ticks_per_cycle=scale,
    )


def _link(comm: Sequence[Fraction], device: int, other: int) -> Fraction:
    if device == other:
        return Fraction(0)
    if abs(device - other) == 1:
        return comm[min(device, other)]
    return comm[-1]


def _ticks(cycles: Sequence[Fraction], scale: int) -> IntArray:
    ticks = [int(value * scale) for value in cycles]
    if max(ticks) > MAX_TICKS:
        raise BadInput(f"an action or message must take at most 2**53 ticks, got {max(ticks):.3g}; check the cycles")
    return np.array(ticks, dtype=np.int64)


def plan_times(plan: Plan, training: bool, *, split_backward: bool = False) -> StageTimes:
    """The times of a plan's stages; without `training` there is no backward.

    When all devices exchange at once, a stage exchanges its `transfer_cycles`: in training one half after its forward
    and one after its backward, so a tick is half a cycle. Otherwise a message takes the longer of sending it from one
    stage and receiving it in the next, in training half of that for activations and half for gradients; the host's
    links are what the first stage receives and the last one sends. The host's constants that [auto-pipeline] adds to
    every device (estimate/table.py) stay in all of these. With `split_backward` WEIGHT takes `weight_cycles`. Where
    devices do one thing at a time, their transfers are part of their forward, in training half of them of their
    backward.
    """
    costs = np.array(cost_columns(plan), dtype=np.int64)
    return times_of_costs(costs, plan.period, training, split_backward=split_backward)


def cost_columns(plan: Plan) -> list[list[int]]:
    """Forward, backward, weight, receive and send cycles of every stage."""
    stages = plan.stages
    return [
        [stage.forward_cycles for stage in stages],
        [stage.backward_cycles for stage in stages],
        [stage.weight_cycles for stage in stages],
        [stage.receive_cycles for stage in stages],
        [stage.send_cycles for stage in stages],
    ]


def times_of_costs(costs: Array, period: Period, training: bool, *, split_backward: bool) -> StageTimes:
    """As `plan_times`, from an array (5, S, ...): forward, backward, weight, receive and send cycles of every stage."""
    forward, backward, weight, receive, send = costs
    scale, gradients = (2, 1) if training else (1, 0)
    in_turn = np.zeros_like(receive)
    if period is Period.SERIAL:
        # Links take nothing then: transfers are part of what the device does.
        in_turn = receive + send
        receive, send = in_turn * 0, in_turn * 0
    links = np.concatenate((receive[:1], np.maximum(send[:-1], receive[1:]), send[-1:]))  # half has as many ticks
    if not split_backward:
        weight = weight * 0
    return StageTimes(
        forward=forward * scale + in_turn,
        backward=((backward - weight) * scale + in_turn) * gradients,
        weight=weight * scale * gradients,
        forward_links=links,
        backward_links=links[:-1] * gradients,
        forward_exchange=receive + send,
        backward_exchange=(receive + send) * gradients,
        ticks_per_cycle=scale,
    )


def timeline_of(step: StepShape, plan: Plan, effort: float = 1.0) -> Timeline:
    """The timeline of `plan` in the order of `step`: one step of training, or enough inference to be steady.

    Zero bubble orders are made for the times of the plan, by this share of the search's effort; where all devices
    exchange at once, for slots that take equally long.
    """
    n_replicas = [stage.n_replicas for stage in plan.stages]
    n_micro_batches = 2 * step.n_devices + 2
    if step.training:
        n_micro_batches = step.n_micro_batches
    splits_backward = spec_of(step.order).splits_backward
    times = plan_times(plan, step.training, split_backward=splits_backward)
    if max(n_replicas) > 1:
        return in_turn(Schedule.of_inference(n_replicas, n_micro_batches + 4 * lcm(*n_replicas)), times)
    if not splits_backward:
        schedule = make_schedule(step.order, plan.n_devices, n_micro_batches, n_chunks=chunks_of(step))
    elif plan.period is Period.BARRIER:
        schedule = zero_bubble_in_slots(step.order, plan.n_devices, n_micro_batches)
    else:
        costs = tuple(map(tuple, cost_columns(plan)))
        return _made_for_times(step.order, plan.n_devices, n_micro_batches, plan.period, costs, effort)
    return simulate(schedule, times, transfers_of(plan.period))


@lru_cache(maxsize=16)
def _made_for_times(
    order: Order,
    n_devices: int,
    n_micro_batches: int,
    period: Period,
    costs: tuple[tuple[int, ...], ...],
    effort: float,
) -> Timeline:
    times = times_of_costs(np.array(costs, dtype=np.int64), period, training=True, split_backward=True)
    schedule = make_schedule(order, n_devices, n_micro_batches, times=times, effort=effort)
    return simulate(schedule, times, transfers_of(period))


def transfers_of(period: Period) -> Transfers:
    """The transfers that a period means: with or without a barrier."""
    return Transfers.BARRIER if period is Period.BARRIER else Transfers.OVERLAP


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A `StepFunction` of the times that plans have, in half cycles, as a function of their stages' costs.

    Costs are forward, backward, weight, receive and send cycles of every stage (`plan_times`).
    """

    function: StepFunction
    period: Period
    split_backward: bool

    def cycles(self, costs: FloatArray) -> FloatArray:
        """(K,) cycles of the steps of K plans with costs (K, S, 5)."""
        return self.function.ticks(self._times(costs)) / 2

    def slopes(self, costs: FloatArray) -> FloatArray:
        """(K, S, 5) slopes of the step at K plans: how much it grows with every cost."""
        # The chain rule through `times_of_costs`: how often the longest path has every row of `time_rows`.
        rows = np.moveaxis(self.function.slopes(self._times(costs)), -1, 0) / 2
        n = costs.shape[1]
        forward, backward, weight = rows[:, :n], rows[:, n : 2 * n], rows[:, 2 * n : 3 * n]
        links = rows[:, 3 * n : 4 * n + 1].copy()
        links[:, :-1] += rows[:, 4 * n + 1 : 5 * n + 1]
        exchange = rows[:, 5 * n + 1 : 6 * n + 1] + rows[:, 6 * n + 1 :]
        slopes = np.zeros_like(costs)
        slopes[..., 0] = 2 * forward
        slopes[..., 1] = 2 * backward
        if self.split_backward:
            slopes[..., 2] = 2 * (weight - backward)  # what is in the weight gradient is not in the input gradient
        if self.period is Period.SERIAL:
            slopes[..., 3] = slopes[..., 4] = forward + backward
            return slopes
        # A message takes the longer of its two ends, so it grows with that end only.
        receives = costs[:, 1:, 3] > costs[:, :-1, 4]
        slopes[..., 3] = slopes[..., 4] = exchange
        slopes[:, 0, 3] += links[:, 0]
        slopes[:, -1, 4] += links[:, -1]
        slopes[:, 1:, 3] += links[:, 1:-1] * receives
        slopes[:, :-1, 4] += links[:, 1:-1] * ~receives
        return slopes

    def _times(self, costs: FloatArray) -> FloatArray:
        columns = np.moveaxis(costs, (0, 1, 2), (2, 1, 0))
        return time_rows(times_of_costs(columns, self.period, training=True, split_backward=self.split_backward))


def with_step_end(
    timeline: Timeline, all_reduce_cycles: Sequence[int], update_cycles: Sequence[int], *, barrier: bool
) -> Timeline:
    """A timeline that goes on until every device has summed its gradients over the replicas and updated its weights.

    The gradients of a stage are final when its last backward has stopped. Where transfers overlap with compute, its
    all-reduce begins then, while other stages still compute; where all devices exchange at once, it begins when the
    pipeline is empty, and no device updates before it has ended everywhere:

        overlap    0  F F F B B B ......... B R R U          barrier    0  F F F B B B ......... B R R U
                   1    F B F B F B R R U                               1    F B F B F B           R R U

    Cycles are those of every device; with `barrier` all devices exchange at once.
    """
    ready = np.array([int(stops[-1]) for stops in timeline.stops])
    if barrier:
        ready[:] = timeline.stop_tick
    reduced = ready + np.array(all_reduce_cycles) * timeline.ticks_per_cycle
    begins = np.full_like(reduced, reduced.max()) if barrier else reduced
    updated = begins + np.array(update_cycles) * timeline.ticks_per_cycle
    end = StepEnd(timeline.stop_tick, np.stack((ready, reduced), axis=1), np.stack((begins, updated), axis=1))
    return replace(timeline, stop_tick=max(timeline.stop_tick, int(updated.max())), step_end=end)
