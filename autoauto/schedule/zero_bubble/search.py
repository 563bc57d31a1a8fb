"""The search for a short order.

1. Itineraries (`zb_itineraries`) are tried as wishes, and so is the best order of an ideal pipeline, where all actions
   take the same and messages nothing.
2. *There and back.* Scheduled backwards in time, with its own times as wishes, an order is pushed to its end as
   tightly as to its beginning before; forwards again, it is often shorter (known from project planning).
3. Actions are moved off the critical path (`zb_critical_path`), again and again.
4. *Stretching.* Many micro-batches are first scheduled as few; the steady state of that order is then repeated. Where
   it is free of bubbles, the long order is as far from the bound as the short one.

The search ends at once when it meets `lower_bound`, which it does more often than not. Otherwise it ends when its
effort, counted in scheduled actions, is used up: never by a clock, so the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np

from autoauto.records.schedule import Codes, IntArray, Order, Schedule
from autoauto.schedule.zero_bubble.critical_path import critical_blocks, nudged
from autoauto.schedule.zero_bubble.itineraries import ONE_STAGE_A_DEVICE, itineraries, wishes
from autoauto.schedule.zero_bubble.list_scheduling import NEVER, Direction, Rule, Sketch, Wishes
from autoauto.schedule.zero_bubble.problem import Pipeline, lower_bound

EFFORT = 40_000
"""Actions to schedule for each device, counted as 8 to 24, before the best order so far is the answer."""

TIMES = 1000
"""How often every action is scheduled at most: less effort where actions are few."""

EXPLORING = 0.4
"""The part of the effort for finding a good order; the rest is for improving it."""

WINDOWS = (NEVER, 8, 4, 6, 2, 1)
"""Of rules while improving, in units of a mean action."""


def short_schedule(order: Order, pipeline: Pipeline) -> Schedule:
    """The shortest schedule that the search finds."""
    codes = Codes(pipeline.n_stages, pipeline.n_micro_batches)
    programs = tuple(_numbered(program, codes) for program in search(pipeline).programs)
    return Schedule(order, pipeline.devices, pipeline.n_micro_batches, programs)


def search(pipeline: Pipeline) -> Sketch:
    """The shortest order that the effort finds: for few micro-batches, for some more, for all."""
    n_actions = len(pipeline.ticks) * pipeline.n_micro_batches
    effort = min(EFFORT * max(8, min(24, pipeline.n_devices)), TIMES * n_actions)
    few = max(2 * pipeline.n_devices, 8)
    sizes = sorted({min(size, pipeline.n_micro_batches) for size in (few, few + few // 4, pipeline.n_micro_batches)})
    shorter: _Search | None = None
    for size in sizes:
        longer = _Search(replace(pipeline, n_micro_batches=size), effort if size == sizes[-1] else effort // 4)
        if shorter is not None:
            longer.stretch(shorter)
        longer.explore()
        longer.idealise()
        longer.improve()
        effort -= longer.spent
        shorter = longer
    assert shorter is not None
    return shorter.best


class _Search:
    """The best order of one pipeline so far, and what it has cost."""

    def __init__(self, pipeline: Pipeline, effort: int) -> None:
        self.pipeline = pipeline
        self.forwards = Direction(pipeline, backwards=False)
        self.backwards = Direction(pipeline, backwards=True)
        self.bound = lower_bound(pipeline)
        self.period = max(pipeline.work)
        self.unit = self.period / len(self.forwards.jobs[0])
        self.effort = effort
        self.random = Random(0)
        self.itinerary = ONE_STAGE_A_DEVICE[0]
        self.found: Sketch | None = None

    @property
    def best(self) -> Sketch:
        """The shortest order so far."""
        assert self.found is not None
        return self.found

    @property
    def spent(self) -> int:
        """The effort that is used up."""
        return self.forwards.n_scheduled + self.backwards.n_scheduled

    def is_over(self, part: float = 1) -> bool:
        """Whether the best order cannot be better, or this part of the effort is used up."""
        return self.best.makespan <= self.bound or self.spent > part * self.effort

    def explore(self) -> None:
        """Try itineraries; `itinerary` is then the last that was better than all before."""
        for itinerary, fair in product(itineraries(self.pipeline), (True, False)):
            if self.found is not None and self.is_over(EXPLORING):
                break
            before = self.found
            self.squeeze(wishes(self.pipeline, itinerary, self.unit, self.period), self.rule(itinerary.window, fair))
            if self.found is not before:
                self.itinerary = itinerary

    def idealise(self) -> None:
        """Try the order of the ideal pipeline."""
        if self.is_over():
            return
        n = self.pipeline.n_stages
        ideal = replace(self.pipeline, ticks=(1,) * (3 * n), forward_links=(0,) * (n + 1), backward_links=(0,) * n)
        other = _Search(ideal, self.effort // 4)
        other.explore()
        self.effort -= other.spent
        for window, fair in product((0, 1, 4, NEVER), (True, False)):
            self.squeeze([[start * self.unit for start in row] for row in other.best.starts], self.rule(window, fair))
            if self.is_over():
                break

    def stretch(self, shorter: _Search) -> None:
        """Try the steady state of a shorter order, until nothing but periods is added to it."""
        extra = self.pipeline.n_micro_batches - shorter.pipeline.n_micro_batches
        goal = shorter.best.makespan + extra * self.period
        self.itinerary = shorter.itinerary
        for tried, (wanted, rule) in enumerate(self.longer(shorter.best)):
            self.squeeze(wanted, rule)
            if self.best.makespan <= goal or (tried and self.is_over(EXPLORING / 2)):
                break

    def longer(self, short: Sketch) -> Iterator[tuple[Wishes, Rule]]:
        """The itinerary that was best for the short order, then its steady state."""
        first = self.itinerary
        yield wishes(self.pipeline, first, self.unit, self.period), self.rule(first.window, fair=True)
        for stretched in stretches(short.starts, self.pipeline.n_micro_batches):
            for window, fair in product((8, NEVER, 4), (True, False)):
                yield stretched, self.rule(window, fair)

    def improve(self) -> None:
        """Move actions off the critical path until nothing is left to gain or spend.

        What is no longer than the order that it came from takes its place, so that the search wanders over equals. Once
        in a while it may be longer than the best, by less than an action.
        """
        current, random = self.best, self.random
        while not self.is_over() and (blocks := critical_blocks(self.forwards, current, random)):
            sketch = None
            while sketch is None and not self.is_over():
                rule = self.rule(random.choice(WINDOWS), fair=random.random() < 0.25)
                uphill = random.random() * self.unit if random.random() < 0.05 else 0
                cutoff = max(current.makespan, int(self.best.makespan + uphill))
                sketch = self.schedule(nudged(current, blocks, self.unit, random), rule, cutoff)
            if sketch is not None:
                again = self.there_and_back(sketch, rule) if random.random() < 0.3 else sketch
                current = min(again, sketch, key=lambda one: one.makespan)

    def squeeze(self, wanted: Wishes, rule: Rule) -> None:
        """Schedule, then there and back for as long as that helps; hopeless cases not at all."""
        sketch = self.schedule(wanted, rule, NEVER if self.found is None else self.best.makespan * 3 // 2)
        for _ in range(4):
            if sketch is None or self.is_over():
                break
            again = self.there_and_back(sketch, rule)
            sketch = again if again.makespan < sketch.makespan else None

    def there_and_back(self, sketch: Sketch, rule: Rule) -> Sketch:
        """Schedule backwards in time, then forwards again."""
        back = self.backwards.schedule(self.mirrored(sketch), rule)
        assert back is not None
        again = self.schedule(self.mirrored(back), rule)
        assert again is not None
        return again

    def mirrored(self, sketch: Sketch) -> Wishes:
        """The starts with time running the other way."""
        rows = zip(sketch.starts, self.pipeline.ticks, strict=True)
        return [[sketch.makespan - ticks - start for start in reversed(starts)] for starts, ticks in rows]

    def schedule(self, wanted: Wishes, rule: Rule, cutoff: int = NEVER) -> Sketch | None:
        """Schedule, and keep the result if it is the best."""
        sketch = self.forwards.schedule(wanted, rule, cutoff)
        if sketch is not None and (self.found is None or sketch.makespan < self.found.makespan):
            self.found = sketch
        return sketch

    def rule(self, window: float, fair: bool) -> Rule:
        """A rule whose window is given in units."""
        return Rule(window * self.unit, fair)


def stretches(starts: list[list[int]], n_micro_batches: int) -> Iterator[Wishes]:
    """Starts of more micro-batches: those of few, where a group of one to three is repeated.

    Groups come first whose jobs agree best on how long a group takes.

    >>> rows = [[0, 3, 6, 9, 12, 15, 20], [1, 4, 7, 10, 13, 16, 19]]
    >>> next(stretches(rows, 9))[0]
    [0, 3, 6, 9, 12, 15.0, 18.0, 21.0, 26.0]
    """
    few = len(starts[0])
    groups = []
    for size, stop in product((1, 2, 3), range(few // 3 + 3, few)):
        gaps = [row[stop] - row[stop - size] for row in starts]
        groups.append(((max(gaps) - min(gaps)) / size, size, stop, sum(gaps) / len(gaps) / size))
    extra = n_micro_batches - few
    for _, size, stop, period in sorted(groups):
        longer: Wishes = []
        for row in starts:
            middle = [row[stop - size + i % size] + (i // size + 1) * size * period for i in range(extra)]
            longer.append([*row[:stop], *middle, *(start + extra * period for start in row[stop:])])
        yield longer


def _numbered(program: list[int], codes: Codes) -> IntArray:
    """Codes of a device's actions: the micro-batches of every job follow each other."""
    jobs = np.array(program, dtype=np.int64)
    numbers = np.empty_like(jobs)
    for job in set(program):
        numbers[jobs == job] = np.arange(codes.n_micro_batches)
    return jobs * codes.n_numbers + numbers
