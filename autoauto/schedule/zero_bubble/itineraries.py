"""Itineraries: how a micro-batch travels in a steady state, where each follows the one before after one period.

Such a steady state is a building block [controllable-memory]. Long journeys hold many activations and tolerate delays;
short ones need little memory. An itinerary gives priorities only: the scheduler makes the order legal and tightens its
start and end.

    down 2, turn 1, up 1      F F . .             F stage 0; two units a step down, one unit of rest at the turn,
    (unit: a mean action)         F F . B B       then one unit a step up
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from autoauto.records.schedule import BACKWARD, WEIGHT
from autoauto.schedule.zero_bubble.list_scheduling import NEVER, Priorities
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem


class Itinerary(NamedTuple):
    """How a micro-batch travels, in units of a mean action.

    Attributes:
        down, up: a step to the next and to the previous device; longer where an action and its message take longer.
        turn: the rest of a micro-batch before its gradient sets out.
        inner_turn: the rest of a gradient between the two stages of the last device.
        lag: the rest before a weight gradient.
        window: of the scheduler's rule.
    """

    down: int
    up: int
    turn: int
    inner_turn: int
    lag: int
    window: int


ONE_STAGE_A_DEVICE = (
    Itinerary(2, 1, 0, 0, 3, NEVER),
    Itinerary(6, 1, 2, 0, 1000, NEVER),
    Itinerary(1, 2, 0, 0, 6, NEVER),
    Itinerary(3, 2, 0, 0, 3, 4),
    Itinerary(2, 2, 0, 0, 6, 8),
    Itinerary(1, 5, 3, 0, 6, 8),
    Itinerary(3, 1, 1, 0, 6, NEVER),
    Itinerary(4, 1, 0, 0, 6, 8),
    Itinerary(1, 6, 1, 0, 3, 4),
)
TWO_STAGES_A_DEVICE = (
    Itinerary(1, 5, 1, 0, 6, 8),
    Itinerary(5, 1, 1, 0, 3, NEVER),
    Itinerary(1, 5, 0, 1, 0, 8),
    Itinerary(1, 5, 0, 0, 0, NEVER),
    Itinerary(1, 4, 4, 0, 6, 8),
    Itinerary(3, 2, 2, 0, 0, 6),
    Itinerary(2, 3, 2, 0, 3, 4),
    Itinerary(2, 2, 2, 0, 3, NEVER),
    Itinerary(3, 1, 0, 0, 0, 8),
    Itinerary(2, 1, 4, 0, 0, 6),
    Itinerary(1, 2, 0, 2, 0, 4),
    Itinerary(1, 2, 4, 0, 3, 6),
    Itinerary(2, 1, 3, 0, 3, 6),
    Itinerary(1, 2, 0, 0, 0, 6),
    Itinerary(2, 1, 1, 0, 0, 8),
    Itinerary(2, 1, 0, 0, 6, 4),
    Itinerary(1, 2, 0, 1, 3, 4),
    Itinerary(1, 2, 1, 0, 6, 8),
    Itinerary(1, 1, 0, 0, 3, 4),
    Itinerary(1, 1, 3, 0, 3, 6),
    Itinerary(1, 1, 1, 0, 1000, 4),
    Itinerary(1, 1, 0, 1, 0, 6),
    Itinerary(1, 1, 3, 0, 6, 4),
)
"""A selection from some 600 itineraries that holds the best one, or nearly, for each of 45 pipelines of 4, 6 and 8
devices with different limits, times and links (for one stage a device: from 700, for 36)."""


def itineraries(pipeline: ZeroBubbleProblem) -> Sequence[Itinerary]:
    """The itineraries to try; with two stages a device, first those that just fill the memory.

    Activations occupy a device for about `n_devices * (down + up)` units a micro-batch, of the `3 * limit` that it has.
    """
    if pipeline.n_stages == pipeline.n_devices:
        return ONE_STAGE_A_DEVICE
    fitting = 3 * pipeline.limit / pipeline.n_devices
    return sorted(TWO_STAGES_A_DEVICE, key=lambda itinerary: abs(itinerary.down + itinerary.up - fitting))


def steady_priorities(pipeline: ZeroBubbleProblem, itinerary: Itinerary, unit: float, period: float) -> Priorities:
    """When every action would start if a micro-batch set out every `period` ticks; `unit` is the mean action."""
    n, devices, ticks = pipeline.n_stages, pipeline.devices, pipeline.ticks
    starts = [0.0] * (3 * n)  # of the first action of every job
    for job, to in pairwise(pipeline.path):
        step = devices[to % n] - devices[job % n]
        shortest = ticks[job] + pipeline.link(job, to)
        if step > 0:
            starts[to] = starts[job] + max(shortest, unit * itinerary.down)
        elif step < 0:
            starts[to] = starts[job] + max(shortest, unit * itinerary.up)
        else:
            # On one device: the last forward before its gradient, or the two stages where a V turns.
            rest = 0
            if job == n - 1:
                rest = itinerary.turn
            elif job > n:
                rest = itinerary.inner_turn
            starts[to] = starts[job] + shortest + unit * rest
    for stage in range(n):
        backward = BACKWARD * n + stage
        starts[WEIGHT * n + stage] = starts[backward] + ticks[backward] + itinerary.lag * unit
    return [[start + i * period for i in range(pipeline.n_micro_batches)] for start in starts]
