"""How many activations wait in the stash for their backward."""

from __future__ import annotations

from autoauto.records.schedule import BACKWARD, Order, Schedule

_FIFO_DEPTHS = {Order.GROUPED: 2, Order.POPLAR_INTERLEAVED: 1, Order.SEQUENTIAL: 0}
"""Entries of a FIFO of Poplar's TensorFlow plugin, for every stage from its own to the last (IPU.md, section 4)."""


def stash_entries(schedule: Schedule) -> tuple[int, ...]:
    """For every device how many micro-batches' activations its stash must have room for.

    None where every backward directly follows its own forward, else the most in flight: 2 (S - 1 - i) + 1 on device i
    of S in PopART's pipeline. Poplar's plugin keeps the newest activations elsewhere, so that its FIFOs are shorter.
    Counted in stages' activations, so in chunks where a device has several. Inference stashes nothing.

    >>> from autoauto.schedule.popart import popart
    >>> stash_entries(popart(3, 5, training=True))
    (5, 3, 0)
    """
    if not schedule.has(BACKWARD):
        return (0,) * schedule.n_devices
    if schedule.order in _FIFO_DEPTHS:
        return _fifo_entries(schedule, _FIFO_DEPTHS[schedule.order])
    return tuple(0 if peak == 1 else peak for peak in schedule.peak_in_flight)


def _fifo_entries(schedule: Schedule, depth: int) -> tuple[int, ...]:
    entries = [0] * schedule.n_devices
    for stage, device in enumerate(schedule.devices):
        entries[device] += depth * (schedule.n_stages - 1 - stage)
    return tuple(entries)
