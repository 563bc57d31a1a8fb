"""A plan that fits where the first and the last stage share a device, `fitting_cuts`: found whenever there is one.

Only the two cuts next to them say what this device needs, so they are tried pair by pair, where the stages between can
lead from one to the other:

    device    0          1      2      3          0
    cut       0    first    .      .        last     B
                     |      what stages 1, 2 and 3 reach from `first`
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.records.costs.memory import device_bytes
from autoauto.records.units import BoolArray, IntArray


def have_ends_together(devices: tuple[int, ...]) -> bool:
    """True if the first and the last stage share a device and every other stage has its own.

    >>> have_ends_together((0, 1, 2, 0)), have_ends_together((0, 1, 1, 0))
    (True, False)
    """
    return len(set(devices)) == len(devices) - 1 and devices[0] == devices[-1]


def fitting_cuts(costs: StageCosts) -> IntArray | None:
    """(S + 1,) the cuts of a plan all of whose devices hold their stages; None where there is none."""
    n_stages, n_blocks = costs.stages.n_stages, len(costs.problem.blocks)
    for first in range(1, n_blocks - n_stages + 2):
        if not costs.fits(0, np.array(0), np.array(first)):
            break  # a longer first stage needs no less memory
        reached = _reached(costs, first)
        lasts = np.flatnonzero(reached[-1])
        lasts = lasts[costs.fits(n_stages - 1, lasts, np.array(n_blocks))]
        for last in lasts[_may_fit(costs, first, lasts)][::-1].tolist():
            cuts = np.zeros(n_stages + 1, dtype=np.int64)
            cuts[1], cuts[-2:] = first, (last, n_blocks)
            if costs.excess_bytes(0, cuts) <= 0:
                return _traced(costs, cuts, reached)
    return None


def _reached(costs: StageCosts, first: int) -> list[BoolArray]:
    """Which cuts the stages after the first can reach from its stop, one after the other."""
    here: BoolArray = np.arange(len(costs.problem.blocks) + 1) == first
    reached = [here]
    for stage in range(1, costs.stages.n_stages - 1):
        # Every start reaches the cuts from start + 1 up to its latest stop: count the intervals that hold each cut.
        starts = np.flatnonzero(reached[-1])
        opened = np.zeros(len(here) + 1, dtype=np.int64)
        np.add.at(opened, starts + 1, 1)
        np.subtract.at(opened, costs.latest[stage][starts] + 1, 1)
        reached.append(np.cumsum(opened)[:-1] > 0)
    return reached


def _may_fit(costs: StageCosts, first: int, lasts: IntArray) -> BoolArray:
    """For each cut, False if the first stage and a last stage from that cut exceed the device, without shared bytes."""
    table, cuts = costs.stages.recomputing or costs.stages.rows, np.array(costs.problem.blocks.cuts)
    memory = table.on(0).memory
    both = memory.stage(np.zeros_like(lasts), int(cuts[first])), memory.stage(cuts[lasts], table.n_layers)
    fits: BoolArray = device_bytes(both, costs.stages.in_flight[0]) <= int(table.memory_limit_bytes[0])
    return fits


def _traced(costs: StageCosts, cuts: IntArray, reached: list[BoolArray]) -> IntArray:
    """The cuts with those between the second and the last but one, from the last back."""
    for stage in range(len(cuts) - 3, 0, -1):
        stop = cuts[stage + 1]
        starts = np.flatnonzero(reached[stage - 1])
        cuts[stage] = starts[(starts < stop) & (costs.latest[stage][starts] >= stop)][-1]
    assert all(start < stop for start, stop in pairwise(cuts.tolist()))
    return cuts
