"""Every order by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, Schedule, StageTimes
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.interleaved import interleaved
from autoauto.schedule.orders.one_f_one_b import one_f_one_b
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.orders.poplar import poplar

SIMPLE = {Order.INFERENCE: inference, Order.GPIPE: gpipe, Order.ONE_F_ONE_B: one_f_one_b}
POPLAR = (Order.GROUPED, Order.POPLAR_INTERLEAVED, Order.SEQUENTIAL)
ZERO_BUBBLE = {Order.ZB1P: 1, Order.ZB2P: 2}
"""How many activations a device may hold by default, in multiples of the devices."""
V_SHAPES = (Order.ZBV, Order.V_HALF, Order.V_MIN)
EITHER_WAY = (Order.INFERENCE, Order.POPART, *POPLAR)
"""Orders without a backward pass if asked; inference never has one."""


def make_schedule(
    order: Order,
    n_devices: int,
    n_micro_batches: int,
    *,
    n_chunks: int = 1,
    times: StageTimes | None = None,
    training: bool = True,
    stage_devices: Sequence[int] | None = None,
    max_in_flight: int | None = None,
) -> Schedule:
    """The schedule of an order by name.

    Args:
        order: which.
        n_devices: how many devices there are; with `stage_devices`, how many stages are mapped to devices.
        n_micro_batches: how many micro-batches there are.
        n_chunks: chunks a device, for interleaved.
        times: what the stages of `stage_devices_of` take, for zero bubble orders, which are made for it.
        training: False for PopART's and Poplar's pipelines without a backward pass.
        stage_devices: for Poplar's orders the device of every stage, backward ones too; by default one stage a device.
        max_in_flight: for zero bubble orders the activations that a device may hold; by default the order's own limit.

    Raises:
        BadInput: the order does not take such arguments.

    >>> make_schedule(Order.ONE_F_ONE_B, 4, 8).peak_in_flight
    (4, 3, 2, 1)
    """
    _require_counts(n_devices=n_devices, n_micro_batches=n_micro_batches, n_chunks=n_chunks)
    _require_taken(order, n_chunks, training, stage_devices, max_in_flight)
    if order in SIMPLE:
        return SIMPLE[order](n_devices, n_micro_batches)
    if order is Order.INTERLEAVED:
        return interleaved(n_devices, n_micro_batches, n_chunks)
    if order is Order.POPART:
        return popart(n_devices, n_micro_batches, training=training)
    if order in POPLAR:
        return poplar(order, _mapping(n_devices, stage_devices, training), n_micro_batches, training=training)
    if times is None:
        raise BadInput(f"{order} is made for what actions take; give times")
    return _zero_bubble(order, n_devices, n_micro_batches, times, max_in_flight)


def stage_devices_of(order: Order, n_devices: int, n_chunks: int = 1) -> tuple[int, ...]:
    """The device of every stage that an order has by default.

    >>> stage_devices_of(Order.INTERLEAVED, 2, 2), stage_devices_of(Order.ZBV, 2)
    ((0, 1, 0, 1), (0, 1, 1, 0))
    """
    devices = tuple(range(n_devices))
    if order in V_SHAPES:
        return devices + devices[::-1]
    return devices * n_chunks


def _zero_bubble(
    order: Order, n_devices: int, n_micro_batches: int, times: StageTimes, max_in_flight: int | None
) -> Schedule:
    from autoauto.schedule.orders.v_shape import default_in_flight, v_shape
    from autoauto.schedule.orders.zero_bubble import zero_bubble

    assert times.n_stages == len(stage_devices_of(order, n_devices))
    if order in V_SHAPES:
        found = v_shape(times, n_micro_batches, max_in_flight or default_in_flight(order, n_devices))
    else:
        found = zero_bubble(times, n_micro_batches, max_in_flight or ZERO_BUBBLE[order] * n_devices)
    return replace(found, order=order)


def _mapping(n_stages: int, stage_devices: Sequence[int] | None, training: bool) -> Sequence[int]:
    """The devices of the stages and, in training, of their backwards."""
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


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise BadInput(f"{name} must be at least 1, got {count}")


def _require_taken(
    order: Order, n_chunks: int, training: bool, stage_devices: Sequence[int] | None, max_in_flight: int | None
) -> None:
    """Refuse arguments that the order does not take."""
    if n_chunks > 1 and order is not Order.INTERLEAVED:
        raise BadInput(f"chunks are for {Order.INTERLEAVED}, got {n_chunks} with {order}")
    if not training and order not in EITHER_WAY:
        raise BadInput(f"{order} is for training; try inference, popart or one of {', '.join(POPLAR)}")
    if stage_devices is not None and order not in POPLAR:
        raise BadInput(f"a device for every stage is for {', '.join(POPLAR)}, got one with {order}")
    if max_in_flight is not None:
        if order not in (*ZERO_BUBBLE, *V_SHAPES):
            raise BadInput(
                f"a limit of activations is for {', '.join((*ZERO_BUBBLE, *V_SHAPES))}, got one with {order}"
            )
        _require_counts(max_in_flight=max_in_flight)
