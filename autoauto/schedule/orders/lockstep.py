"""Schedules whose devices wait for each other after every slot: `lockstep`, for PopART's and Poplar's orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.schedule import Codes, Order, Schedule


class LockstepRow(NamedTuple):
    """An action of one stage on every micro-batch, `first_slot` slots after the micro-batch has started."""

    device: int
    kind: int
    stage: int
    first_slot: int


def lockstep(order: Order, devices: tuple[int, ...], rows: Sequence[LockstepRow], starts: IntArray) -> Schedule:
    """The schedule that runs every row for every micro-batch.

    Args:
        order: the schedule's name.
        devices: the device of every stage.
        rows: in the order in which a device runs the actions of one slot.
        starts: (n_micro_batches,) the slot in which every micro-batch starts, ascending.
    """
    codes = Codes(len(devices), len(starts))
    programs, slots = [], []
    for device in range(max(devices) + 1):
        device_rows = [row for row in rows if row.device == device]
        program = np.concatenate([codes.of(row.kind, row.stage, np.arange(len(starts))) for row in device_rows])
        when = np.concatenate([starts + row.first_slot for row in device_rows])
        by_slot = np.argsort(when, kind="stable")
        programs.append(program[by_slot])
        slots.append(when[by_slot])
    return Schedule(order, devices, len(starts), tuple(programs), tuple(slots))
