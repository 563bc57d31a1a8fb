"""Modulo schedules: one micro-batch travels, and all others repeat it a period apart [modulo-scheduling].

Each action of the path takes the first time at which its device, modulo the period, is free. So a micro-batch waits
only where it would meet another one. Messages take 3 ticks, two activations fit in, period 6:

    time          0  1  2  3  4  5  6  7  8  9  10
    device 0      F0                         B0 W0        modulo 6: F at 0, B at 3, W at 4
    device 1                  F1 B1 W1                    modulo 6: F at 4, B at 5, W at 0

Where links are slow, memory limits the period: every activation is held for a round trip. The search looks for the
shortest period at which no device holds more than it may. It changes the waits of one micro-batch, which takes as long
as a micro-batch has actions; list scheduling takes as long as all of them have.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

PLACEMENTS = 60_000
"""How many actions of the one micro-batch are placed before the shortest period so far is the answer."""

PATIENCE = 400
"""How many changes of the waits are tried for one period."""

GRID = 64
"""Periods without waits are tried a 64th apart."""

Busy = list[tuple[int, int]]
"""(start modulo the period, ticks) of everything that a device or a wire does in a period."""


class ModuloSchedule(NamedTuple):
    """The micro-batch that all others repeat.

    Attributes:
        period: ticks between a micro-batch and the next.
        starts: for every job the start of its first action.
    """

    period: int
    starts: list[int]

    def priorities(self, n_micro_batches: int) -> Priorities:
        """The starts of all micro-batches."""
        rows: Priorities = np.add.outer(self.starts, self.period * np.arange(n_micro_batches)).tolist()
        return rows


class _Waits(NamedTuple):
    """What the search changes.

    Attributes:
        before: for every F and B job the ticks that an action waits although its input is there.
        lagging: for every stage whether W takes what time is left when all F and B are placed; else it follows its B.
    """

    before: tuple[int, ...]
    lagging: tuple[bool, ...]


def modulo_schedule(pipeline: ZeroBubbleProblem, random: Random) -> ModuloSchedule | None:
    """The shortest period that the search finds; None if without waits even twice the shortest possible is too short.

    Every period starts from the best waits of the one before; after a failure the steps between periods are halved.
    """
    table = _Table(pipeline)
    shortest = table.shortest_period()
    first = min(filter(None, (table.without_waits(shortest, lagging=x) for x in (True, False))), default=None)
    if first is None:
        return None
    best, waits = first
    tries = PLACEMENTS // len(pipeline.ticks)
    step = (best.period - shortest) // 4
    while tries > 0 and step > 0:
        shorter = table.search(best.period - step, waits, random, min(tries, PATIENCE))
        tries -= table.n_tried
        if shorter is not None:
            best, waits = shorter
        else:
            step //= 2
        step = min(step, best.period - shortest)
    return best


class _Table:
    """A pipeline laid out for placing one micro-batch."""

    def __init__(self, pipeline: ZeroBubbleProblem) -> None:
        self.pipeline = pipeline
        self.device = pipeline.devices * 3
        path = pipeline.path
        self.path = [*((job, to, pipeline.link(job, to)) for job, to in pairwise(path)), (path[-1], path[-1], 0)]
        self.stages = [
            [s for s in range(pipeline.n_stages) if pipeline.devices[s] == d] for d in range(pipeline.n_devices)
        ]
        self.longest_wait = 2 * (max(pipeline.work) // (3 * len(self.stages[0])) + 1)
        self.n_tried = 0

    def shortest_period(self) -> int:
        """Ticks below which a device or a wire has more work than time, or a device more activations than memory."""
        n, limit = self.pipeline.n_stages, self.pipeline.limit
        alone = self.travel(1 << 60, _Waits((0,) * (2 * n), (False,) * n))
        assert alone is not None
        wires: dict[tuple[int, int], int] = defaultdict(int)
        for job, to, link in self.path:
            wires[self.device[job], self.device[to]] += link
        held = [sum(self.held(s, alone) for s in stages) for stages in self.stages]
        return max(1, *self.pipeline.work, *wires.values(), *(-(-ticks // limit) for ticks in held))

    def without_waits(self, shortest: int, *, lagging: bool) -> tuple[ModuloSchedule, _Waits] | None:
        """The shortest period on a grid, up to twice the shortest possible, that needs no more memory than there is."""
        n = self.pipeline.n_stages
        waits = _Waits((0,) * (2 * n), (lagging,) * n)
        for period in range(shortest, 2 * shortest, shortest // GRID + 1):
            starts = self.travel(period, waits)
            if starts is not None and self.excess(starts, period) == 0:
                return ModuloSchedule(period, starts), waits
        return None

    def search(self, period: int, waits: _Waits, random: Random, n_tries: int) -> tuple[ModuloSchedule, _Waits] | None:
        """Change the waits until the memory suffices for this period; `n_tried` is how often."""
        cost = float("inf")
        for self.n_tried in range(1, n_tries + 1):
            changed = self.changed(waits, random)
            starts = self.travel(period, changed)
            if starts is None:
                continue
            excess = self.excess(starts, period)
            if excess == 0:
                return ModuloSchedule(period, starts), changed
            held = sum(self.held(s, starts) for s in range(self.pipeline.n_stages))
            new = excess + held / (held + period * self.pipeline.limit * len(self.stages))
            if new <= cost + 0.02 * random.random():
                cost, waits = new, changed
        return None

    def changed(self, waits: _Waits, random: Random) -> _Waits:
        """One to four changes: a W lags or no longer does, a wait is dropped or drawn anew."""
        before, lagging = list(waits.before), list(waits.lagging)
        for _ in range(random.choice((1, 1, 2, 4))):
            if random.random() < 0.3:
                stage = random.randrange(len(lagging))
                lagging[stage] = not lagging[stage]
            else:
                job = random.randrange(len(before))
                dropped = before[job] > 0 and random.random() < 0.6
                before[job] = 0 if dropped else int(random.random() * self.longest_wait)
        return _Waits(tuple(before), tuple(lagging))

    def travel(self, period: int, waits: _Waits) -> list[int] | None:
        """The starts of a micro-batch that sets out at 0; None if a device or a wire has no time left that suffices."""
        n, ticks, device = self.pipeline.n_stages, self.pipeline.ticks, self.device
        busy: list[Busy] = [[] for _ in self.stages]
        wires: dict[tuple[int, int], Busy] = defaultdict(list)
        starts, now = [0] * (3 * n), 0
        for job, to, link in self.path:
            followed = job >= n and not waits.lagging[job - n]
            duration = ticks[job] + (ticks[job + n] if followed else 0)
            start = _occupy(busy[device[job]], now + waits.before[job], duration, period)
            if start is None:
                return None
            starts[job], now = start, start + ticks[job]
            if followed:
                starts[job + n] = now
            if device[job] != device[to]:
                sent = _occupy(wires[device[job], device[to]], now, link, period)
                if sent is None:
                    return None
                now = sent + link
        for job in range(2 * n, 3 * n):
            if waits.lagging[job - 2 * n]:
                start = _occupy(busy[device[job]], starts[job - n] + ticks[job - n], ticks[job], period)
                if start is None:
                    return None
                starts[job] = start
        return starts

    def held(self, stage: int, starts: list[int]) -> int:
        """For how many ticks a device holds an activation of a stage."""
        weight = WEIGHT * self.pipeline.n_stages + stage
        return starts[weight] + self.pipeline.ticks[weight] - starts[stage]

    def excess(self, starts: list[int], period: int) -> int:
        """By how many activations the devices exceed their memory, summed; each holds most when a forward starts."""
        total = 0
        for stages in self.stages:
            spans = [(starts[s], starts[s] + self.held(s, starts)) for s in stages]
            peak = max(sum((now - a) // period - (now - b) // period for a, b in spans) for now, _ in spans)
            total += max(0, peak - self.pipeline.limit)
        return total


def _occupy(busy: Busy, ready: int, ticks: int, period: int) -> int | None:
    """Occupy the first free time from `ready` on; its start, or None if there is none."""
    if ticks == 0:
        return ready
    start, moved = ready, True
    while moved:
        moved = False
        for other, other_ticks in busy:
            since = (start - other) % period  # since the other one started last
            if since < other_ticks:
                start, moved = start + other_ticks - since, True
            elif since + ticks > period:
                start, moved = start + period - since + other_ticks, True
        if start - ready > period:
            return None
    if ticks > period:
        return None
    busy.append((start % period, ticks))
    return start
