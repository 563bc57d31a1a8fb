"""The pipelines of Poplar's TensorFlow plugin [poplar-tensorflow]: grouped, interleaved and sequential.

The plugin numbers its stages on through the backward pass: with S forward stages, 2 S - 1 - s is the backward of
stage s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, FORWARD, Order, Schedule
from autoauto.schedule.orders.popart import LockstepRow, lockstep
from autoauto.schedule.orders.spec import OrderSpec, ScheduleRequest

# Stages on devices 0 1 | 1 0, a column a timestep. Grouped, offsets 0 1 2 3: all stages run in every timestep.
#
# 0F0     0F1     0F2     0B0.0F3 0B1     0B2     0B3
#         1F0     1B0.1F1 1B1.1F2 1B2.1F3 1B3
#
# Interleaved, offsets 0 2: a device runs one stage in a timestep.
#
# 0F0     0F1 0B0 0F2 0B1 0F3 0B2     0B3
#     1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
#
# Sequential, offset 0: a micro-batch starts when the one before has left the pipeline.
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
        stage_devices: the device of every stage; in training the backward stages follow, from the last to the first.
        n_micro_batches: a multiple of the overlap length; with overlapped I/O anything from that length + 2 on.
        overlap_io: whether micro-batches arrive and leave while others are computed; grouped only.
        n_serial: how many micro-batches a stage runs in one timestep, one after the other (batch serialisation);
            sequential on one device only. They count as one for the rule above.

    Raises:
        BadInput: the plugin refuses such a pipeline.
    """
    require_mapping(order, stage_devices, training)
    _require_serial(order, stage_devices, n_micro_batches, n_serial)
    offsets = compute_offsets(order, stage_devices)
    _require_micro_batches(order, n_micro_batches // n_serial, len(offsets), overlap_io)
    n_numbers = len(stage_devices)
    n_stages = n_numbers // 2 if training else n_numbers
    # As many micro-batches as there are offsets start in a turn of the loop, which has a timestep for every stage.
    turns, positions = np.divmod(np.arange(n_micro_batches // n_serial), len(offsets))
    starts = np.repeat(turns * n_numbers + np.array(offsets)[positions], n_serial)
    forward, backward = stage_devices[:n_stages], stage_devices[n_stages:]
    rows = [LockstepRow(device, FORWARD, s, s) for s, device in enumerate(forward)]
    rows += [LockstepRow(device, BACKWARD, n_stages - 1 - s, n_stages + s) for s, device in enumerate(backward)]
    return lockstep(order, tuple(forward), rows[::-1], starts)


def compute_offsets(order: Order, stage_devices: Sequence[int]) -> tuple[int, ...]:
    """The timesteps in which the first micro-batches start; there are as many as the overlap length.

    Grouped: every offset, so that every stage is always busy. Interleaved: every offset, from the first on, whose
    rotation of `stage_devices` uses no device in a timestep in which an earlier offset uses it. Sequential: one.
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

    Slots run one after the other. Within a slot PopART goes from the first pipeline stage to the last; its last device
    has one pipeline stage for both passes [popart-pipelining]. Grouped pipelines go from the last stage to the first,
    interleaved ones by micro-batch modulo overlap length.
    """
    assert schedule.slots is not None
    codes, last = schedule.codes, schedule.n_stages - 1
    program, slots = np.concatenate(schedule.programs), np.concatenate(schedule.slots)
    backward, stages = codes.kinds(program) == BACKWARD, codes.stages(program)
    if schedule.order in (Order.POPART, Order.POPART_RING):
        # The last device has one number for both passes: its backward is left out, as its forward stands for both.
        numbers = np.where(backward, 2 * last - stages, stages)
        within = numbers
        counts = ~backward | (stages < last)
    else:
        numbers = np.where(backward, 2 * last + 1 - stages, stages)
        within = -numbers
        counts = np.ones(len(program), dtype=np.bool_)
    if schedule.order is Order.POPLAR_INTERLEAVED:
        overlap_length = np.count_nonzero(slots[numbers == 0] <= numbers.max())
        within = codes.micro_batches(program) % overlap_length
    in_order = np.lexsort((within, slots))
    stages_in_order: list[int] = numbers[in_order][counts[in_order]].tolist()
    return stages_in_order


def require_mapping(order: Order, stage_devices: Sequence[int], training: bool) -> None:
    """Refuse with BadInput a mapping of stages to devices that the plugin refuses."""
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


def _from_request(order: Order, request: ScheduleRequest) -> Schedule:
    devices = _mapping(request.n_devices, request.stage_devices, request.training)
    return poplar(order, devices, request.n_micro_batches, training=request.training)


def _mapping(n_stages: int, stage_devices: Sequence[int] | None, training: bool) -> Sequence[int]:
    """The devices of the stages and, in training, of their backwards; by default one stage a device."""
    if stage_devices is None:
        devices = list(range(n_stages))
        return devices + devices[::-1] if training else devices
    wanted = 2 * n_stages if training else n_stages
    if len(stage_devices) != wanted:
        passes = "forward and backward" if training else "forward"
        raise BadInput(
            f"each stage must be mapped to a device: {wanted} for {n_stages} stages ({passes}), "
            f"got {len(stage_devices)}: {list(stage_devices)}"
        )
    return stage_devices


def _spec(order: Order, fifo_depth: int) -> OrderSpec:
    return OrderSpec(
        order, partial(_from_request, order), runs_inference=True, takes_stage_devices=True, fifo_depth=fifo_depth
    )


SPECS = (_spec(Order.GROUPED, 2), _spec(Order.POPLAR_INTERLEAVED, 1), _spec(Order.SEQUENTIAL, 0))
