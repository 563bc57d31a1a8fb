"""The times of a given order: a tenth of the time of list scheduling, as no device has to choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.errors import BadInput
from autoauto.records.schedule import WEIGHT, Codes, Order, Schedule, StageTimes
from autoauto.schedule.simulate.earliest import earliest_starts
from autoauto.schedule.zero_bubble.list_scheduling import DraftSchedule, Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem


def in_order(pipeline: ZeroBubbleProblem, priorities: Priorities) -> DraftSchedule | None:
    """Every device runs its actions in the order of their priorities, each as soon as it can.

    None if a device would hold too much or devices would wait in a circle.
    """
    programs = [_program(pipeline, priorities, device) for device in range(pipeline.n_devices)]
    if max(_peak(pipeline.n_stages, program) for program in programs) > pipeline.limit:
        return None
    schedule = numbered_schedule(Order.ZB2P, pipeline, programs)
    try:
        by_device = earliest_starts(schedule, _times(pipeline))
    except BadInput:
        return None
    starts: list[IntArray] = [np.zeros(0, dtype=np.int64)] * len(pipeline.ticks)
    for program, times in zip(programs, by_device, strict=True):
        for job in np.unique(program):
            starts[job] = times[program == job]
    makespan = max(int(row[-1]) + ticks for row, ticks in zip(starts, pipeline.ticks, strict=True))
    rows = [row.tolist() for row in starts]
    return DraftSchedule(makespan, rows, _arrivals(pipeline, starts), [program.tolist() for program in programs])


def numbered_schedule(
    order: Order, pipeline: ZeroBubbleProblem, programs: Sequence[Sequence[int] | IntArray]
) -> Schedule:
    """The schedule whose devices run these jobs: the micro-batches of every job follow each other."""
    n_numbers = Codes(pipeline.n_stages, pipeline.n_micro_batches).n_numbers
    numbered = tuple(_numbered(np.asarray(program, dtype=np.int64), n_numbers) for program in programs)
    return Schedule(order, pipeline.devices, pipeline.n_micro_batches, numbered)


def _numbered(jobs: IntArray, n_numbers: int) -> IntArray:
    numbers = np.empty_like(jobs)
    for job in np.unique(jobs):
        turns = jobs == job
        numbers[turns] = np.arange(np.count_nonzero(turns))
    return jobs * n_numbers + numbers


def _program(pipeline: ZeroBubbleProblem, priorities: Priorities, device: int) -> IntArray:
    """The jobs of a device's actions in the order of their priorities; of equal ones the first kind goes first."""
    jobs = [job for job in range(len(pipeline.ticks)) if pipeline.devices[job % pipeline.n_stages] == device]
    order = np.argsort(np.concatenate([priorities[job] for job in jobs]), kind="stable")
    return np.repeat(jobs, pipeline.n_micro_batches)[order]


def _peak(n_stages: int, program: IntArray) -> int:
    """The most activations that a device holds."""
    kinds = program // n_stages
    return int(np.cumsum((kinds == 0).astype(np.int64) - (kinds == WEIGHT)).max())


def _times(pipeline: ZeroBubbleProblem) -> StageTimes:
    nothing = np.zeros(pipeline.n_stages, dtype=np.int64)
    kinds = np.array(pipeline.ticks).reshape(3, pipeline.n_stages)
    links = np.array(pipeline.forward_links), np.array(pipeline.backward_links)
    return StageTimes(kinds[0], kinds[1], kinds[2], *links, nothing, nothing)


def _arrivals(pipeline: ZeroBubbleProblem, starts: Sequence[IntArray]) -> list[list[int]]:
    """For every job when the input of each action has arrived."""
    arrivals: list[list[int]] = [[] for _ in starts]
    if pipeline.forward_links[0]:
        arrivals[0] = (pipeline.forward_links[0] * np.arange(1, pipeline.n_micro_batches + 1)).tolist()
    devices, wires = pipeline.devices * 3, defaultdict(list)
    for job, to, link in pipeline.edges():
        stops = starts[job] + pipeline.ticks[job]
        if devices[job] == devices[to]:
            arrivals[to] = stops.tolist()
        else:
            wires[devices[job], devices[to]].append((to, stops, link))
    for messages in wires.values():
        receivers = np.repeat([to for to, _, _ in messages], pipeline.n_micro_batches)
        links = np.repeat([link for _, _, link in messages], pipeline.n_micro_batches)
        stops = np.concatenate([row for _, row, _ in messages])
        order = np.argsort(stops, kind="stable")
        # A message sets out when it is there and the one before has arrived: the latest of these, plus all links since.
        sums = np.cumsum(links[order])
        ends = np.maximum.accumulate(stops[order] - sums + links[order]) + sums
        for to, _, _ in messages:
            arrivals[to] = ends[receivers[order] == to].tolist()
    return arrivals
