"""Rows of actions: what they wait for (`needs`, `in_order`) and how long they take (`compute_ticks`).

A row is all actions of one kind on one stage: row `kind * S + stage` has the codes from `row * n_numbers` on. All
actions of a row run on one device; Poplar's orders may run a stage's backward on another device than its forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from autoauto.records.arrays import BoolArray, IntArray
from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, KINDS, WEIGHT, Schedule, StageTimes
from autoauto.schedule.simulate.check import check


class Needs(NamedTuple):
    """Pairs of rows: an action of row `after[i]` needs the action of row `before[i]` on the same micro-batch."""

    before: IntArray
    after: IntArray


def needs(schedule: Schedule) -> Needs:
    """Every action's inputs: a micro-batch goes forward through all stages and back, a WEIGHT follows its BACKWARD.

    >>> from autoauto.schedule.orders.one_f_one_b import one_f_one_b
    >>> [rows.tolist() for rows in needs(one_f_one_b(2, 4))]  # 0F 1F 1B 0B
    [[0, 1, 3], [1, 3, 2]]
    """
    stages = np.arange(schedule.n_stages)
    forward, backward, weight = (kind * schedule.n_stages + stages for kind in (FORWARD, BACKWARD, WEIGHT))
    path = np.concatenate((forward, backward[::-1])) if schedule.has(BACKWARD) else forward
    if not schedule.has(WEIGHT):
        return Needs(path[:-1], path[1:])
    return Needs(np.concatenate((path[:-1], backward)), np.concatenate((path[1:], weight)))


def row_devices(schedule: Schedule) -> IntArray:
    """The device of every row, (kinds * S,); -1 where a schedule has no such actions.

    >>> from autoauto.schedule.orders.one_f_one_b import one_f_one_b
    >>> row_devices(one_f_one_b(2, 4)).tolist()
    [0, 1, 0, 1, -1, -1, -1, -1]
    """
    devices = np.full(len(KINDS) * schedule.n_stages, -1, dtype=np.int64)
    for device, program in enumerate(schedule.programs):
        devices[program // schedule.codes.n_numbers] = device
    return devices


def in_order(schedule: Schedule) -> bool:
    """Whether every action occurs once, after its inputs from its own device.

    Where the schedule has slots, inputs from other devices must have earlier ones. Without slots this function does not
    check them: the simulation finds a deadlock by itself.
    """
    indices = _action_table(schedule, [np.arange(len(program)) for program in schedule.programs])
    devices, (before, after) = row_devices(schedule), needs(schedule)
    if not (_complete(schedule, indices >= 0) and _on_own_devices(schedule, devices)):
        return False
    near, micro_batches = devices[before] == devices[after], slice(schedule.n_micro_batches)
    ordered = bool((indices[before[near], micro_batches] < indices[after[near], micro_batches]).all())
    if schedule.slots is None:
        return ordered
    slots = _action_table(schedule, schedule.slots)
    arrived = bool((slots[before[~near], micro_batches] < slots[after[~near], micro_batches]).all())
    return ordered and arrived and all((np.diff(row) >= 0).all() for row in schedule.slots)


def refuse(schedule: Schedule) -> NoReturn:
    """Say why a schedule cannot run.

    Raises:
        BadInput: always; the message says who waits for whom.
    """
    check(schedule)
    raise AssertionError("a schedule that passes its check can run")


def _action_table(schedule: Schedule, columns: Sequence[IntArray]) -> IntArray:
    """The entry of `columns` for every action, (rows, numbers); -1 where there is no such action."""
    codes = schedule.codes
    table = np.full(codes.size, -1, dtype=np.int64)
    for program, column in zip(schedule.programs, columns, strict=True):
        table[program] = column
    return table.reshape(-1, codes.n_numbers)


def _complete(schedule: Schedule, occurs: BoolArray) -> bool:
    """Whether no action occurs twice, and every kind of work occurs for all stages and micro-batches or for none."""
    work = occurs.reshape(len(KINDS), schedule.n_stages, -1)[:CHECK]
    some = [bool(kind.any()) for kind in work]
    wanted = np.zeros_like(work)
    wanted[some, :, : schedule.n_micro_batches] = True
    once = int(occurs.sum()) == schedule.n_actions
    return once and np.array_equal(work, wanted) and some[FORWARD] and some[BACKWARD] >= some[WEIGHT]


def _on_own_devices(schedule: Schedule, devices: IntArray) -> bool:
    """Whether no row is on two devices, and every stage's forward is on the stage's device."""
    n_numbers = schedule.codes.n_numbers
    whole = all((devices[program // n_numbers] == device).all() for device, program in enumerate(schedule.programs))
    return whole and tuple(devices[: schedule.n_stages].tolist()) == schedule.devices


def compute_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of every action, for every device in the order of its program."""
    table = _kind_table(schedule, {FORWARD: times.forward, BACKWARD: times.backward, WEIGHT: times.weight})
    for stage, ticks in enumerate(times.checks):
        table[CHECK, stage, : len(ticks)] = ticks
    return [table.ravel()[program] for program in schedule.programs]


def exchange_ticks(schedule: Schedule, times: StageTimes) -> list[IntArray]:
    """Ticks of the exchange that follows every action, for every device in the order of its program."""
    table = _kind_table(schedule, {FORWARD: times.forward_exchange, BACKWARD: times.backward_exchange})
    return [table.ravel()[program] for program in schedule.programs]


def _kind_table(schedule: Schedule, columns: Mapping[int, IntArray]) -> IntArray:
    """The ticks of all codes, (kinds, S, numbers), from a column (S,) for every kind; 0 for other kinds."""
    table = np.zeros((len(KINDS), schedule.n_stages, schedule.codes.n_numbers), dtype=np.int64)
    for kind, column in columns.items():
        table[kind] = column[:, None]
    return table
