"""A tiny simulator that shares nothing with autoauto's, drawings of what it finds, and a tiny interpreter of loops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autoauto.records.schedule import Action, ActionKind, Schedule
from autoauto.runtimes.batch_serialisation.program import BatchSerialResult, LoopKind, Touch

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


Arrays = dict[str, NDArray[np.float64]]


@dataclass
class Machine:
    """A tiny interpreter of loops: arrays are buffers; the first axis of every array counts replicas.

    A group's operations see only what earlier groups have made, as those of a group run at the same time.
    """

    buffers: dict[str, dict[int, NDArray[np.float64]]] = field(default_factory=dict)
    inputs: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    outputs: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    seeds: list[tuple[int, int]] = field(default_factory=list)

    def run(self, loop: BatchSerialResult, row: int, compute: Callable[[Arrays], Arrays], **bound: Any) -> None:
        """Call a loop with a row; `bound` are its other inputs by the names that the graph has for them."""
        assert {loop.remap[name] for name in bound} == set(loop.inputs) - {"row"}
        values: dict[int, Arrays] = {}
        for group in loop.call(row):
            before = {step: dict(arrays) for step, arrays in values.items()}
            for op, touches in group:
                if op.kind is LoopKind.LOAD:
                    values[op.step] = {touch.tensor: self._load(touch) for touch in touches} | bound
                elif op.kind is LoopKind.COMPUTE:
                    if loop.seed_input:
                        self.seeds.append((row, op.step))
                    values[op.step] = before[op.step] | compute(before[op.step])
                else:
                    for touch in touches:
                        self._store(touch, before[op.step][touch.tensor])

    def _load(self, touch: Touch) -> NDArray[np.float64]:
        if touch.entry is None:
            return self.inputs[touch.place].pop(0)
        return collective(self.buffers[touch.place][touch.entry], touch.collectives)

    def _store(self, touch: Touch, value: NDArray[np.float64]) -> None:
        if touch.entry is None:
            self.outputs.setdefault(touch.place, []).append(value)
        else:
            self.buffers.setdefault(touch.place, {})[touch.entry] = collective(value, touch.collectives)


def collective(value: NDArray[np.float64], names: tuple[str, ...]) -> NDArray[np.float64]:
    n = len(value)
    for name in names:
        if name == "all_gather":
            value = np.stack([value.reshape(-1)] * n)
        elif name == "reduce_scatter":
            value = value.sum(axis=0).reshape(n, -1)
        elif name == "all_reduce":
            value = np.stack([value.sum(axis=0)] * n)
        else:
            assert name == "slice"
            value = np.stack(list(value[0].reshape(n, -1)))
    return value


@pytest.fixture
def machine() -> Machine:
    return Machine()
