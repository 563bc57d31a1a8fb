"""Modulo schedules: one micro-batch travels, and all others repeat it a period apart [modulo-scheduling].

Each action of the path takes the first time at which its device, modulo the period, is free. So a micro-batch waits
only where it would meet another one. Messages take 3 ticks, two activations fit in, period 6:

    time          0  1  2  3  4  5  6  7  8  9  10
    device 0      F0                         B0 W0        modulo 6: F at 0, B at 3, W at 4
    device 1                  F1 B1 W1                    modulo 6: F at 4, B at 5, W at 0

Where links are slow, memory limits the period: every activation is held for a round trip. The search looks for the
shortest period at which no device holds more than it may. It changes the waits of one micro-batch, which takes as long
as a micro-batch has actions; list scheduling takes as long as all of them have.

Two micro-batches that all others repeat in turn often fit where one alone does not: they set out at uneven intervals,
and wait in different places. Above, the second can follow after 5 and the third after 11 ticks.

Three in turn fit better still, but few changes of their waits lead there. Where all ticks are rounded to a quarter of
an action, the same gaps recur, and a wait that fits one of them is drawn more often (`three_in_turn`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import gcd
from operator import itemgetter
from random import Random
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import BACKWARD, WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, memory_taken

PLACEMENTS = (60_000, 90_000)
"""How many actions of one and of two repeated micro-batches are placed before the shortest period is the answer."""

FEW_PLACEMENTS = (30_000,)
"""The same with little effort, where many plans compete."""

PATIENCE = 400
"""How many changes of the waits are tried for one period."""

IN_THREES = 450_000
"""How many actions of three repeated micro-batches are placed, about."""

BEGINNINGS, BEGINNING, GOING_ON = 8, 50, 1000
"""How many searches begin for one period of three; how many changes each tries; how many more the best of them."""

SMALL = 20
"""More stages than these are too many for three micro-batches: so few changes of their waits lead nowhere."""

ROUNDED = 4
"""Ticks of an action, about, in a rounded pipeline."""

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

    def priorities(self, n_micro_batches: int) -> Priorities:
        """The starts of all micro-batches; the actions of a job are sorted, as it does not matter which goes first."""
        periods = self.period * np.arange(-(-n_micro_batches // len(self.starts)))
        times = np.add.outer(periods, np.array(self.starts)).reshape(-1, len(self.starts[0]))[:n_micro_batches]
        rows: Priorities = np.sort(times.T).tolist()
        return rows


class _Waits(NamedTuple):
    """What the search changes of a micro-batch.

    Attributes:
        departure: when the micro-batch could set out.
        before: for every F and B job the ticks that an action waits although its input is there.
        lagging: for every stage whether W takes what time is left when all F and B are placed; else it follows its B.
    """

    departure: int
    before: tuple[int, ...]
    lagging: tuple[bool, ...]


_Group = tuple[_Waits, ...]
_Attempt = tuple[ModuloSchedule, _Group]


class _Searched(NamedTuple):
    """Where a search for one period ends.

    Attributes:
        attempt: the schedule, if the memory suffices for it.
        n_tried: how often waits were changed.
        cost: by about how many activations the memory is exceeded.
        group: the waits.
    """

    attempt: _Attempt | None
    n_tried: int
    cost: float
    group: _Group


def modulo_schedule(
    pipeline: ZeroBubbleProblem, random: Random, placements: Sequence[int] = PLACEMENTS
) -> ModuloSchedule | None:
    """The fastest pace that the search finds; None if without waits even twice the shortest period is too short.

    Args:
        pipeline: the devices, their actions and links.
        random: draws the waits.
        placements: how many actions are placed, for groups of one micro-batch, of two, and so on.
    """
    best: _Attempt | None = None
    for size, n_placements in enumerate(placements, start=1):
        table = _Table(pipeline, size)
        again = None if best is None else _repeated(best, size)
        if again is not None and again[0].period <= table.shortest:
            break
        first = min(filter(None, (again, table.without_waits())), default=None, key=lambda attempt: attempt[0].period)
        if first is not None:
            best = table.shortened(first, random, n_placements)
    return None if best is None else best[0]


def three_in_turn(pipeline: ZeroBubbleProblem, random: Random) -> ModuloSchedule | None:
    """The fastest pace of three micro-batches that the search finds in rounded ticks.

    It is one of the pipeline itself only where all ticks are multiples of the same quarter of an action, or of more.
    Else its starts give an order, as actions that take a little longer or shorter follow each other in the same way.

    How soon a search succeeds depends on luck more than on the period. So every period is searched from scratch: first
    a quarter of the way from the shortest to the best so far, after failures half and three quarters. A few searches
    begin; that which then exceeds the memory by the fewest activations goes on.
    """
    if pipeline.n_stages > SMALL:
        return None
    rounded, grain = _rounded(pipeline)
    table = _Table(rounded, 3)
    best, period, failures = None, table.shortest * 9 // 8, 0
    tries = IN_THREES // (table.size * len(pipeline.ticks))
    while tries > 0 and period > table.shortest:
        shorter = table.shortest + (period - table.shortest) * (1 + min(failures, 2)) // 4
        searched = table.search_anew(shorter, random)
        tries -= searched.n_tried
        if searched.attempt is None:
            failures += 1
        else:
            best, period = searched.attempt[0], shorter
    if best is None:
        return None
    starts = [[int(start * grain) for start in starts] for starts in best.starts]
    return ModuloSchedule(int(best.period * grain), starts)


def _rounded(pipeline: ZeroBubbleProblem) -> tuple[ZeroBubbleProblem, float]:
    """The pipeline in as few ticks as possible, all actions alike, and how many of its ticks one of these is."""
    grain = sum(pipeline.ticks) / len(pipeline.ticks) / ROUNDED
    links = (pipeline.forward_links, pipeline.backward_links)
    forward_links, backward_links = (tuple(round(ticks / grain) for ticks in each) for each in links)
    common = gcd(ROUNDED, *forward_links, *backward_links)
    return replace(
        pipeline,
        ticks=(ROUNDED // common,) * len(pipeline.ticks),
        forward_links=tuple(ticks // common for ticks in forward_links),
        backward_links=tuple(ticks // common for ticks in backward_links),
    ), grain * common


def _repeated(attempt: _Attempt, size: int) -> _Attempt:
    """The only micro-batch of a group as a group of so many."""
    (period, (starts,)), (waits,) = attempt
    departures = [number * period for number in range(size)]
    again = [[start + departure for start in starts] for departure in departures]
    return ModuloSchedule(size * period, again), tuple(waits._replace(departure=each) for each in departures)


class _Table:
    """A pipeline laid out for placing a group of micro-batches.

    Attributes:
        shortest: ticks below which a device or a wire has more work than time, or a device more activations than
            memory.
        grid: departures are multiples of this.
    """

    def __init__(self, pipeline: ZeroBubbleProblem, size: int) -> None:
        self.pipeline, self.size = pipeline, size
        self.device = pipeline.devices * 3
        path = pipeline.path
        self.path = [*((job, to, pipeline.link(job, to)) for job, to in pairwise(path)), (path[-1], path[-1], 0)]
        self.stages = list(map(pipeline.stages_of, range(pipeline.n_devices)))
        self.unit = max(1, max(pipeline.work) // (3 * len(self.stages[0])))
        self.grid = self.unit if self.unit <= ROUNDED else 1
        wires: dict[tuple[int, int], int] = defaultdict(int)
        for job, to, link in self.path:
            wires[self.device[job], self.device[to]] += link
        by_memory = [-(-size * ticks // pipeline.limit) for ticks in memory_taken(pipeline)]
        self.shortest = max(1, *by_memory, *(size * ticks for ticks in (*pipeline.work, *wires.values())))

    def at_even_intervals(self, period: int, *, lagging: bool) -> _Group:
        """Micro-batches that set out at even intervals and never wait."""
        n, departures = self.pipeline.n_stages, (period * number // self.size for number in range(self.size))
        return tuple(_Waits(departure, (0,) * (2 * n), (lagging,) * n) for departure in departures)

    def without_waits(self) -> _Attempt | None:
        """The shortest period on a grid, up to twice the shortest possible, that needs no more memory than there is."""
        for period in range(self.shortest, 2 * self.shortest, self.shortest // GRID + 1):
            for lagging in (True, False):
                group = self.at_even_intervals(period, lagging=lagging)
                starts = self.travel(period, group)
                if starts is not None and self.excess(starts, period) == 0:
                    return ModuloSchedule(period, starts), group
        return None

    def shortened(self, best: _Attempt, random: Random, placements: int) -> _Attempt:
        """Every period starts from the best waits of the one before; after a failure the steps are halved."""
        tries = placements // (self.size * len(self.pipeline.ticks))
        step = (best[0].period - self.shortest) // 4
        while tries > 0 and step > 0:
            period = best[0].period - step
            searched = self.search(period, _squeezed(best, period), random, min(tries, PATIENCE))
            tries -= searched.n_tried
            if searched.attempt is None:
                step //= 2
            else:
                best = searched.attempt
            step = min(step, best[0].period - self.shortest)
        return best

    def search_anew(self, period: int, random: Random) -> _Searched:
        """Begin a few times at even intervals and go on where it went best."""
        even, beginnings, n_tried = self.at_even_intervals(period, lagging=True), [], 0
        for _ in range(BEGINNINGS):
            beginnings.append(self.search(period, even, random, BEGINNING))
            n_tried += beginnings[-1].n_tried
            if beginnings[-1].attempt is not None:
                return beginnings[-1]._replace(n_tried=n_tried)
        last = self.search(period, min(beginnings, key=lambda search: search.cost).group, random, GOING_ON)
        return last._replace(n_tried=n_tried + last.n_tried)

    def search(self, period: int, group: _Group, random: Random, n_tries: int) -> _Searched:
        """Change the waits until the memory suffices for this period."""
        cost = float("inf")
        for n_tried in range(1, n_tries + 1):
            changed = self.changed(group, period, random) if n_tried > 1 else group
            starts = self.travel(period, changed)
            if starts is None:
                continue
            excess = self.excess(starts, period)
            if excess == 0:
                return _Searched((ModuloSchedule(period, starts), changed), n_tried, 0, changed)
            held = sum(self.held(s, each) for s in range(self.pipeline.n_stages) for each in starts)
            new = excess + 3 * held / (period * self.pipeline.limit * len(self.stages))
            if new <= cost + 0.05 * random.random():
                cost, group = new, changed
        return _Searched(None, n_tries, cost, group)

    def changed(self, group: _Group, period: int, random: Random) -> _Group:
        """One to three changes: a micro-batch sets out at another time, a W lags or no longer, a wait is drawn anew."""
        members = list(group)
        for _ in range(random.choice((1, 1, 2, 3))):
            number = random.randrange(self.size)
            departure, before, lagging = members[number]
            what = random.random()
            if what < 0.3 and number:
                if random.random() < 0.5:
                    departure = random.randrange(0, period, self.grid)
                else:
                    departure = (
                        departure + int(random.choice((-1, 1)) * random.choice(ROUND_WAITS) * self.unit)
                    ) % period
            elif what < 0.6:
                stage = random.randrange(len(lagging))
                lagging = (*lagging[:stage], not lagging[stage], *lagging[stage + 1 :])
            else:
                before = self.changed_waits(before, random)
            members[number] = _Waits(departure, before, lagging)
        return tuple(members)

    def changed_waits(self, before: tuple[int, ...], random: Random) -> tuple[int, ...]:
        """Drop a wait or draw another."""
        waiting = [job for job, ticks in enumerate(before) if ticks]
        if waiting and random.random() < 0.35:
            job, wait = random.choice(waiting), 0
        else:
            job = random.randrange(len(before))
            uneven = self.grid == 1 and random.random() < 0.3
            units = 2 * random.random() if uneven else random.choice(ROUND_WAITS)
            wait = int(units * self.unit)
        return (*before[:job], wait, *before[job + 1 :])

    def travel(self, period: int, group: _Group) -> list[list[int]] | None:
        """The starts of the group; None if a device or a wire has no time left that suffices."""
        n, ticks, device = self.pipeline.n_stages, self.pipeline.ticks, self.device
        busy = [_Busy(period) for _ in self.stages]
        wires: dict[tuple[int, int], _Busy] = defaultdict(lambda: _Busy(period))
        placed: list[list[int]] = []
        for departure, before, lagging in group:
            starts, now = [0] * (3 * n), departure
            placed.append(starts)
            for job, to, link in self.path:
                followed = job >= n and not lagging[job - n]
                duration = ticks[job] + (ticks[job + n] if followed else 0)
                start = busy[device[job]].occupy(now + before[job], duration)
                if start is None:
                    return None
                starts[job], now = start, start + ticks[job]
                if followed:
                    starts[job + n] = now
                if device[job] != device[to]:
                    sent = wires[device[job], device[to]].occupy(now, link)
                    if sent is None:
                        return None
                    now = sent + link
        for stage in range(n):
            backward, weight = BACKWARD * n + stage, WEIGHT * n + stage
            late = [starts for starts, waits in zip(placed, group, strict=True) if waits.lagging[stage]]
            for starts in sorted(late, key=itemgetter(backward)):
                start = busy[device[weight]].occupy(starts[backward] + ticks[backward], ticks[weight])
                if start is None:
                    return None
                starts[weight] = start
        return placed

    def held(self, stage: int, starts: list[int]) -> int:
        """For how many ticks a device holds an activation of a stage."""
        weight = WEIGHT * self.pipeline.n_stages + stage
        return starts[weight] + self.pipeline.ticks[weight] - starts[stage]

    def excess(self, group: list[list[int]], period: int) -> int:
        """By how many activations the devices exceed their memory, summed; each holds most when a forward starts."""
        total = 0
        for stages in self.stages:
            spans = [(starts[s], starts[s] + self.held(s, starts)) for s in stages for starts in group]
            peak = max(sum((now - a) // period - (now - b) // period for a, b in spans) for now, _ in spans)
            total += max(0, peak - self.pipeline.limit)
        return total


def _squeezed(attempt: _Attempt, period: int) -> _Group:
    """The waits, with departures that divide a shorter period as they did this one."""
    schedule, group = attempt
    return tuple(waits._replace(departure=waits.departure * period // schedule.period) for waits in group)


class _Busy:
    """What a device or a wire does in a period: disjoint intervals, of which the last may reach into the next period.

    Attributes:
        period: the period.
        starts: when each starts, increasing and less than the period.
        stops: when each stops.
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
        earlier_periods, here = ready - start, bisect_right(starts, start)
        if n:
            stop = stops[here - 1] - (0 if here else period)
            start = stop if stop > start else start  # max() would take longer
        for turn in range(here, here + n + 1):
            later = turn // n * period if n else 0
            if not n or start + ticks <= starts[turn % n] + later:
                at = bisect_left(starts, start % period)
                starts.insert(at, start % period)
                stops.insert(at, start % period + ticks)
                return earlier_periods + start
            stop = stops[turn % n] + later
            start = stop if stop > start else start
        return None
