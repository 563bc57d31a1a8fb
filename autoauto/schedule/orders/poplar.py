"""The pipelines of Poplar's TensorFlow plugin: grouped, interleaved and sequential.

Its stages are numbered on through the backward pass: of S stages, 2 S - 1 - s is the backward of stage s.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, FORWARD, Order, Schedule
from autoauto.schedule.orders.lockstep import Row, lockstep

# Stages on devices 0 1 | 1 0, a column a timestep. Grouped, offsets 0 1 2 3: all stages run in every timestep.
#
# 0F0     0F1     0F2     0B0.0F3 0B1     0B2     0B3
#         1F0     1B0.1F1 1B1.1F2 1B2.1F3 1B3
#
# Interleaved, offsets 0 2: a device has one thing to do at a time.
#
# 0F0     0F1 0B0 0F2 0B1 0F3 0B2     0B3
#     1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
#
# Sequential, offset 0: a micro-batch comes when the last one has gone.
#
# 0F0         0B0 0F1         0B1
#     1F0 1B0         1F1 1B1


def poplar(
    order: Order,
    stage_devices: Sequence[int],
    n_micro_batches: int,
    *,
    training: bool,
    overlap_io: bool = False,
    n_serial: int = 1,
) -> Schedule:
    """A pipeline of Poplar's TensorFlow plugin, with timesteps as slots.

    Args:
        order: grouped, poplar-interleaved or sequential.
        stage_devices: the device of every stage; in training the backward stages follow, from the last to the first.
        n_micro_batches: a multiple of the overlap length; with overlapped I/O anything from that length + 2 on.
        training: whether there is a backward pass.
        overlap_io: whether micro-batches arrive and leave while others are computed; grouped only.
        n_serial: how many micro-batches a stage runs in one timestep, one after the other (batch serialisation);
            sequential on one device only. They count as one for the rule above.

    Raises:
        BadInput: the plugin refuses such a pipeline.

    >>> schedule = poplar(Order.POPLAR_INTERLEAVED, [0, 1, 1, 0], 4, training=True)
    >>> execution_order(schedule)
    [0, 1, 2, 0, 3, 1, 0, 2, 1, 3, 2, 0, 3, 1, 2, 3]
    """
    require_mapping(order, stage_devices, training)
    _require_serial(order, stage_devices, n_micro_batches, n_serial)
    offsets = compute_offsets(order, stage_devices)
    _require_micro_batches(order, n_micro_batches // n_serial, len(offsets), overlap_io)
    n_numbers = len(stage_devices)
    n_stages = n_numbers // 2 if training else n_numbers
    turns, places = np.divmod(np.arange(n_micro_batches // n_serial), len(offsets))
    starts = np.repeat(turns * n_numbers + np.array(offsets)[places], n_serial)
    forward, backward = stage_devices[:n_stages], stage_devices[n_stages:]
    rows = [Row(device, FORWARD, s, s) for s, device in enumerate(forward)]
    rows += [Row(device, BACKWARD, n_stages - 1 - s, n_stages + s) for s, device in enumerate(backward)]
    return lockstep(order, tuple(forward), rows[::-1], starts)


def compute_offsets(order: Order, stage_devices: Sequence[int]) -> tuple[int, ...]:
    """The timesteps in which the first micro-batches start; there are as many as the overlap length.

    Grouped, every stage is always busy. Interleaved, the rotations of `stage_devices` are taken that have no device
    twice in any timestep, the first such first. Sequential, one micro-batch is under way.

    >>> compute_offsets(Order.POPLAR_INTERLEAVED, [0, 1, 2, 2, 1, 0])
    (0, 2, 4)
    """
    n_stages = len(stage_devices)
    if order is Order.SEQUENTIAL:
        return (0,)
    if order is Order.GROUPED:
        return tuple(range(n_stages))
    devices = np.array(stage_devices)
    free = [not (devices == np.roll(devices, shift)).any() for shift in range(n_stages)]
    offsets = [0]
    for offset in range(1, n_stages):
        if all(free[offset - taken] for taken in offsets):
            offsets.append(offset)
    return tuple(offsets)


def execution_order(schedule: Schedule) -> list[int]:
    """The stages of a schedule with slots in the order in which they run, numbered on through the backward pass.

    Slot after slot. Within one, PopART goes from its first pipeline stage to its last, of which the last device has one
    for both passes (seed 000), grouped pipelines from the last to the first, interleaved ones by micro-batch modulo
    overlap length.
    """
    assert schedule.slots is not None
    codes, last = schedule.codes, schedule.n_stages - 1
    program, slots = np.concatenate(schedule.programs), np.concatenate(schedule.slots)
    merged = schedule.order is Order.POPART
    backward, stages = codes.kinds(program) == BACKWARD, codes.stages(program)
    numbers = np.where(backward, 2 * last + (not merged) - stages, stages)
    if schedule.order is Order.POPLAR_INTERLEAVED:
        overlap_length = np.count_nonzero(slots[numbers == 0] <= numbers.max())
        within = codes.micro_batches(program) % overlap_length
    else:
        within = numbers if merged else -numbers
    runs = ~backward | (stages < last) | (not merged)
    in_order = np.lexsort((within, slots))
    return [int(number) for number in numbers[in_order][runs[in_order]]]


def require_mapping(order: Order, stage_devices: Sequence[int], training: bool) -> None:
    """Refuse devices of stages that the plugin refuses.

    Raises:
        BadInput: it does.
    """
    devices = list(stage_devices)
    if training and len(devices) % 2:
        raise BadInput(f"each stage and each backward must be mapped to a device, got an odd number of them, {devices}")
    forward = devices[: len(devices) // 2] if training else devices
    if len(forward) < 2:
        raise BadInput(f"{order} needs at least 2 stages, got {len(forward)}; try more")
    n_devices = len(set(forward))
    if not set(devices) <= set(forward) == set(range(n_devices)):
        raise BadInput(f"devices must be numbered from 0 and all have a forward stage, got stages on {devices}")
    if order is Order.POPLAR_INTERLEAVED and training and len(forward) > n_devices:
        raise BadInput(f"{order} trains one stage a device only, got stages on devices {forward}; try grouped")


def _require_serial(order: Order, stage_devices: Sequence[int], n_micro_batches: int, n_serial: int) -> None:
    if n_serial == 1:
        return
    if order is not Order.SEQUENTIAL or len(set(stage_devices)) > 1:
        raise BadInput(
            f"batch serialisation needs all stages on one device and the order sequential, got {order} "
            f"on devices {list(stage_devices)}"
        )
    if n_serial < 1 or n_micro_batches % n_serial:
        raise BadInput(f"n_serial must be at least 1 and divide {n_micro_batches} micro-batches, got {n_serial}")


def _require_micro_batches(order: Order, n_micro_batches: int, overlap_length: int, overlap_io: bool) -> None:
    if overlap_io and order is not Order.GROUPED:
        raise BadInput(f"I/O can only overlap in grouped pipelines, got {order}")
    if overlap_io and n_micro_batches < overlap_length + 2:
        raise BadInput(
            f"{order} with overlapped I/O needs at least {overlap_length + 2} micro-batches, got {n_micro_batches}"
        )
    if not overlap_io and (n_micro_batches % overlap_length or n_micro_batches < overlap_length):
        raise BadInput(
            f"{order} needs micro-batches in a multiple of {overlap_length}, its overlap length, got {n_micro_batches}"
            f"; try {-(-n_micro_batches // overlap_length) * overlap_length}"
        )
