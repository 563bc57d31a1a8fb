"""Interleaved 1F1B: every device has several chunks of the model, which makes the bubble smaller."""

from __future__ import annotations

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.schedule import BACKWARD, FORWARD, MAX_STAGES, Codes, Order, Schedule
from autoauto.records.units import IntArray
from autoauto.schedule.orders.one_f_one_b import in_turn
from autoauto.schedule.orders.spec import OrderSpec

# 0F0 0F1 0F2 3F0 3F1 3F2         3B0     3B1     3B2 0B0 0B1 0B2
#     1F0 1F1 1F2 4F0 4F1 4F2 4B0     4B1     4B2 1B0 1B1 1B2
#         2F0 2F1 2F2 5F0 5B0 5F1 5B1 5F2 5B2 2B0 2B1 2B2


def interleaved(n_devices: int, n_micro_batches: int, n_chunks: int, group_size: int | None = None) -> Schedule:
    """1F1B over chunks: chunk c of device d is stage c * n_devices + d.

    Micro-batches go in groups of `group_size`, by default one for each device; a group passes all chunks of a device
    before the next group comes. The order and its rules are Megatron-LM's [megatron]: the warm-up on device d is 2 (p -
    d - 1) + (v - 1) group_size forwards of one chunk. One chunk a device is 1F1B. Raises BadInput if with several
    chunks, a group, the last one included, has fewer micro-batches than there are devices, or a group is larger than
    all micro-batches together.
    """
    group_size = n_devices if group_size is None else group_size
    is_short = not n_devices <= group_size <= n_micro_batches or 0 < n_micro_batches % group_size < n_devices
    if n_chunks > 1 and is_short:
        raise BadInput(
            f"interleaved on {n_devices} devices needs micro-batches in groups of at least {n_devices}, the last too, "
            f"got {n_micro_batches} in groups of {group_size}; try a multiple of {n_devices}"
        )
    codes = Codes(n_devices * n_chunks, n_micro_batches)
    chunks, micro_batches = chunk_order(n_micro_batches, n_chunks, group_size)
    next_chunk, next_device = n_devices * codes.n_numbers, codes.n_numbers
    forwards = codes.of(FORWARD, 0, micro_batches) + chunks * next_chunk
    backwards = codes.of(BACKWARD, 0, micro_batches) + (n_chunks - 1 - chunks) * next_chunk
    programs = tuple(
        in_turn(
            forwards + device * next_device,
            backwards + device * next_device,
            min(n_warm_up(n_devices, device, n_chunks, group_size), n_chunks * n_micro_batches),
        )
        for device in range(n_devices)
    )
    return Schedule(Order.INTERLEAVED, tuple(range(n_devices)) * n_chunks, n_micro_batches, programs)


def n_warm_up(n_devices: int, device: int, n_chunks: int, group_size: int) -> int:
    """Forwards of one chunk that a device runs before its first backward, if there are as many."""
    n_later = n_devices - device - 1
    return n_later if n_chunks == 1 else 2 * n_later + (n_chunks - 1) * group_size


def chunk_order(n_micro_batches: int, n_chunks: int, group_size: int) -> tuple[IntArray, IntArray]:
    """Chunk and micro-batch of every forward on a device, in order; backwards go through the chunks from the last."""
    chunks = np.repeat(np.arange(n_chunks), n_micro_batches)
    micro_batches = np.tile(np.arange(n_micro_batches), n_chunks)
    order = np.lexsort((micro_batches, chunks, micro_batches // group_size))
    return chunks[order], micro_batches[order]


SPECS = (
    OrderSpec(
        Order.INTERLEAVED,
        lambda request: interleaved(request.n_devices, request.n_micro_batches, request.n_chunks),
        takes_chunks=True,
        stages_per_device=(2, MAX_STAGES),
        in_groups=True,
    ),
)
