"""List scheduling of forwards, input gradients (B) and weight gradients (W) on devices with little memory.

Every action has a priority, the time at which it should start; a smaller one goes first. Priorities decide nothing but
which of the actions that compete for a device starts next, so any priorities give a legal order. Three ideas make the
order short:

- *Active schedules* (Giffler and Thompson). The device whose next action could stop first is served next, and all its
  actions that could start before that stop compete. So a device waits for a gradient that is about to arrive rather
  than start a W, and never waits so long that an action would have fitted in.

      free      gradient arrives
      |         |      first stop: W would end here
      v         v      v
      . . . . . B B B B     B competes with W, as it can start before W would stop
      W W W W W W W W W

- *Windows.* A forward that starts because its device is free holds memory that others need. So an action competes only
  if its priority is at most `window` later than the earliest priority on the device.
- *Fairness.* All devices have about the same work, so the one that idles most decides the makespan. A fair device waits
  only if that does not leave it with less slack than every other device.

Time may also run backwards, from the last W to the first F. Then W takes memory and F gives it back; the rest is the
same, so one scheduler serves both directions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import FORWARD, WEIGHT, Codes, Order, Schedule
from autoauto.records.units import IntArray
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

NEVER = 1 << 62

Priorities = list[list[float]]
"""For every job the time at which each of its actions should start, non-decreasing."""


class ChoiceRule(NamedTuple):
    """The rule by which a device chooses its next action.

    Attributes:
        window: by how many ticks the priority of an action may be later than the device's earliest.
        fair: whether it waits only as long as another device has no more slack. Slack is how long a device could idle
            if all devices were to stop at the cutoff.
    """

    window: float = NEVER
    fair: bool = False


class DraftSchedule(NamedTuple):
    """A legal order with its times.

    Attributes:
        makespan: ticks until everything stops.
        starts: for every job the starts of its actions.
        programs: for every device the jobs of its actions, in order.
    """

    makespan: int
    starts: list[list[int]]
    programs: list[list[int]]


class Direction:
    """A pipeline with time running forwards or backwards, laid out for the scheduler.

    Attributes:
        takes, gives: whether a job takes or gives back memory.
        sibling: for every job the job of the same kind on the device's other stage, or itself.
        n_inputs: how many inputs the actions of every job have.
        outputs: for every job what its actions send: (receiving job, which of its inputs, ticks, wire).
        n_wires: how many wires there are; a wire leads from one device to another.
        n_scheduled: how many actions have been scheduled so far.
    """

    def __init__(self, pipeline: ZeroBubbleProblem, *, backwards: bool) -> None:
        n = pipeline.n_stages
        self.pipeline = pipeline
        self.backwards = backwards
        self.device = pipeline.devices * 3
        self.jobs: list[list[int]] = [[] for _ in range(pipeline.n_devices)]
        for job, device in enumerate(self.device):
            self.jobs[device].append(job)
        taking, giving = FORWARD, WEIGHT
        if backwards:
            taking, giving = giving, taking
        self.takes = [job // n == taking for job in range(3 * n)]
        self.gives = [job // n == giving for job in range(3 * n)]
        self.sibling = []
        for job, device in enumerate(self.device):
            kind, stage = divmod(job, n)
            stages = pipeline.stages_of(device)
            other = stages[-1] if stage == stages[0] else stages[0]
            self.sibling.append(kind * n + other)
        self.n_inputs = [0] * (3 * n)
        self.outputs: list[list[tuple[int, int, int, int]]] = [[] for _ in range(3 * n)]
        self.n_wires = self._connect()
        self.n_scheduled = 0

    def schedule(self, priorities: Priorities, rule: ChoiceRule, cutoff: int = NEVER) -> DraftSchedule | None:
        """Schedule every action; None as soon as a device cannot stop by `cutoff` any more."""
        run = _Run(self, priorities, rule, cutoff)
        draft = run.run()
        self.n_scheduled += max(sum(run.done), run.n * len(run.done) // 4)  # every run has a fixed cost, too
        return draft

    def _connect(self) -> int:
        """Fill in the outputs and count the wires."""
        wires: dict[tuple[int, int], int] = {}
        edges = self.pipeline.edges()
        if self.backwards:
            edges = [(to, job, ticks) for job, to, ticks in edges]
        for job, to, ticks in edges:
            here, there = self.device[job], self.device[to]
            wire = -1
            if here != there:
                wire = wires.setdefault((here, there), len(wires))
            self.outputs[job].append((to, self.n_inputs[to], ticks, wire))
            self.n_inputs[to] += 1
        return len(wires)


class _Run:
    """One run of the scheduler: for every job how much is done, and for every device when it is free."""

    def __init__(self, direction: Direction, priorities: Priorities, rule: ChoiceRule, cutoff: int) -> None:
        pipeline, n_jobs = direction.pipeline, len(direction.device)
        self.direction, self.priorities, self.window, self.fair = direction, priorities, rule.window, rule.fair
        self.n, self.limit, self.ticks = pipeline.n_micro_batches, pipeline.limit, pipeline.ticks
        self.done = [0] * n_jobs
        self.starts: list[list[int]] = [[] for _ in range(n_jobs)]
        self.arrivals: list[list[list[int]]] = [[[] for _ in range(n)] for n in direction.n_inputs]
        if not direction.backwards and pipeline.forward_links[0]:  # the host sends one input after the other
            self.arrivals[FORWARD].append([turn * pipeline.forward_links[0] for turn in range(1, self.n + 1)])
        self.programs: list[list[int]] = [[] for _ in direction.jobs]
        self.free = [0] * len(direction.jobs)
        self.slack = [cutoff - self.n * work for work in pipeline.work]
        self.held = [0] * len(direction.jobs)
        self.held_inside = [0] * len(direction.jobs)
        self.wire_free = [0] * direction.n_wires
        self.choices: list[list[tuple[float, int, int]]] = [[] for _ in direction.jobs]
        self.first_stop = [0] * len(direction.jobs)
        self.next_stops: list[tuple[int, int]] = []
        # What `compete` reads of the jobs of a device, side by side: it is called for every action.
        self.jobs: list[list[tuple[int, bool, list[float], list[list[int]], int]]] = []
        for jobs in direction.jobs:
            rows = [(job, direction.takes[job], priorities[job], self.arrivals[job], self.ticks[job]) for job in jobs]
            self.jobs.append(rows)

    def run(self) -> DraftSchedule | None:
        for device in range(len(self.free)):
            self.compete(device, self.window)
        for _ in range(self.n * len(self.done)):
            stop, device = self.next_device()
            if not self.start_action(device, *self.choose(device, stop)):
                return None
        return DraftSchedule(max(self.free), self.starts, self.programs)

    def next_device(self) -> tuple[int, int]:
        next_stops, first_stop = self.next_stops, self.first_stop
        while next_stops:
            stop, device = heappop(next_stops)
            if first_stop[device] == stop:  # else the device has chosen since
                return stop, device
        for device in range(len(self.free)):  # all that could start is outside the windows
            self.compete(device, NEVER)
        return heappop(next_stops)

    def compete(self, device: int, window: float) -> None:
        """Find the actions that compete for a device, (priority, job, start), and when the first of them could stop."""
        done, n, heads = self.done, self.n, []
        # This is the innermost loop of the search: max() and min() would take longer than comparisons.
        latest: float = NEVER
        for job, takes, priorities, inputs, ticks in self.jobs[device]:
            i = done[job]
            if i < n and (not takes or self.has_room(device, job)):
                priority = priorities[i]
                heads.append((priority, job, i, inputs, ticks))
                latest = priority if priority < latest else latest
        latest += window
        choices, first_stop, free = [], NEVER, self.free[device]
        for priority, job, i, inputs, ticks in heads:
            if priority > latest:
                continue
            start = free
            for times in inputs:
                if i >= len(times):
                    break  # an input is not yet sent
                start = times[i] if times[i] > start else start
            else:
                choices.append((priority, job, start))
                first_stop = start + ticks if start + ticks < first_stop else first_stop
        self.choices[device], self.first_stop[device] = choices, first_stop
        if first_stop < NEVER:
            heappush(self.next_stops, (first_stop, device))

    def choose(self, device: int, first_stop: int) -> tuple[int, int]:
        """(job, start) of the earliest priority among the actions that can start before `first_stop`."""
        choices = self.choices[device]
        if len(choices) == 1:
            return choices[0][1:]
        earliest = min([choice[2] for choice in choices])
        before = first_stop
        if self.fair:
            # To wait uses up slack: it must not end with less than every other device.
            before = min(before, earliest + 1 + self.slack[device] - min(self.slack))
        before = max(before, earliest + 1)  # an action of no ticks stops when it starts
        return min([choice for choice in choices if choice[2] < before])[1:]

    def has_room(self, device: int, job: int) -> bool:
        """True if the device can hold one more activation and the oldest micro-batch can still pass.

        With two stages a device, a micro-batch holds an activation of the outer stage, which it passes first, while it
        needs one of the inner. So the last free one is for the inner stage, unless that stage holds one already, which
        its backward will free. Backwards in time weight gradients wait for nothing, so the inner one must not overtake
        the outer.
        """
        held, sibling = self.held[device], self.direction.sibling[job]
        if held >= self.limit:
            return False
        if job < sibling:
            return held < self.limit - 1 or self.held_inside[device] > 0 or self.done[sibling] == self.n
        return not self.direction.backwards or job == sibling or self.done[sibling] > self.done[job]

    def start_action(self, device: int, job: int, start: int) -> bool:
        """Start an action; False if its device cannot stop by the cutoff any more."""
        direction = self.direction
        self.slack[device] -= start - self.free[device]
        if self.slack[device] < 0:
            return False
        self.done[job] += 1
        self.starts[job].append(start)
        self.programs[device].append(job)
        self.free[device] = stop = start + self.ticks[job]
        change = direction.takes[job] - direction.gives[job]
        self.held[device] += change
        if job > direction.sibling[job]:
            self.held_inside[device] += change
        for to, which, ticks, wire in direction.outputs[job]:
            arrival = stop + ticks
            if wire >= 0:
                arrival = self.wire_free[wire] = max(arrival, self.wire_free[wire] + ticks)
            arrivals = self.arrivals[to][which]
            arrivals.append(arrival)
            if direction.device[to] != device and len(arrivals) == self.done[to] + 1:  # the receiver waited for it
                self.compete(direction.device[to], self.window)
        self.compete(device, self.window)
        return True


def in_order(pipeline: ZeroBubbleProblem, priorities: Priorities) -> DraftSchedule | None:
    """Every device runs its actions in the order of their priorities, each as soon as it can.

    That takes a tenth of the time of list scheduling, as no device has to choose. None if a device would hold too much
    or devices would wait in a circle.
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
    numbered = []
    for program in programs:
        jobs = np.asarray(program, dtype=np.int64)
        numbers = np.empty_like(jobs)
        for job in np.unique(jobs):
            turns = jobs == job
            numbers[turns] = np.arange(np.count_nonzero(turns))
        numbered.append(jobs * n_numbers + numbers)
    return Schedule(order, pipeline.devices, pipeline.n_micro_batches, tuple(numbered))


def _program(pipeline: ZeroBubbleProblem, priorities: Priorities, device: int) -> IntArray:
    """The jobs of a device's actions in the order of their priorities; of equal ones the first kind goes first."""
    jobs = [job for job in range(len(pipeline.ticks)) if pipeline.devices[job % pipeline.n_stages] == device]
    order = np.argsort(np.concatenate([priorities[job] for job in jobs]), kind="stable")
    return np.repeat(jobs, pipeline.n_micro_batches)[order]
