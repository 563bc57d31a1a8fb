"""Moves on the critical path: the only ones that can make an order shorter.

A critical path leads from the beginning to the end without a gap. It consists of blocks, runs of actions on one
device, and of messages between them. To shorten it an action must leave its block, by going before or after all the
others: what moves within a block changes nothing (known from job shop scheduling).
"""

from __future__ import annotations

from random import Random

from autoauto.records.schedule import WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import Direction, Sketch, Wishes

Place = tuple[int, int]
"""A job and the number of one of its actions."""


def critical_blocks(direction: Direction, sketch: Sketch, random: Random) -> list[list[Place]]:
    """The blocks of at least two actions of one critical path, the last block first.

    From an action that stops last, walk back to what its start waited for: its input, or the device's action before.
    """
    ticks, device = direction.pipeline.ticks, direction.device
    rows = [_row(program) for program in sketch.programs]
    index = {place: i for row in rows for i, place in enumerate(row)}

    def stop(place: Place) -> int:
        return sketch.starts[place[0]][place[1]] + ticks[place[0]]

    job, number = random.choice([row[-1] for row in rows if stop(row[-1]) == sketch.makespan])
    blocks = [[(job, number)]]
    while True:
        start, row, i = sketch.starts[job][number], rows[device[job]], index[job, number]
        source = direction.sources[job]
        by_device = i > 0 and stop(row[i - 1]) == start
        by_input = source >= 0 and device[source] != device[job] and sketch.arrivals[job][number] == start
        if by_device and not (by_input and random.random() < 0.5):
            job, number = row[i - 1]
            blocks[-1].append((job, number))
        elif by_input:
            job = source
            blocks.append([(job, number)])
        else:
            return [block[::-1] for block in blocks if len(block) > 1]


def nudged(sketch: Sketch, blocks: list[list[Place]], unit: float, random: Random) -> Wishes:
    """The starts as wishes, but for one to three actions that wish to leave their block, by up to six units more.

    Weight gradients are preferred, as nobody waits for them.
    """
    wishes: Wishes = [list(row) for row in sketch.starts]
    first_weight = WEIGHT * (len(wishes) // 3)
    for _ in range(random.choice((1, 1, 2, 3))):
        block = random.choice(blocks)
        further = 0.5 + random.random() * random.choice((0, 0, 2, 6)) * unit
        if random.random() < 0.6:
            weights = [place for place in block[:-1] if place[0] >= first_weight]
            job, number = random.choice(weights if weights and random.random() < 0.6 else block[:-1])
            postpone(wishes[job], number, _start(sketch, block[-1]) + further)
        else:
            job, number = random.choice(block[1:])
            advance(wishes[job], number, _start(sketch, block[0]) - further)
    return wishes


def postpone(row: list[float], number: int, wish: float) -> None:
    """Wish an action later, and those of its job behind it no earlier."""
    for later in range(number, len(row)):
        if later > number and row[later] >= wish:
            break
        row[later] = wish


def advance(row: list[float], number: int, wish: float) -> None:
    """Wish an action earlier, and those of its job before it no later."""
    for earlier in range(number, -1, -1):
        if earlier < number and row[earlier] <= wish:
            break
        row[earlier] = wish


def _start(sketch: Sketch, place: Place) -> int:
    return sketch.starts[place[0]][place[1]]


def _row(program: list[int]) -> list[Place]:
    """A device's actions in order."""
    done: dict[int, int] = {}
    row = []
    for job in program:
        number = done.get(job, 0)
        row.append((job, number))
        done[job] = number + 1
    return row
