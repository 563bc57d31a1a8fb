"""What no order can beat, so that a search knows when to stop."""

from __future__ import annotations

from itertools import accumulate

from autoauto.schedule.split_order import Pipeline


def lower_bound(pipeline: Pipeline) -> int:
    """Ticks that every order takes at least.

    A device starts when the first micro-batch can have reached it, and computes all its work.
    """
    return max(reach + pipeline.n_micro_batches * work for reach, work in zip(_reach(pipeline), pipeline.work, strict=True))


def _reach(pipeline: Pipeline) -> list[int]:
    """For every device when its first action can start at the earliest."""
    n = pipeline.n_stages
    steps = [pipeline.ticks[s] + pipeline.link(s, s + 1) for s in range(n - 1)]
    arrivals = list(accumulate(steps, initial=pipeline.forward_links[0]))
    return [min(a for a, d in zip(arrivals, pipeline.devices, strict=True) if d == device) for device in range(pipeline.n_devices)]
