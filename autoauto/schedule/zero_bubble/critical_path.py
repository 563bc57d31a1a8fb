"""Moves on the critical path: the only ones that can make an order shorter.

A critical path leads from the start to the end without a gap. It consists of blocks, which are runs of actions on one
device, and of messages between them. To shorten the path an action must leave its block, by going before or after all
its other actions: a move within a block changes nothing (known from job shop scheduling).

    device 0   0F0 0F1     [0B0 0W0 0B1 0W1]      two blocks in brackets, a message from 1B0 to 0B0 between them
    device 1       [1F0 1B0] 1F1 1B1
"""

from __future__ import annotations

from random import Random

from autoauto.records.schedule import WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import Direction, DraftSchedule, Priorities

ActionIndex = tuple[int, int]
"""A job and the micro-batch of one of its actions."""


def critical_blocks(direction: Direction, draft: DraftSchedule, random: Random) -> list[list[ActionIndex]]:
    """The blocks of at least two actions of one critical path, the last block first.

    From an action that stops last, walk back to the action that its start waited for: its input, or the one before on
    the same device.
    """
    ticks, device = direction.pipeline.ticks, direction.device
    rows = [_row(program) for program in draft.programs]
    index = {action: i for row in rows for i, action in enumerate(row)}

    def stop(action: ActionIndex) -> int:
        return draft.starts[action[0]][action[1]] + ticks[action[0]]

    job, number = random.choice([row[-1] for row in rows if stop(row[-1]) == draft.makespan])
    blocks = [[(job, number)]]
    while True:
        start, row, i = draft.starts[job][number], rows[device[job]], index[job, number]
        source = direction.sources[job]
        by_device = i > 0 and stop(row[i - 1]) == start
        by_input = source >= 0 and device[source] != device[job] and draft.arrivals[job][number] == start
        if by_device and not (by_input and random.random() < 0.5):
            job, number = row[i - 1]
            blocks[-1].append((job, number))
        elif by_input:
            job = source
            blocks.append([(job, number)])
        else:
            return [block[::-1] for block in blocks if len(block) > 1]


def nudged(draft: DraftSchedule, blocks: list[list[ActionIndex]], unit: float, random: Random) -> Priorities:
    """The starts as priorities, but one to three actions get priorities outside their block, by up to six units.

    Weight gradients are preferred, as no action waits for them.
    """
    priorities: Priorities = [list(row) for row in draft.starts]
    first_weight = WEIGHT * (len(priorities) // 3)
    for _ in range(random.choice((1, 1, 2, 3))):
        block = random.choice(blocks)
        further = 0.5 + random.random() * random.choice((0, 0, 2, 6)) * unit
        if random.random() < 0.6:
            weights = [action for action in block[:-1] if action[0] >= first_weight]
            job, number = random.choice(weights if weights and random.random() < 0.6 else block[:-1])
            postpone(priorities[job], number, _start(draft, block[-1]) + further)
        else:
            job, number = random.choice(block[1:])
            advance(priorities[job], number, _start(draft, block[0]) - further)
    return priorities


def postpone(row: list[float], number: int, priority: float) -> None:
    """Give an action a later priority, and the later actions of its job none that is earlier."""
    for later in range(number, len(row)):
        if later > number and row[later] >= priority:
            break
        row[later] = priority


def advance(row: list[float], number: int, priority: float) -> None:
    """Give an action an earlier priority, and the earlier actions of its job none that is later."""
    for earlier in range(number, -1, -1):
        if earlier < number and row[earlier] <= priority:
            break
        row[earlier] = priority


def _start(draft: DraftSchedule, action: ActionIndex) -> int:
    return draft.starts[action[0]][action[1]]


def _row(program: list[int]) -> list[ActionIndex]:
    """A device's actions in order."""
    done: dict[int, int] = {}
    row = []
    for job in program:
        number = done.get(job, 0)
        row.append((job, number))
        done[job] = number + 1
    return row
