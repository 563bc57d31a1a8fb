"""The times of a given order: a tenth of the time of list scheduling, as no device has to choose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from autoauto.records.schedule import WEIGHT, Codes, Order, Schedule
from autoauto.records.units import IntArray
from autoauto.schedule.zero_bubble.list_scheduling import DraftSchedule, Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem


def in_order(pipeline: ZeroBubbleProblem, priorities: Priorities) -> DraftSchedule | None:
    """Every device runs its actions in the order of their priorities, each as soon as it can.

    None if a device would hold too much or devices would wait in a circle.
    """
    programs = [_program(pipeline, priorities, device) for device in range(pipeline.n_devices)]
    for program in programs:
        kinds = program // pipeline.n_stages
        held = np.cumsum((kinds == 0).astype(np.int64) - (kinds == WEIGHT))
        if held.max() > pipeline.limit:
            return None
    starts = _run(pipeline, [program.tolist() for program in programs])
    if sum(map(len, starts)) < len(starts) * pipeline.n_micro_batches:
        return None
    makespan = max(row[-1] + ticks for row, ticks in zip(starts, pipeline.ticks, strict=True))
    return DraftSchedule(makespan, starts, [program.tolist() for program in programs])


def _run(pipeline: ZeroBubbleProblem, programs: Sequence[Sequence[int]]) -> list[list[int]]:
    """For every job the starts of its actions, until devices wait in a circle."""
    device, ticks = pipeline.devices * 3, pipeline.ticks
    inputs = {to for _, to, _ in pipeline.edges()}  # the jobs that wait for one
    outputs: list[list[tuple[int, int]]] = [[] for _ in ticks]
    for job, to, link in pipeline.edges():
        outputs[job].append((to, link))
    starts: list[list[int]] = [[] for _ in ticks]
    arrivals: list[list[int]] = [[] for _ in ticks]
    if pipeline.forward_links[0]:  # the host sends one input after the other
        inputs.add(0)
        arrivals[0] = [turn * pipeline.forward_links[0] for turn in range(1, pipeline.n_micro_batches + 1)]
    done, free = [0] * len(programs), [0] * len(programs)
    wire_free: dict[tuple[int, int], int] = defaultdict(int)
    ready = list(range(len(programs)))
    # A device runs until an input is missing; the device that sends the input makes it ready again.
    while ready:
        here = ready.pop()
        now, program = free[here], programs[here]
        while done[here] < len(program):
            job = program[done[here]]
            i = len(starts[job])
            if job in inputs:
                if len(arrivals[job]) == i:
                    break
                now = max(now, arrivals[job][i])
            starts[job].append(now)
            done[here] += 1
            now += ticks[job]
            for to, link in outputs[job]:
                there, arrival = device[to], now
                if there != here:
                    wire_free[here, there] = arrival = max(now, wire_free[here, there]) + link
                    if done[there] < len(programs[there]) and programs[there][done[there]] == to:
                        ready.append(there)
                arrivals[to].append(arrival)
        free[here] = now
    return starts


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
