"""When actions start if each starts as soon as it can, while devices compute and links carry messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import CHECK, Schedule, StageTimes
from autoauto.records.units import IntArray
from autoauto.schedule.simulate.dependencies import in_order, needs, refuse, row_devices

NEVER = 2**63 - 1
AWAITED = -1


def earliest_starts(schedule: Schedule, times: StageTimes) -> tuple[IntArray, ...]:
    """The start of every action, for every device in the order of its program.

    An action starts when the device's previous one has stopped and its input is there. Messages from one device to
    another follow each other in the order in which they are made. The host sends the first stage its inputs one after
    the other, from tick 0 on.

    Every device is a coroutine: it runs until it needs a message that has not arrived, and the device that sends the
    message resumes it. So every action is visited once, in any order. Raises BadInput if the schedule cannot run to its
    end; the message says who waits for whom.
    """
    if not in_order(schedule):
        refuse(schedule)
    rows = _rows(schedule, times)
    n_numbers = schedule.codes.n_numbers
    first_check = CHECK * schedule.n_stages
    arrivals = _first_arrivals(schedule, rows, int(times.forward_links[0]))
    starts: list[list[int]] = [[] for _ in schedule.programs]
    full, n_stages = schedule.full_backwards, schedule.n_stages

    def run(device: int) -> Iterator[None]:
        now, record_start = 0, starts[device].append
        for code in schedule.programs[device].tolist():
            arrival = arrivals[code]
            if arrival > now:
                if arrival == NEVER:
                    arrivals[code] = AWAITED
                    yield
                    arrival = arrivals[code]
                now = arrival if arrival > now else now  # max() would take a quarter of all time
            record_start(now)
            row = code // n_numbers
            ticks, onward, receiver, link, link_ticks = rows[row]
            now += ticks
            if onward:
                # The message leaves when the link is free, and the receiver goes on if it waits for this message.
                free, stop = link[0], now
                if full and code in full:
                    stop += rows[row + n_stages].ticks  # those of the weight gradient, which follows
                link[0] = arrival = (free if free > stop else stop) + link_ticks
                if arrivals[code + onward] == AWAITED:
                    ready.append(devices[receiver])
                arrivals[code + onward] = arrival
            elif row >= first_check:
                now += int(times.checks[row - first_check][code % n_numbers])

    devices = [run(device) for device in range(schedule.n_devices)]
    ready = devices[::-1]
    while ready:
        next(ready.pop(), None)
    if sum(map(len, starts)) < schedule.n_actions:
        refuse(schedule)
    return tuple(np.array(column, dtype=np.int64) for column in starts)


class _Row(NamedTuple):
    """The times of the actions of a row, and of the message that each of them sends; without one, `onward` is 0.

    Attributes:
        ticks: of the action; those of a check depend on its number.
        onward: the difference between an action's code and the code of the action that needs it.
        link: one entry, shared by all rows that use the link: the tick at which its last message has arrived.
    """

    ticks: int
    onward: int
    receiver: int
    link: list[int]
    link_ticks: int  # how long the message takes


def _rows(schedule: Schedule, times: StageTimes) -> list[_Row]:
    """For every kind of action, and for every stage: forwards, backwards, weight gradients and checks."""
    devices, n_numbers = row_devices(schedule).tolist(), schedule.codes.n_numbers
    none = np.zeros(schedule.n_stages, dtype=np.int64)
    ticks = np.concatenate((times.forward, times.backward, times.weight, none)).tolist()
    # A forward sends to the next stage, the last one sends to the host; a backward sends to the stage before.
    link_ticks = np.concatenate((times.forward_links[1:-1], none[:1], times.backward_links, none, none)).tolist()
    rows = [_Row(row_ticks, 0, 0, [], 0) for row_ticks in ticks]
    links: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0])
    before_rows, after_rows = needs(schedule)
    for before, after in zip(before_rows.tolist(), after_rows.tolist(), strict=True):
        sender, receiver = devices[before], devices[after]
        if sender != receiver:
            onward = (after - before) * n_numbers
            rows[before] = _Row(ticks[before], onward, receiver, links[sender, receiver], link_ticks[before])
    return rows


def _first_arrivals(schedule: Schedule, rows: Sequence[_Row], host_ticks: int) -> list[int]:
    """For every code when its input from another device arrives: at tick 0, in turn from the host, or not yet known."""
    n_numbers = schedule.codes.n_numbers
    arrivals = [0] * (len(rows) * n_numbers)
    for number, row in enumerate(rows):
        if row.onward:
            first = number * n_numbers + row.onward
            arrivals[first : first + n_numbers] = [NEVER] * n_numbers
    program = schedule.programs[schedule.devices[0]]
    for turn, code in enumerate(program[program < n_numbers].tolist(), start=1):  # forwards of stage 0
        arrivals[code] = turn * host_ticks
    return arrivals
