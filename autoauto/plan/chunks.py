"""Interleaved chunks: every device runs several stages, dealt out in turn, as interleaved schedules want it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoauto.plan.evaluate import evaluate
from autoauto.plan.problem import check_one_in_flight
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan


def chunk_table(table: CostTable, n_chunks: int) -> CostTable:
    """A table with a device for every chunk: the devices' rows, repeated `n_chunks` times.

    The first chunk receives from the host and the last sends to it, as the table's first and last device do. After the
    last device comes the first again, over a link like those that enter the last and leave the first device. A device
    waits for the host once a period, so the host's constants count for its first chunk only: the first device's row of
    `receive_cycles` and the last one's of `send_cycles` must hold nothing else, as `estimate/transfer.py` makes them.

    Raises:
        BadInput: `n_chunks` is below 1, or above 1 where devices keep activations of several micro-batches.
    """
    if n_chunks < 1:
        raise BadInput(f"chunks a device must be at least 1, got {n_chunks}")
    if n_chunks > 1:
        check_one_in_flight(table, "several chunks a device")
    receive, send = table.receive_cycles, table.send_cycles
    host_in, host_out = receive[0, 0], send[-1, -1]
    from_ring = np.concatenate((receive[-1:], receive[1:])) - host_in
    to_ring = np.concatenate((send[:-1], send[:1]))
    send_rounds = [*[to_ring] * (n_chunks - 1), send]
    return replace(
        table,
        receive_cycles=np.concatenate((receive, *[from_ring] * (n_chunks - 1))),
        send_cycles=np.concatenate((send_rounds[0], *[rows - host_out for rows in send_rounds[1:]])),
        memory_limit_bytes=np.tile(table.memory_limit_bytes, n_chunks),
        speeds=table.speeds * n_chunks,
        stash_entries=table.stash_entries * n_chunks,
    )


def evaluate_chunks(table: CostTable, n_devices: int, partition: Sequence[int]) -> Plan:
    """The plan that cuts at `partition` and runs stage s of a `chunk_table` on device s mod `n_devices`."""
    stages = evaluate(table, partition).stages
    stages = tuple(replace(stage, device=stage.device % n_devices) for stage in stages)
    return Plan(stages, table.overlap, table.host_cycles)


def device_bytes(table: CostTable, chunks: Sequence[tuple[int, int]]) -> int:
    """What the ranges of layers `chunks` need together on one device.

    Shared keys are stored once for all of them and exclusive bytes add up. One chunk runs at a time, while what the
    others keep for the backward pass stays.
    """
    keys = {key for start, stop in chunks for keys in table.shared_keys[start:stop] for key in keys}
    shared = sum(table.shared_bytes[key] for key in keys)
    exclusive = sum(
        int(sums[stop] - sums[start]) for sums in table.exclusive_prefix_bytes.values() for start, stop in chunks
    )
    kept = [table.entry_bytes(*chunk) for chunk in chunks]
    more = [table.temporary_bytes(*chunk) - own for chunk, own in zip(chunks, kept, strict=True)]
    return shared + exclusive + sum(kept) + max(more)
