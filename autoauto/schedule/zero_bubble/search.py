"""The search for a short order.

1. Itineraries give the first priorities.
2. *Forward-backward improvement*, known from project scheduling. Scheduled backwards in time, with its own times as
   priorities, an order is packed against its end as tightly as it was against its start; forwards again, it is often
   shorter.
3. *Stretching.* Many micro-batches are first scheduled as few; the steady state of that order is then repeated. Where
   it is free of bubbles, the long order is as far above the bound as the short one.
4. Orders that repeat a group of one to four micro-batches (steady_state.py). With full effort, this search takes longer
   for orders of a V that are far above the bound.

The search ends at once when it meets `lower_bound`, which is the common case. Otherwise it ends when its
effort, counted in scheduled actions, is used up. No clock is involved, so the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from random import Random
from typing import NamedTuple

from autoauto.records.schedule import BACKWARD, WEIGHT, Order, Schedule
from autoauto.schedule.zero_bubble.list_scheduling import (
    NEVER,
    ChoiceRule,
    Direction,
    DraftSchedule,
    Priorities,
    in_order,
    numbered_schedule,
)
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound
from autoauto.schedule.zero_bubble.steady_state import FEW, FULL, SOME, Effort, steady_state


class Itinerary(NamedTuple):
    """The delays of a micro-batch in a steady state, where each follows the one before after one period.

    Such a steady state is a building block [controllable-memory]. Long journeys hold many activations and tolerate
    delays; short ones need little memory. An itinerary gives priorities only: the scheduler makes the order legal and
    tightens its start and end. Numbers are in units of a mean action:

        down 2, turn 1, up 1      F F . .             F stage 0; two units a step down, one unit of rest at the turn,
        (unit: a mean action)         F F . B B       then one unit a step up

    Attributes:
        down, up: a step to the next and to the previous device; longer where an action and its message take longer.
        turn: the rest of a micro-batch before its gradient sets out.
        inner_turn: the rest of a gradient between the two stages of the last device.
        lag: the rest before a weight gradient.
        window: of the scheduler's rule.
    """

    down: int
    up: int
    turn: int
    inner_turn: int
    lag: int
    window: int


ONE_STAGE_A_DEVICE = (
    Itinerary(2, 1, 0, 0, 3, NEVER),
    Itinerary(6, 1, 2, 0, 1000, NEVER),
    Itinerary(1, 2, 0, 0, 6, NEVER),
    Itinerary(3, 2, 0, 0, 3, 4),
    Itinerary(2, 2, 0, 0, 6, 8),
    Itinerary(1, 5, 3, 0, 6, 8),
    Itinerary(3, 1, 1, 0, 6, NEVER),
    Itinerary(4, 1, 0, 0, 6, 8),
    Itinerary(1, 6, 1, 0, 3, 4),
)
TWO_STAGES_A_DEVICE = (
    Itinerary(1, 5, 1, 0, 6, 8),
    Itinerary(5, 1, 1, 0, 3, NEVER),
    Itinerary(1, 5, 0, 1, 0, 8),
    Itinerary(1, 5, 0, 0, 0, NEVER),
    Itinerary(1, 4, 4, 0, 6, 8),
    Itinerary(3, 2, 2, 0, 0, 6),
    Itinerary(2, 3, 2, 0, 3, 4),
    Itinerary(2, 2, 2, 0, 3, NEVER),
    Itinerary(3, 1, 0, 0, 0, 8),
    Itinerary(2, 1, 4, 0, 0, 6),
    Itinerary(1, 2, 0, 2, 0, 4),
    Itinerary(1, 2, 4, 0, 3, 6),
    Itinerary(2, 1, 3, 0, 3, 6),
    Itinerary(1, 2, 0, 0, 0, 6),
    Itinerary(2, 1, 1, 0, 0, 8),
    Itinerary(2, 1, 0, 0, 6, 4),
    Itinerary(1, 2, 0, 1, 3, 4),
    Itinerary(1, 2, 1, 0, 6, 8),
    Itinerary(1, 1, 0, 0, 3, 4),
    Itinerary(1, 1, 3, 0, 3, 6),
    Itinerary(1, 1, 1, 0, 1000, 4),
    Itinerary(1, 1, 0, 1, 0, 6),
    Itinerary(1, 1, 3, 0, 6, 4),
)
"""A selection from some 600 itineraries that holds the best one, or nearly, for each of 45 pipelines of 4, 6 and 8
devices with different limits, times and links (for one stage a device: from 700, for 36)."""


def itineraries(pipeline: ZeroBubbleProblem) -> Sequence[Itinerary]:
    """The itineraries to try; with two stages a device, first those that just fill the memory.

    Activations occupy a device for about `n_devices * (down + up)` units a micro-batch, of the `3 * limit` that it has.
    """
    if pipeline.n_stages == pipeline.n_devices:
        return ONE_STAGE_A_DEVICE
    fitting = 3 * pipeline.limit / pipeline.n_devices
    return sorted(TWO_STAGES_A_DEVICE, key=lambda itinerary: abs(itinerary.down + itinerary.up - fitting))


def steady_priorities(pipeline: ZeroBubbleProblem, itinerary: Itinerary, unit: float, period: float) -> Priorities:
    """The start of every action if a micro-batch set out every `period` ticks; `unit` is the mean action."""
    n, devices, ticks = pipeline.n_stages, pipeline.devices, pipeline.ticks
    starts = [0.0] * (3 * n)  # of the first action of every job
    for job, to in pairwise(pipeline.path):
        step = devices[to % n] - devices[job % n]
        shortest = ticks[job] + pipeline.link(job, to)
        if step > 0:
            starts[to] = starts[job] + max(shortest, unit * itinerary.down)
        elif step < 0:
            starts[to] = starts[job] + max(shortest, unit * itinerary.up)
        else:
            # On one device: the last forward before its gradient, or the two stages where a V turns.
            rest = 0
            if job == n - 1:
                rest = itinerary.turn
            elif job > n:
                rest = itinerary.inner_turn
            starts[to] = starts[job] + shortest + unit * rest
    for stage in range(n):
        backward = BACKWARD * n + stage
        starts[WEIGHT * n + stage] = starts[backward] + ticks[backward] + itinerary.lag * unit
    return [[start + i * period for i in range(pipeline.n_micro_batches)] for start in starts]


EFFORT = 28_000
"""Actions to schedule for each device, counted as 8 to 24, before the best order so far is the answer."""

TIMES = 700
"""How often every action is scheduled at most: less effort where actions are few."""

LONG = 48_000
"""More actions than these are not scheduled one by one, which takes longer than a second for all of them."""

LONG_RUNS = 7
"""How often the few micro-batches of a long order are scheduled, about."""

NEAR = 1.05
"""Up to this ratio to the bound an itinerary alone is good enough for a long order, and little effort for a period."""

STRETCHING = 0.5
"""The share of the effort for the steady states of a shorter order; the rest is for itineraries."""


def short_schedule(order: Order, pipeline: ZeroBubbleProblem, effort: float = 1.0) -> Schedule:
    """The shortest schedule that the search finds with a share of its effort."""
    return numbered_schedule(order, pipeline, search(pipeline, effort).programs)


def search(pipeline: ZeroBubbleProblem, share: float = 1.0) -> DraftSchedule:
    """The shortest order that this share of the effort finds: for few micro-batches, for some more, for all."""
    n_actions = len(pipeline.ticks) * pipeline.n_micro_batches
    few = max(2 * pipeline.n_devices, 8)
    if n_actions > LONG and pipeline.n_micro_batches > few:
        return _long(pipeline, few)
    effort = int(share * min(EFFORT * max(8, min(24, pipeline.n_devices)), TIMES * n_actions))
    shorter: _OrderSearch | None = None
    for size in (few, few + few // 4):
        if size < pipeline.n_micro_batches:
            lengthened = _explored(replace(pipeline, n_micro_batches=size), effort // 4, shorter)
            effort -= lengthened.spent
            shorter = lengthened
    order = _explored(pipeline, effort, shorter)
    if not order.is_optimal:
        is_v = pipeline.n_stages > pipeline.n_devices
        if share < 1:
            order.try_steady_state(FEW)
        elif is_v and order.best.makespan > NEAR * order.bound:
            order.try_steady_state(FULL)
        else:
            order.try_steady_state(SOME)
    return order.best


def _explored(pipeline: ZeroBubbleProblem, effort: int, shorter: _OrderSearch | None) -> _OrderSearch:
    """A search with so much effort, of which some is for the steady states of a shorter order, if there is one."""
    order = _OrderSearch(pipeline, effort)
    if shorter is not None:
        order.stretch(shorter)
    order.explore()
    return order


def _long(pipeline: ZeroBubbleProblem, few: int) -> DraftSchedule:
    """A long order, which is scheduled once or twice, by an itinerary."""
    order = _OrderSearch(pipeline, NEVER, rounds=0)
    if pipeline.n_stages == pipeline.n_devices:
        order.try_forwards(itineraries(pipeline)[0])
    else:
        # The itinerary that makes the shortest order of few micro-batches.
        short = _OrderSearch(replace(pipeline, n_micro_batches=few), LONG_RUNS * len(pipeline.ticks) * few, rounds=1)
        short.explore()
        order.try_backwards(short.itinerary)
    if not order.is_optimal:
        order.try_steady_state(SOME)
    return order.best


class _OrderSearch:
    """The best order of one pipeline so far, and the effort that it took."""

    def __init__(self, pipeline: ZeroBubbleProblem, effort: int, rounds: int = 4) -> None:
        self.pipeline = pipeline
        self.forwards = Direction(pipeline, backwards=False)
        self.backwards = Direction(pipeline, backwards=True)
        self.bound = lower_bound(pipeline)
        self.period = max(pipeline.work)
        self.unit = self.period / len(self.forwards.jobs[0])
        self.effort, self.rounds = effort, rounds
        self.itinerary = ONE_STAGE_A_DEVICE[0]
        self.shortest: DraftSchedule | None = None

    @property
    def best(self) -> DraftSchedule:
        assert self.shortest is not None
        return self.shortest

    @property
    def spent(self) -> int:
        return self.forwards.n_scheduled + self.backwards.n_scheduled

    @property
    def is_optimal(self) -> bool:
        return self.shortest is not None and self.shortest.makespan <= self.bound

    def is_finished(self, part: float = 1) -> bool:
        """True if the best order cannot be better, or this part of the effort is used up."""
        return self.is_optimal or self.spent > part * self.effort

    def try_steady_state(self, effort: Effort) -> None:
        """Try the order that repeats a group of micro-batches as fast as memory admits."""
        repeated = steady_state(self.pipeline, Random(0), effort)
        if repeated is not None:
            self.keep(in_order(self.pipeline, repeated.priorities(self.pipeline.n_micro_batches)))

    def keep(self, draft: DraftSchedule | None) -> None:
        if draft is not None and (self.shortest is None or draft.makespan < self.shortest.makespan):
            self.shortest = draft

    def explore(self) -> None:
        """Try itineraries; `itinerary` becomes the best of them."""
        for itinerary, fair in product(itineraries(self.pipeline), (True, False)):
            if self.shortest is not None and self.is_finished():
                break
            before = self.shortest
            self.tighten(self.steady(itinerary), self.rule(itinerary.window, fair))
            if self.shortest is not before:
                self.itinerary = itinerary

    def stretch(self, shorter: _OrderSearch) -> None:
        """Try the steady state of a shorter order, until the makespan grows by no more than the added periods."""
        extra = self.pipeline.n_micro_batches - shorter.pipeline.n_micro_batches
        goal = shorter.best.makespan + extra * self.period
        self.itinerary = shorter.itinerary
        for attempt, (priorities, rule) in enumerate(self.lengthened(shorter.best)):
            self.tighten(priorities, rule)
            if self.best.makespan <= goal or (attempt and self.is_finished(STRETCHING)):
                break

    def try_forwards(self, itinerary: Itinerary) -> None:
        """Schedule an itinerary forwards, backwards in time and forwards again; the second order may be the best."""
        rule = self.rule(itinerary.window, fair=True)
        draft = self.schedule(self.steady(itinerary), rule)
        assert draft is not None
        if not self.is_optimal:
            back = self.backwards.schedule(self.mirrored(draft), rule)
            assert back is not None
            self.keep(in_order(self.pipeline, self.mirrored(back)))
            self.schedule(self.mirrored(back), rule, self.best.makespan)

    def try_backwards(self, itinerary: Itinerary) -> None:
        """Schedule an itinerary backwards in time, then forwards."""
        steady = self.steady(itinerary)
        rule = self.rule(itinerary.window, fair=True)
        last = max(row[-1] for row in steady)
        reverse: Priorities = [[last - start for start in reversed(row)] for row in steady]
        back = self.backwards.schedule(reverse, rule)
        assert back is not None
        self.schedule(self.mirrored(back), rule)

    def lengthened(self, short: DraftSchedule) -> Iterator[tuple[Priorities, ChoiceRule]]:
        """The itinerary that was best for the short order, then its steady state."""
        yield self.steady(self.itinerary), self.rule(self.itinerary.window, fair=True)
        for stretched in stretches(short.starts, self.pipeline.n_micro_batches):
            for window, fair in product((8, NEVER, 4), (True, False)):
                yield stretched, self.rule(window, fair)

    def tighten(self, priorities: Priorities, rule: ChoiceRule) -> None:
        """Schedule, then improve backwards and forwards for as long as that helps; far too long orders not at all."""
        cutoff = NEVER
        if self.shortest is not None:
            cutoff = self.shortest.makespan * 3 // 2
        draft = self.schedule(priorities, rule, cutoff)
        for _ in range(self.rounds):
            if draft is None or self.is_finished():
                break
            again = self.forward_backward(draft, rule)
            if again.makespan >= draft.makespan:
                break
            draft = again

    def forward_backward(self, draft: DraftSchedule, rule: ChoiceRule) -> DraftSchedule:
        back = self.backwards.schedule(self.mirrored(draft), rule)
        assert back is not None
        again = self.schedule(self.mirrored(back), rule)
        assert again is not None
        return again

    def mirrored(self, draft: DraftSchedule) -> Priorities:
        """The starts with time running the other way."""
        mirrored: Priorities = []
        for starts, ticks in zip(draft.starts, self.pipeline.ticks, strict=True):
            last = draft.makespan - ticks  # an action that starts then stops at the makespan, so at 0 in the mirror
            mirrored.append([last - start for start in reversed(starts)])
        return mirrored

    def schedule(self, priorities: Priorities, rule: ChoiceRule, cutoff: int = NEVER) -> DraftSchedule | None:
        draft = self.forwards.schedule(priorities, rule, cutoff)
        self.keep(draft)
        return draft

    def steady(self, itinerary: Itinerary) -> Priorities:
        return steady_priorities(self.pipeline, itinerary, self.unit, self.period)

    def rule(self, window: float, fair: bool) -> ChoiceRule:
        """A rule whose window is given in units."""
        return ChoiceRule(window * self.unit, fair)


def stretches(starts: list[list[int]], n_micro_batches: int) -> Iterator[Priorities]:
    """Make starts of more micro-batches of the starts of a few, by repeating a group of one to three of them.

    Groups come first whose jobs agree best on how long a group takes.
    """
    few = len(starts[0])
    groups = []
    for size, stop in product((1, 2, 3), range(few // 3 + 3, few)):
        # By job how long the group of `size` micro-batches before `stop` takes, until the next one starts.
        gaps = [row[stop] - row[stop - size] for row in starts]
        disagreement = (max(gaps) - min(gaps)) / size
        groups.append((disagreement, size, stop, sum(gaps) / len(gaps) / size))
    extra = n_micro_batches - few
    for _, size, stop, period in sorted(groups):
        lengthened: Priorities = []
        for row in starts:
            middle = [row[stop - size + i % size] + (i // size + 1) * size * period for i in range(extra)]
            end = [start + extra * period for start in row[stop:]]
            lengthened.append(row[:stop] + middle + end)
        yield lengthened
