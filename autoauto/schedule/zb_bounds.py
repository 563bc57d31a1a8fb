"""What no order can beat, so that a search knows when to stop and a reader how good an order is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from autoauto.records.schedule import BACKWARD, WEIGHT
from autoauto.schedule.split_pipeline import Pipeline


def lower_bound(pipeline: Pipeline) -> int:
    """Ticks that every order takes at least: the largest of three bounds.

    *A device* computes all its work. It idles until the first micro-batch comes; then until the first gradient comes,
    but for the forwards that its memory admits; and from its last forward to the end, but for the backwards and weight
    gradients of what its memory holds. With p equal stages and a limit of p this is
    `m (F + B + W) + (p - 1) (F + B - W)` and four messages a link: the bubble of ZB1P (zero bubble, arXiv 2401.10241).

    *A memory* holds every activation until its gradient has come back and its W has stopped.

    *A stage* computes all its forwards and input gradients before the last gradient leaves it.
    """
    most = pipeline.n_micro_batches * (pipeline.n_stages // pipeline.n_devices)
    pipeline = replace(pipeline, limit=min(pipeline.limit, most))
    heads, tails = _heads(pipeline), _tails(pipeline)
    n, ticks, m = pipeline.n_stages, pipeline.ticks, pipeline.n_micro_batches
    by_stage = [heads[s] + m * (ticks[s] + ticks[BACKWARD * n + s]) + tails[BACKWARD * n + s] for s in range(n)]
    by_device = [_device_bound(pipeline, heads, tails, device) for device in range(pipeline.n_devices)]
    by_memory = [_memory_bound(pipeline, heads, device) for device in range(pipeline.n_devices)]
    return max(*by_stage, *by_device, *by_memory)


def _device_bound(pipeline: Pipeline, heads: list[int], tails: list[int], device: int) -> int:
    n, ticks, limit = pipeline.n_stages, pipeline.ticks, pipeline.limit
    stages = [s for s in range(n) if pipeline.devices[s] == device]
    first, last = stages[0], stages[-1]
    forwards = limit * max(ticks[s] for s in stages)
    backwards = limit * max(ticks[BACKWARD * n + s] + ticks[WEIGHT * n + s] for s in stages)
    before_gradients = max(0, heads[BACKWARD * n + last] - heads[first] - forwards)
    after_forwards = max(0, tails[last] - backwards)
    if limit < pipeline.n_micro_batches * len(stages):  # the last forward starts after the first gradient
        idle = before_gradients + after_forwards
    else:
        idle = max(before_gradients, after_forwards)
    return heads[first] + pipeline.n_micro_batches * pipeline.work[device] + idle


def _memory_bound(pipeline: Pipeline, heads: list[int], device: int) -> int:
    """Forwards fill the memory one by one, weight gradients empty it one by one; in between it may be full.

    So an activation that comes on top of i others finds room for i forwards and i weight gradients less than all time.
    """
    n, ticks, limit = pipeline.n_stages, pipeline.ticks, pipeline.limit
    stages = [s for s in range(n) if pipeline.devices[s] == device]
    held = sum(heads[BACKWARD * n + s] - heads[s] + ticks[BACKWARD * n + s] + ticks[WEIGHT * n + s] for s in stages)
    one_by_one = min(ticks[s] for s in stages) + min(ticks[WEIGHT * n + s] for s in stages)
    total = pipeline.n_micro_batches * held + limit * (limit - 1) // 2 * one_by_one
    return heads[stages[0]] - (-total // limit)


def _heads(pipeline: Pipeline) -> list[int]:
    """For every F and B job when its first action can start."""
    heads = [pipeline.forward_links[0]] * (2 * pipeline.n_stages)
    for job, to in pairwise(pipeline.path):
        heads[to] = heads[job] + pipeline.ticks[job] + pipeline.link(job, to)
    return heads


def _tails(pipeline: Pipeline) -> list[int]:
    """For every F and B job what passes at least between the stop of an action and the end."""
    n, ticks = pipeline.n_stages, pipeline.ticks
    tails = [0] * n + list(ticks[WEIGHT * n :])
    for to, job in pairwise(reversed(pipeline.path)):
        tails[job] = max(tails[job], pipeline.link(job, to) + ticks[to] + tails[to])
    return tails
