"""A tiny simulator that shares nothing with autoauto's, and drawings of its schedules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import pytest

from autoauto.records.schedule import Action, ActionKind, Schedule

Starts = dict[Action, int]
Ticks = Callable[[Action], int]


@pytest.fixture(scope="session")
def asap() -> Callable[[Schedule, Ticks], Starts]:
    """When every action starts if all start as soon as they can and messages take no time."""
    return _asap


@pytest.fixture(scope="session")
def draw() -> Callable[[Schedule], str]:
    """A line a device and a column a tick: every action takes one, or its slot where the schedule has slots."""
    return _draw


def _needs(action: Action, last: int) -> Iterator[Action]:
    stage, kind, micro_batch = action
    if kind is ActionKind.FORWARD and stage > 0:
        yield Action(stage - 1, ActionKind.FORWARD, micro_batch)
    if kind is ActionKind.BACKWARD:
        yield Action(stage, ActionKind.FORWARD, micro_batch)
        if stage < last:
            yield Action(stage + 1, ActionKind.BACKWARD, micro_batch)
    if kind is ActionKind.WEIGHT:
        yield Action(stage, ActionKind.BACKWARD, micro_batch)


def _asap(schedule: Schedule, ticks: Ticks) -> Starts:
    last = schedule.n_stages - 1
    queues = [deque(schedule.actions(device)) for device in range(schedule.n_devices)]
    clocks = [0] * schedule.n_devices
    starts: Starts = {}
    stops: Starts = {}
    while any(queues):
        n_before = len(stops)
        for device, queue in enumerate(queues):
            while queue and all(need in stops for need in _needs(queue[0], last)):
                action = queue.popleft()
                starts[action] = max([clocks[device], *(stops[need] for need in _needs(action, last))])
                clocks[device] = stops[action] = starts[action] + ticks(action)
        assert len(stops) > n_before, "deadlock"
    return starts


def _draw(schedule: Schedule) -> str:
    starts = _asap(schedule, lambda action: 1) if schedule.slots is None else {}
    lines = []
    for device in range(schedule.n_devices):
        columns = schedule.slots[device].tolist() if schedule.slots else map(starts.get, schedule.actions(device))
        cells: dict[int, str] = {}
        for column, action in zip(columns, schedule.actions(device), strict=True):
            cells[column] = f"{cells[column]}.{action}" if column in cells else str(action)
        lines.append(cells)
    last = max(max(cells) for cells in lines)
    width = max(len(text) for cells in lines for text in cells.values())
    rows = (" ".join(cells.get(column, "").ljust(width) for column in range(last + 1)) for cells in lines)
    return "\n".join(row.rstrip() for row in rows)
