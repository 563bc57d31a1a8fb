"""PopART's pipeline: fill, main and flush, with all devices in step.

Schedules whose devices wait for each other after every slot: `lockstep`, for PopART's and Poplar's orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, FORWARD, Codes, Order, Schedule
from autoauto.records.units import IntArray
from autoauto.schedule.orders.spec import OrderSpec


class LockstepRow(NamedTuple):
    """An action of one stage on every micro-batch, `first_slot` slots after the micro-batch has started."""

    device: int
    kind: int
    stage: int
    first_slot: int


def lockstep(order: Order, devices: tuple[int, ...], rows: Sequence[LockstepRow], starts: IntArray) -> Schedule:
    """The schedule that runs every row for every micro-batch.

    Args:
        order, devices: the schedule's name, and the device of every stage.
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


class PopartPhases(NamedTuple):
    """Pipeline cycles of PopART's three phases [popart-pipelining]: `main` is a loop, fill and flush are unrolled.

    >>> popart_phases(3, 5, training=True), popart_phases(3, 5, training=True).n_cycles
    (PopartPhases(fill=4, main=1, flush=4), 9)
    """

    fill: int
    main: int
    flush: int

    @property
    def n_cycles(self) -> int:
        """N = 2 (P - 1) + (G - (P - 1))."""
        return self.fill + self.main + self.flush


def popart_phases(n_devices: int, n_micro_batches: int, *, training: bool) -> PopartPhases:
    """The phases of G micro-batches on P = n_devices pipeline stages, or 2 (n_devices - 1) + 1 in training.

    The last device's backward is part of its forward's pipeline stage. The main phase needs 1 cycle or more.
    """
    fill = 2 * (n_devices - 1) if training else n_devices - 1
    return PopartPhases(fill, n_micro_batches - fill, fill)


# 0F0     0F1     0F2     0F3     0F4.0B0 0B1     0B2     0B3     0B4
#         1F0     1F1     1F2.1B0 1F3.1B1 1F4.1B2 1B3     1B4
#                 2F0.2B0 2F1.2B1 2F2.2B2 2F3.2B3 2F4.2B4


def popart(n_devices: int, n_micro_batches: int, *, training: bool) -> Schedule:
    """PopART's pipeline: stage s runs in the pipeline cycles [s, s + G), forward before backward.

    The forward of device s is pipeline stage s, its backward pipeline stage 2 (n_devices - 1) - s, and a slot is a
    pipeline cycle [popart-pipelining]. Raises BadInput if there are fewer micro-batches than pipeline stages, so the
    main phase is empty.
    """
    return in_cycles(Order.POPART, tuple(range(n_devices)), n_micro_batches, training=training)


def in_cycles(order: Order, devices: tuple[int, ...], n_micro_batches: int, *, training: bool) -> Schedule:
    """`popart` with the stages on these devices; a device runs the pipeline stages of a cycle in turn.

    Raises BadInput as `popart`.
    """
    n_stages = len(devices)
    fill, main, _ = popart_phases(n_stages, n_micro_batches, training=training)
    if main < 1:
        raise BadInput(
            f"PopART's main phase needs at least 1 cycle, so {fill + 1} micro-batches for {fill + 1} pipeline stages, "
            f"got {n_micro_batches}; try more micro-batches or fewer devices"
        )
    rows = [LockstepRow(device, FORWARD, s, s) for s, device in enumerate(devices)]
    if training:
        rows += [LockstepRow(devices[s], BACKWARD, s, fill - s) for s in reversed(range(n_stages))]
    return lockstep(order, devices, rows, np.arange(n_micro_batches))


SPECS = (
    OrderSpec(
        Order.POPART,
        lambda request: popart(request.n_devices, request.n_micro_batches, training=request.training),
        runs_inference=True,
        stages_per_device=(1, 1),
        min_micro_batches=lambda n_devices: 2 * n_devices - 1,  # some lie between fill and flush [popart-pipelining]
    ),
)
