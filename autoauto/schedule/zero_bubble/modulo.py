"""Modulo schedules: one micro-batch travels, and all others repeat it a period apart [modulo-scheduling].

Each action of the path takes the first time at which its device, modulo the period, is free. So a micro-batch waits
only where it would meet another one. Messages take 3 ticks, two activations fit in, period 6:

    time          0  1  2  3  4  5  6  7  8  9  10
    device 0      F0                         B0 W0        modulo 6: F at 0, B at 3, W at 4
    device 1                  F1 B1 W1                    modulo 6: F at 4, B at 5, W at 0

Where links are slow, memory limits the period: every activation is held for a round trip. The search looks for the
shortest period at which no device holds more than it may. It changes the waits of the micro-batch, which takes as long
as a micro-batch has actions; list scheduling takes as long as all of them have. Groups of micro-batches that set out at
uneven intervals, and wait in different places, often need less time; steady_state.py makes them from this schedule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import BACKWARD, WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, memory_taken

PATIENCE = 400
"""How many changes of the waits are tried for one period."""

GRID = 64
"""Periods without waits are tried a 64th apart."""

ROUND_WAITS = (0.5, 1, 1, 1.5, 2)
"""Waits are often drawn from these, in units of a mean action: where actions are alike, so are the gaps that fit."""


class ModuloSchedule(NamedTuple):
    """The group of micro-batches that all others repeat.

    Attributes:
        period: ticks between a group and the next.
        starts: for every micro-batch of the group, for every job the start of its action.
    """

    period: int
    starts: list[list[int]]

    @property
    def pace(self) -> float:
        """Ticks between a micro-batch and the next, on average."""
        return self.period / len(self.starts)

    def repeated(self, size: int, period: int, interval: int) -> ModuloSchedule:
        """The only micro-batch of a group, so many times with an interval in between, as a group with a period."""
        (starts,) = self.starts
        return ModuloSchedule(period, [[start + number * interval for start in starts] for number in range(size)])

    def n_periods(self, pipeline: ZeroBubbleProblem) -> int:
        """Number of periods between the first group and the last."""
        return (pipeline.n_micro_batches - 1) // len(self.starts)

    def stop(self, pipeline: ZeroBubbleProblem) -> int:
        """The tick at which the last action stops if every group starts a period after the one before."""
        n_last = (pipeline.n_micro_batches - 1) % len(self.starts) + 1  # the last group may be incomplete
        stops = np.array(self.starts[:n_last]) + np.array(pipeline.ticks)
        return int(stops.max()) + self.n_periods(pipeline) * self.period

    def priorities(self, n_micro_batches: int) -> Priorities:
        """The starts of all micro-batches; the actions of a job are sorted, as it does not matter which goes first."""
        periods = self.period * np.arange(-(-n_micro_batches // len(self.starts)))
        times = np.add.outer(periods, np.array(self.starts)).reshape(-1, len(self.starts[0]))[:n_micro_batches]
        rows: Priorities = np.sort(times.T).tolist()
        return rows


class _Waits(NamedTuple):
    """The waits of the micro-batch that all others repeat, which the search changes.

    Attributes:
        before: for every F and B job the ticks that an action waits although its input is there.
        lagging: for every stage whether W takes what time is left when all F and B are placed; else it follows its B.
    """

    before: tuple[int, ...]
    lagging: tuple[bool, ...]


def modulo_schedule(pipeline: ZeroBubbleProblem, random: Random, n_placements: int) -> ModuloSchedule | None:
    """The shortest period that the search finds; None if without waits even twice the shortest possible is too short.

    Every period starts from the best waits of the one before; after a failure the steps are halved. `random` draws the
    waits, and `n_placements` actions are placed.
    """
    table = _Table(pipeline)
    first = table.without_waits()
    if first is None:
        return None
    best, waits = first
    tries = n_placements // len(pipeline.ticks)
    step = (best.period - table.shortest) // 4
    while tries > 0 and step > 0:
        shorter, n_tried = table.search(best.period - step, waits, random, min(tries, PATIENCE))
        tries -= n_tried
        if shorter is None:
            step //= 2
        else:
            best, waits = shorter
        step = min(step, best.period - table.shortest)
    return best


class _Table:
    """A pipeline laid out for placing a micro-batch.

    Attributes:
        shortest: ticks below which a device or a wire has more work than time, or a device more activations than
            memory.
        unit: a mean action of the device with the most work.
    """

    def __init__(self, pipeline: ZeroBubbleProblem) -> None:
        self.pipeline = pipeline
        self.device = pipeline.devices * 3
        path = pipeline.path
        self.path = [(job, to, pipeline.link(job, to)) for job, to in pairwise(path)]
        self.path.append((path[-1], path[-1], 0))  # the last gradient goes nowhere
        self.stages = [pipeline.stages_of(device) for device in range(pipeline.n_devices)]
        self.unit = max(1, max(pipeline.work) // (3 * len(self.stages[0])))
        wires: dict[tuple[int, int], int] = defaultdict(int)
        for job, to, link in self.path:
            wires[self.device[job], self.device[to]] += link
        by_memory = [-(-ticks // pipeline.limit) for ticks in memory_taken(pipeline)]
        self.shortest = max(1, *by_memory, *pipeline.work, *wires.values())

    def without_waits(self) -> tuple[ModuloSchedule, _Waits] | None:
        """The shortest period on a grid, up to twice the shortest possible, that needs no more memory than there is."""
        n = self.pipeline.n_stages
        for period in range(self.shortest, 2 * self.shortest, self.shortest // GRID + 1):
            for lagging in (True, False):
                waits = _Waits((0,) * (2 * n), (lagging,) * n)
                starts = self.travel(period, waits)
                if starts is not None and self.excess(starts, period) == 0:
                    return ModuloSchedule(period, [starts]), waits
        return None

    def search(
        self, period: int, waits: _Waits, random: Random, n_tries: int
    ) -> tuple[tuple[ModuloSchedule, _Waits] | None, int]:
        """Change the waits until the memory suffices for this period, and count the changes."""
        cost = float("inf")
        for n_tried in range(1, n_tries + 1):
            changed = self.changed(waits, random) if n_tried > 1 else waits
            starts = self.travel(period, changed)
            if starts is None:
                continue
            excess = self.excess(starts, period)
            if excess == 0:
                return (ModuloSchedule(period, [starts]), changed), n_tried
            # Excess is a whole number and rarely falls. The mean memory shows which of equal waits come nearer to that.
            held = sum(self.held(stage, starts) for stage in range(self.pipeline.n_stages))
            new = excess + 3 * held / (period * self.pipeline.limit * len(self.stages))
            if new <= cost + 0.05 * random.random():
                cost, waits = new, changed
        return None, n_tries

    def changed(self, waits: _Waits, random: Random) -> _Waits:
        """Make one to three random changes: let a W lag or no longer, drop a wait, or draw a new one."""
        before, lagging = list(waits.before), list(waits.lagging)
        for _ in range(random.choice((1, 1, 2, 3))):
            if random.random() < 0.4:
                stage = random.randrange(len(lagging))
                lagging[stage] = not lagging[stage]
                continue
            waiting = [job for job, ticks in enumerate(before) if ticks]
            if waiting and random.random() < 0.35:
                before[random.choice(waiting)] = 0
                continue
            job = random.randrange(len(before))
            units = 2 * random.random() if random.random() < 0.3 else random.choice(ROUND_WAITS)
            before[job] = int(units * self.unit)
        return _Waits(tuple(before), tuple(lagging))

    def travel(self, period: int, waits: _Waits) -> list[int] | None:
        """The starts of a micro-batch; None if a device or a wire has no time left that suffices."""
        n, ticks, device = self.pipeline.n_stages, self.pipeline.ticks, self.device
        busy = [_Busy(period) for _ in self.stages]
        wires: dict[tuple[int, int], _Busy] = defaultdict(lambda: _Busy(period))
        starts, now = [0] * (3 * n), 0
        for job, to, link in self.path:
            is_followed = job >= n and not waits.lagging[job - n]  # a B, whose W comes directly after it
            duration = ticks[job]
            if is_followed:
                duration += ticks[job + n]
            start = busy[device[job]].occupy(now + waits.before[job], duration)
            if start is None:
                return None
            starts[job], now = start, start + ticks[job]
            if is_followed:
                starts[job + n] = now
            if device[job] != device[to]:
                sent = wires[device[job], device[to]].occupy(now, link)
                if sent is None:
                    return None
                now = sent + link
        # Nothing waits for the other W: they fill what time is left.
        for stage in range(n):
            backward, weight = BACKWARD * n + stage, WEIGHT * n + stage
            if waits.lagging[stage]:
                start = busy[device[weight]].occupy(starts[backward] + ticks[backward], ticks[weight])
                if start is None:
                    return None
                starts[weight] = start
        return starts

    def held(self, stage: int, starts: list[int]) -> int:
        weight = WEIGHT * self.pipeline.n_stages + stage
        return starts[weight] + self.pipeline.ticks[weight] - starts[stage]

    def excess(self, starts: list[int], period: int) -> int:
        """Activations by which devices exceed their memory, summed. A device holds most when a forward starts."""
        total = 0
        for stages in self.stages:
            spans = [(starts[s], starts[s] + self.held(s, starts)) for s in stages]
            peak = 0
            for now, _ in spans:
                # Of a stage as many activations are held as periods start within its span: that of now, and earlier.
                held = sum((now - start) // period - (now - stop) // period for start, stop in spans)
                peak = max(peak, held)
            total += max(0, peak - self.pipeline.limit)
        return total


class _Busy:
    """The busy time of a device or a wire in a period: disjoint intervals; the last may reach into the next period.

        |##...###....##|##...###....##|      two periods of the same intervals
           ^ ready  ####                     an action of 4 ticks goes from gap to gap until one is long enough

    Attributes:
        starts: when each starts, increasing and less than the period.
    """

    __slots__ = ("period", "starts", "stops")

    def __init__(self, period: int) -> None:
        self.period = period
        self.starts: list[int] = []
        self.stops: list[int] = []

    def occupy(self, ready: int, ticks: int) -> int | None:
        """Occupy the first free time from `ready` on; its start, or None if there is none."""
        if ticks == 0:
            return ready
        period, starts, stops = self.period, self.starts, self.stops
        if ticks > period:
            return None
        start, n = ready % period, len(starts)
        earlier_periods = ready - start
        if not n:
            starts.append(start)
            stops.append(start + ticks)
            return ready
        here = bisect_right(starts, start)
        stop = stops[here - 1]
        if not here:
            stop -= period  # of the last interval of the period before
        start = stop if stop > start else start  # max() would take longer
        # Once around the period: the gap before every interval, the one before `here` twice, at both its ends.
        for turn in range(here, here + n + 1):
            later = turn // n * period
            if start + ticks <= starts[turn % n] + later:
                at = bisect_left(starts, start % period)
                starts.insert(at, start % period)
                stops.insert(at, start % period + ticks)
                return earlier_periods + start
            stop = stops[turn % n] + later
            start = stop if stop > start else start
        return None
