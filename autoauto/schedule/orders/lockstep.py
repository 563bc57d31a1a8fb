"""Schedules whose devices wait for each other after every slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.schedule import Codes, IntArray, Order, Schedule


class Row(NamedTuple):
    """What one stage does to every micro-batch, `first_slot` slots after the micro-batch has started."""

    device: int
    kind: int
    stage: int
    first_slot: int


def lockstep(order: Order, devices: tuple[int, ...], rows: Sequence[Row], starts: IntArray) -> Schedule:
    """The schedule of some rows, given the slot in which every micro-batch starts.

    Args:
        order: its name.
        devices: the device of every stage.
        rows: in the order in which a device runs what falls into one slot.
        starts: (n_micro_batches,) ascending.
    """
    codes = Codes(len(devices), len(starts))
    programs, slots = [], []
    for device in range(max(devices) + 1):
        own = [row for row in rows if row.device == device]
        program = np.concatenate([codes.of(row.kind, row.stage, np.arange(len(starts))) for row in own])
        when = np.concatenate([starts + row.first_slot for row in own])
        by_slot = np.argsort(when, kind="stable")
        programs.append(program[by_slot])
        slots.append(when[by_slot])
    return Schedule(order, devices, len(starts), tuple(programs), tuple(slots))
