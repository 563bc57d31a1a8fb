"""The end of a step of training: the all-reduce of gradients and the update of weights, `with_step_end`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoauto.records.timeline import StepEnd, Timeline


def with_step_end(
    timeline: Timeline, all_reduce_cycles: Sequence[int], update_cycles: Sequence[int], *, barrier: bool
) -> Timeline:
    """A timeline that goes on until every device has summed its gradients over the replicas and updated its weights.

    The gradients of a stage are final when its last backward has stopped. Where transfers overlap with compute, its
    all-reduce begins then, while other stages still compute; where all devices exchange at once, it begins when the
    pipeline is empty, and no device updates before it has ended everywhere:

        overlap    0  F F F B B B ......... B R R U          barrier    0  F F F B B B ......... B R R U
                   1    F B F B F B R R U                               1    F B F B F B           R R U

    Args:
        timeline: of the pipeline.
        all_reduce_cycles, update_cycles: of every device.
        barrier: whether all devices exchange at once.
    """
    ready = np.array([timeline.stop_tick if barrier else int(stops[-1]) for stops in timeline.stops])
    reduced = ready + np.array(all_reduce_cycles) * timeline.ticks_per_cycle
    begins = np.full_like(reduced, reduced.max()) if barrier else reduced
    updated = begins + np.array(update_cycles) * timeline.ticks_per_cycle
    end = StepEnd(timeline.stop_tick, np.stack((ready, reduced), axis=1), np.stack((begins, updated), axis=1))
    return replace(timeline, stop_tick=max(timeline.stop_tick, int(updated.max())), step_end=end)
