"""What actions wait for: a micro-batch goes forward through all stages and back, and a WEIGHT follows its BACKWARD.

A row is all actions of one kind on one stage: row `kind * S + stage` has the codes from `row * n_numbers` on. A row is
on one device; Poplar's orders may run a stage's backward on another device than its forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from autoauto.records.schedule import BACKWARD, CHECK, FORWARD, KINDS, WEIGHT, IntArray, Schedule
from autoauto.schedule.simulate.check import check


class Needs(NamedTuple):
    """Rows: micro-batch by micro-batch, what is in `after[i]` needs what is in `before[i]`."""

    before: IntArray
    after: IntArray


def needs(schedule: Schedule) -> Needs:
    """All that actions wait for, but for the device they run on.

    >>> from autoauto.schedule.one_f_one_b import one_f_one_b
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

    >>> from autoauto.schedule.one_f_one_b import one_f_one_b
    >>> row_devices(one_f_one_b(2, 4)).tolist()
    [0, 1, 0, 1, -1, -1, -1, -1]
    """
    devices = np.full(len(KINDS) * schedule.n_stages, -1, dtype=np.int64)
    for device, program in enumerate(schedule.programs):
        devices[program // schedule.codes.n_numbers] = device
    return devices


def in_order(schedule: Schedule) -> bool:
    """Whether all work is there once, each action after its inputs from its own device.

    Where the schedule has slots, inputs from other devices must lie in earlier ones. Where it has none these are not
    looked at: whoever runs the schedule sees whether they come.
    """
    places = _table(schedule, [np.arange(len(program)) for program in schedule.programs])
    devices, (before, after) = row_devices(schedule), needs(schedule)
    if not (_complete(schedule, places >= 0) and _at_home(schedule, devices)):
        return False
    near, micro_batches = devices[before] == devices[after], slice(schedule.n_micro_batches)
    ordered = bool((places[before[near], micro_batches] < places[after[near], micro_batches]).all())
    if schedule.slots is None:
        return ordered
    slots = _table(schedule, schedule.slots)
    arrived = bool((slots[before[~near], micro_batches] < slots[after[~near], micro_batches]).all())
    return ordered and arrived and all((np.diff(row) >= 0).all() for row in schedule.slots)


def refuse(schedule: Schedule) -> NoReturn:
    """Say why a schedule cannot run.

    Raises:
        BadInput: always; the message says who waits for whom.
    """
    check(schedule)
    raise AssertionError("a schedule that passes its check can run")


def _table(schedule: Schedule, columns: Sequence[IntArray]) -> IntArray:
    """The entry of `columns` for every action, (rows, numbers); -1 where there is no such action."""
    codes = schedule.codes
    table = np.full(codes.size, -1, dtype=np.int64)
    for program, column in zip(schedule.programs, columns, strict=True):
        table[program] = column
    return table.reshape(-1, codes.n_numbers)


def _complete(schedule: Schedule, there: npt.NDArray[np.bool_]) -> bool:
    """Whether no action is there twice, and a kind of work is there for every stage and micro-batch or for none."""
    work = there.reshape(len(KINDS), schedule.n_stages, -1)[:CHECK]
    some = [bool(kind.any()) for kind in work]
    wanted = np.zeros_like(work)
    wanted[some, :, : schedule.n_micro_batches] = True
    once = int(there.sum()) == schedule.n_actions
    return once and np.array_equal(work, wanted) and some[FORWARD] and some[BACKWARD] >= some[WEIGHT]


def _at_home(schedule: Schedule, devices: IntArray) -> bool:
    """Whether no row is on two devices, and every stage's forward on the stage's."""
    n_numbers = schedule.codes.n_numbers
    whole = all((devices[program // n_numbers] == device).all() for device, program in enumerate(schedule.programs))
    return whole and tuple(devices[: schedule.n_stages].tolist()) == schedule.devices
