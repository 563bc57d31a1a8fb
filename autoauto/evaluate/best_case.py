"""What a configuration of training gives at best, before it is planned: `best_case`.

Every plan computes all layers, and its devices hold all weights. So without a plan there are bounds of all plans:

    step     >=  micro-batches x work / devices      and with one stage a device also the time in which the pipeline
                                                     fills and flushes
    memory   >=  (weights and their state + what all stages stash) / devices       of the fullest device; with
                                                     recomputation without the stash
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from autoauto.evaluate.estimates import Estimates, WholeModel
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.units import samples_per_s
from autoauto.schedule.orders.registry import spec_of
from autoauto.schedule.stash import in_flight_by_stage


class BestCase(NamedTuple):
    """Bounds of what the estimate says of a configuration.

    Attributes:
        samples_per_s: it gives no more.
        excess: the fullest device lacks at least this share of what a device holds; below 0 it may fit.
    """

    samples_per_s: float
    excess: float


def best_case(estimates: Estimates, knobs: Knobs) -> BestCase:
    """The bounds of a configuration of training by a pipeline, whose devices are of one kind."""
    whole = estimates.whole_model(knobs)
    m, p = knobs.n_micro_batches, knobs.n_ipu
    step = m * (whole.work_cycles / p + _min_transfer_cycles(whole, knobs))
    if knobs.stages_per_device == 1 and not spec_of(knobs.schedule).splits_backward and m > 1:
        # A stage has all its work, and before it that of the stages before, once: the bound if all end together.
        step = max(step, whole.work_cycles / (1 - (1 - 1 / m) ** p))
    speed = samples_per_s(knobs.n_samples, max(step, 1.0), estimates.cluster.clock_hz)
    return BestCase(speed, (_min_bytes(whole, knobs) - whole.limit_bytes) / whole.device_bytes)


def _min_transfer_cycles(whole: WholeModel, knobs: Knobs) -> float:
    """What some device transfers at least for every micro-batch while none computes; 0 where transfers overlap."""
    if not whole.waits_for_transfers:
        return 0.0
    n_each, p = knobs.stages_per_device, knobs.n_ipu
    if n_each > 1:
        return (2 * n_each - 2) * whole.cut_cycles
    return whole.host_cycles + min(p - 1, 2) * whole.cut_cycles


def _min_bytes(whole: WholeModel, knobs: Knobs) -> float:
    """What the fullest device needs at least."""
    if knobs.recompute:  # of its activations a stage may hold the segment between two checkpoints only
        return whole.held_bytes / knobs.n_ipu
    moments = in_flight_by_stage(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches, knobs.stages_per_device)
    stashed, counts = float(whole.activation_bytes), tuple(float(each.mean(axis=0).min()) for each in moments)
    return _smallest_limit(float(whole.held_bytes), stashed, tuple(sorted(counts, reverse=True)))


@lru_cache(maxsize=4096)
def _smallest_limit(held: float, stashed: float, counts: tuple[float, ...]) -> float:
    """The smallest memory of devices that can hold all, however it is divided, `counts` times what each stashes.

    What is always held fills the devices first that stash most micro-batches.
    """
    low, high = held / len(counts), held + stashed * counts[0]
    for _ in range(20):
        limit, left, room = (low + high) / 2, held, 0.0
        for count in counts:
            here = min(limit, left)
            left -= here
            room += (limit - here) / count
        low, high = (low, limit) if room >= stashed else (limit, high)
    return low
