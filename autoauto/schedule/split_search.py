"""The search for a short order: itineraries, time running both ways, and moves on the critical path.

1. *Itineraries.* If every micro-batch travelled like the one before it, one period later, the pipeline would be in a
   steady state for ever: a building block (the controllable-memory paper, arXiv 2405.15362) that only says how long a
   micro-batch takes from device to device, downwards and upwards, and at the turns. Longer journeys hold more
   activations and forgive more. Such times are wishes; the scheduler makes them legal and squeezes warm-up and end.
2. *Both ways.* Scheduled backwards in time, with its own times as wishes, an order is pushed to its end as tightly as
   to its beginning before; forwards again, it is often shorter (forward-backward improvement, as in project planning).
3. *Critical path.* An order becomes shorter only if an action leaves its place within a block of the critical path: a
   run of actions on one device without a gap. Such an action gets a wish just after or just before its block.
4. *Stretching.* Many micro-batches are first solved as few; the steady state of that order is then repeated.

Work is counted in scheduled actions, never in seconds: the same input gives the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import NamedTuple

from autoauto.records.schedule import BACKWARD, WEIGHT
from autoauto.schedule.split_order import NEVER, Direction, Pipeline, Rule, Sketch
from autoauto.schedule.zb_bounds import lower_bound

EFFORT = 40_000
"""Actions scheduled for each device, 8 to 24, before the best order so far is the answer."""

EXPLORING = 0.4
"""The part of the effort that tries itineraries; the rest improves the best."""

WINDOWS = (NEVER, 8, 4, 6, 2, 1)
"""Of the scheduler, in units of a mean action."""

Wishes = list[list[float]]
Block = list[tuple[int, int]]


class Itinerary(NamedTuple):
    """How a micro-batch travels, in units of a mean action.

    Attributes:
        down, up: a step to the next and to the previous device, at least what an action and its message take.
        turns: rests where the direction of travel changes.
        lag: the rest before a weight gradient.
        window: of the scheduler.
    """

    down: float
    up: float
    turns: tuple[int, int, int]
    lag: int
    window: float


ONE_STAGE_A_DEVICE = (
    Itinerary(2, 1, (0, 0, 0), 3, NEVER),
    Itinerary(6, 1, (0, 2, 0), 1000, NEVER),
    Itinerary(1, 2, (0, 0, 0), 6, NEVER),
    Itinerary(3, 2, (0, 0, 0), 3, 4),
    Itinerary(2, 2, (0, 0, 0), 6, 8),
    Itinerary(1, 5, (0, 3, 0), 6, 8),
    Itinerary(3, 1, (0, 1, 0), 6, NEVER),
    Itinerary(4, 1, (0, 0, 0), 6, 8),
    Itinerary(1, 6, (0, 1, 0), 3, 4),
)
TWO_STAGES_A_DEVICE = tuple(
    Itinerary(down, up, (0, turn, after), lag, window)
    for down, up, turn, after, lag, window in (
        (1, 5, 1, 0, 6, 8),
        (5, 1, 1, 0, 3, NEVER),
        (1, 5, 0, 1, 0, 8),
        (1, 5, 0, 0, 0, NEVER),
        (1, 4, 4, 0, 6, 8),
        (3, 2, 2, 0, 0, 6),
        (2, 3, 2, 0, 3, 4),
        (2, 2, 2, 0, 3, NEVER),
        (3, 1, 0, 0, 0, 8),
        (2, 1, 4, 0, 0, 6),
        (1, 2, 0, 2, 0, 4),
        (1, 2, 4, 0, 3, 6),
        (2, 1, 3, 0, 3, 6),
        (1, 2, 0, 0, 0, 6),
        (2, 1, 1, 0, 0, 8),
        (2, 1, 0, 0, 6, 4),
        (1, 2, 0, 1, 3, 4),
        (1, 2, 1, 0, 6, 8),
        (1, 1, 0, 0, 3, 4),
        (1, 1, 3, 0, 3, 6),
        (1, 1, 1, 0, 1000, 4),
        (1, 1, 0, 1, 0, 6),
        (1, 1, 3, 0, 6, 4),
    )
)
"""They were best, or next to it, for some limit, times and links among 45 (4, 6 and 8 devices)."""


def best_order(pipeline: Pipeline) -> Sketch:
    """The shortest order that the effort finds; the search ends at once where `lower_bound` is met."""
    effort = EFFORT * max(8, min(24, pipeline.n_devices))
    few = max(2 * pipeline.n_devices, 8)
    sizes = sorted({min(size, pipeline.n_micro_batches) for size in (few, few + few // 4, pipeline.n_micro_batches)})
    search: _Search | None = None
    for i, size in enumerate(sizes):
        shorter, search = search, _Search(replace(pipeline, n_micro_batches=size), effort // (len(sizes) - i))
        if shorter is None:
            search.explore()
            search.idealise()
        else:
            search.stretch(shorter)
        search.improve()
        effort -= search.spent
    assert search is not None
    return search.found


class _Search:
    """The best order of one pipeline so far, and how much effort is left."""

    def __init__(self, pipeline: Pipeline, effort: int) -> None:
        self.pipeline = pipeline
        self.forwards = Direction(pipeline, backwards=False)
        self.backwards = Direction(pipeline, backwards=True)
        self.bound = lower_bound(pipeline)
        self.period = max(pipeline.work)
        self.unit = self.period / len(self.forwards.jobs[0])
        self.effort = effort
        self.random = Random(0)
        self.best: Sketch | None = None
        self.itinerary = ONE_STAGE_A_DEVICE[0]

    @property
    def spent(self) -> int:
        """The effort that is used up."""
        return self.forwards.n_scheduled + self.backwards.n_scheduled

    def explore(self) -> None:
        """Try itineraries, then the order of the ideal pipeline."""
        for itinerary, fair in product(itineraries(self.pipeline), (True, False)):
            before = self.best
            self.squeeze(self.wishes(itinerary), Rule(itinerary.window * self.unit, fair))
            if self.best is not before:
                self.itinerary = itinerary
            if self.spent > EXPLORING * self.effort or self.is_done():
                break

    def idealise(self) -> None:
        """Take over the order of the ideal pipeline, where all actions take the same and messages nothing."""
        n = self.pipeline.n_stages
        ideal = replace(self.pipeline, ticks=(1,) * (3 * n), forward_links=(0,) * (n + 1), backward_links=(0,) * n)
        if self.is_done():
            return
        search = _Search(ideal, self.effort // 4)
        search.explore()
        self.effort -= search.spent
        wishes: Wishes = [[start * self.unit for start in row] for row in search.found.starts]
        for window, fair in product((0, 1, 4, NEVER), (True, False)):
            self.squeeze(wishes, Rule(window * self.unit, fair))
            if self.spent > self.effort or self.is_done():
                break

    def stretch(self, shorter: _Search) -> None:
        """Repeat the steady state of an order of fewer micro-batches, until no more than periods are added."""
        extra = self.pipeline.n_micro_batches - shorter.pipeline.n_micro_batches
        goal = max(self.bound, shorter.found.makespan + extra * self.period)
        self.itinerary = shorter.itinerary
        for tried, (wishes, rule) in enumerate(self.repeats(shorter.found)):
            self.squeeze(wishes, rule)
            if self.found.makespan <= goal or (tried and self.spent > EXPLORING * self.effort):
                break

    def repeats(self, short: Sketch) -> Iterator[tuple[Wishes, Rule]]:
        """What to try: the itinerary that was best for the short order, then its steady state."""
        yield self.wishes(self.itinerary), Rule(self.itinerary.window * self.unit, fair=True)
        for wishes in stretched(short.starts, self.pipeline.n_micro_batches):
            for window, fair in product((4, 2, 8), (True, False)):
                yield wishes, Rule(window * self.unit, fair)

    @property
    def found(self) -> Sketch:
        """The best order, once there is one."""
        assert self.best is not None
        return self.best

    def is_done(self) -> bool:
        """Whether the best cannot be better."""
        return self.best is not None and self.best.makespan <= self.bound

    def schedule(self, wishes: Wishes, rule: Rule, cutoff: int = NEVER) -> Sketch | None:
        """Schedule, and keep the result if it is the best."""
        sketch = self.forwards.schedule(wishes, rule, cutoff)
        if sketch is not None and (self.best is None or sketch.makespan < self.best.makespan):
            self.best = sketch
        return sketch

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

    def squeeze(self, wishes: Wishes, rule: Rule) -> None:
        """Schedule, then there and back for as long as that helps."""
        sketch = self.schedule(wishes, rule, NEVER if self.best is None else self.best.makespan * 3 // 2)
        for _ in range(4):
            if sketch is None or self.is_done() or self.spent > self.effort:
                break
            again = self.there_and_back(sketch, rule)
            sketch = again if again.makespan < sketch.makespan else None

    def improve(self) -> None:
        """Move actions off the critical path until nothing is left to gain or spend."""
        current = self.found
        blocks = critical_blocks(self.forwards, current, self.random)
        while self.spent < self.effort and not self.is_done() and blocks:
            rule = Rule(self.random.choice(WINDOWS) * self.unit, self.random.random() < 0.25)
            uphill = self.random.random() * self.unit if self.random.random() < 0.05 else 0
            worst = max(current.makespan, int(self.found.makespan + uphill))
            sketch = self.schedule(self.nudged(current, blocks), rule, worst)
            if sketch is None:
                continue
            if self.random.random() < 0.3:
                again = self.there_and_back(sketch, rule)
                sketch = min(again, sketch, key=lambda one: one.makespan)
            current = sketch
            blocks = critical_blocks(self.forwards, current, self.random)

    def nudged(self, sketch: Sketch, blocks: list[Block]) -> Wishes:
        """The starts, but for one to three actions that wish to leave their block of the critical path.

        Weight gradients first: nobody waits for them.
        """
        random, starts = self.random, sketch.starts
        wishes: Wishes = [list(row) for row in starts]
        for _ in range(random.choice((1, 1, 2, 3))):
            block = random.choice(blocks)
            further = random.random() * random.choice((0, 0, 2, 6)) * self.unit
            if random.random() < 0.6:
                weights = [a for a in block[:-1] if a[0] >= WEIGHT * self.pipeline.n_stages]
                action = random.choice(weights if weights and random.random() < 0.6 else block[:-1])
                last, i = block[-1]
                postpone(wishes[action[0]], action[1], starts[last][i] + 0.5 + further)
            else:
                job, number = random.choice(block[1:])
                first, i = block[0]
                prefer(wishes[job], number, starts[first][i] - 0.5 - further)
        return wishes

    def wishes(self, itinerary: Itinerary) -> Wishes:
        """When every action would start if all micro-batches travelled the same way."""
        first = journey(self.pipeline, itinerary, self.unit)
        return [[start + i * self.period for i in range(self.pipeline.n_micro_batches)] for start in first]


def itineraries(pipeline: Pipeline) -> Sequence[Itinerary]:
    """Proven ones, those that just fill the memory before others.

    A micro-batch's activations occupy a device for about `n_devices * (down + up)` units in all, of the `3 * limit`
    that it has for each micro-batch.
    """
    if pipeline.n_stages == pipeline.n_devices:
        return ONE_STAGE_A_DEVICE
    fitting = 3 * pipeline.limit / pipeline.n_devices
    return sorted(TWO_STAGES_A_DEVICE, key=lambda one: abs(one.down + one.up - fitting))


def journey(pipeline: Pipeline, itinerary: Itinerary, unit: float) -> list[float]:
    """When the first micro-batch's action of every job starts."""
    n, devices = pipeline.n_stages, pipeline.devices
    path = [*range(n), *(BACKWARD * n + stage for stage in reversed(range(n)))]
    starts, now, turn = [0.0] * (3 * n), 0.0, int(n == pipeline.n_devices)
    for job, to in zip(path, [*path[1:], path[-1]], strict=True):
        stage, after = job % n, to % n
        starts[job] = now
        if job >= BACKWARD * n:
            starts[WEIGHT * n + stage] = now + pipeline.ticks[job] + itinerary.lag * unit
        step = devices[after] - devices[stage]
        least = pipeline.ticks[job] + pipeline.link(stage, after)
        if step:
            now += max(least, unit * (itinerary.down if step > 0 else itinerary.up))
        else:
            now += least + unit * itinerary.turns[min(turn, 2)]
            turn += 1
    return starts


def stretched(starts: list[list[int]], n_micro_batches: int) -> Iterator[Wishes]:
    """Starts of more micro-batches: those of few, with a group of one to three from the middle repeated.

    The groups come first whose jobs agree best on how long a group takes.
    """
    few = len(starts[0])
    groups = []
    for size, stop in product((1, 2, 3), range(few // 3 + 3, few)):
        gaps = [row[stop] - row[stop - size] for row in starts]
        groups.append(((max(gaps) - min(gaps)) / size, size, stop, sum(gaps) / len(gaps) / size))
    for _, size, stop, period in sorted(groups):
        extra = n_micro_batches - few
        wishes: Wishes = []
        for row in starts:
            middle = [row[stop - size + i % size] + (i // size + 1) * size * period for i in range(extra)]
            wishes.append([*row[:stop], *middle, *(start + extra * period for start in row[stop:])])
        yield wishes


def critical_blocks(direction: Direction, sketch: Sketch, random: Random) -> list[Block]:
    """The blocks of two and more actions of a critical path, each (job, number) in order of time.

    From an action that stops last, walk back to what its start waited for: its input, or the device's action before.
    """
    ticks, device = direction.pipeline.ticks, direction.device
    actions, places = _places(sketch)
    ends = [d for d, row in enumerate(actions) if _stop(sketch, ticks, row[-1]) == sketch.makespan]
    job, i = actions[random.choice(ends)][-1]
    blocks: list[Block] = [[(job, i)]]
    while True:
        start, place, row = sketch.starts[job][i], places[job][i], actions[device[job]]
        source = direction.sources[job]
        by_device = place > 0 and _stop(sketch, ticks, row[place - 1]) == start
        by_input = source >= 0 and device[source] != device[job] and sketch.arrivals[job][i] == start
        if by_device and not (by_input and random.random() < 0.5):
            job, i = row[place - 1]
            blocks[-1].append((job, i))
        elif by_input:
            job = source
            blocks.append([(job, i)])
        else:
            return [block[::-1] for block in blocks if len(block) > 1]


def _places(sketch: Sketch) -> tuple[list[Block], list[list[int]]]:
    """For every device its actions in order, and for every job the places of its actions there."""
    places: list[list[int]] = [[] for _ in sketch.starts]
    actions: list[Block] = []
    for program in sketch.programs:
        row: Block = []
        for place, job in enumerate(program):
            row.append((job, len(places[job])))
            places[job].append(place)
        actions.append(row)
    return actions, places


def _stop(sketch: Sketch, ticks: tuple[int, ...], action: tuple[int, int]) -> int:
    job, i = action
    return sketch.starts[job][i] + ticks[job]


def postpone(row: list[float], i: int, wish: float) -> None:
    """Wish an action later, and those of its job after it no earlier."""
    for later in range(i, len(row)):
        if later > i and row[later] > wish:
            break
        row[later] = wish
        wish += 0.01


def prefer(row: list[float], i: int, wish: float) -> None:
    """Wish an action earlier, and those of its job before it no later."""
    for earlier in range(i, -1, -1):
        if earlier < i and row[earlier] < wish:
            break
        row[earlier] = wish
        wish -= 0.01
