"""The search for a steady state: a group of one to four micro-batches that all others repeat, with a short period.

1. The schedule of a single micro-batch (modulo.py), repeated, is a cyclic order of a group. Micro-batches set out at
   even intervals, or sooner after each other. Sooner, they share the memory at the same time rather than in turn. The
   pace may be the same, and the last one stops earlier:

       even         F . . F . . F . . F . .
       half of it   F . F . F . F . . . . .

2. To shorten the period an action must leave its run on the critical cycle, by going before or after all its other
   actions: a move within the run changes nothing (known from job shop scheduling).

       device 0   .. F1 [B0 W0] F2 [B1 W1] ..        a cycle with runs in brackets, and messages
       device 1   .. [F1 B1] W1 [F2 B2] W2 ..

3. *Simulated annealing* draws such moves. One that makes the period longer is made as well, if by no more than a random
   amount that becomes smaller.
4. *Successive halving.* Where annealing ends is luck, and no group is best everywhere. So every group is annealed for a
   little while, the better ones for longer, and the best for longest.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from random import Random
from typing import NamedTuple

from autoauto.schedule.zero_bubble.cyclic_order import CyclicOrder
from autoauto.schedule.zero_bubble.modulo import ModuloSchedule, modulo_schedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

HOT, COLD = 0.04, 0.004
"""By which share of the period, on average, a move may make it longer, at the beginning and at the end."""

LOOKED_AT = 10
"""Every move that is drawn counts as much as so many starts that are postponed."""

SPAN = 0.9
"""An order is timed from its start if it would stop first with this share of the time of the best group."""


class Effort(NamedTuple):
    """Limits of the search.

    Attributes:
        placements: how many actions of a single micro-batch are placed.
        groups: how many micro-batches are repeated, and at which share of even intervals they set out, to begin with.
        rounds: of successive halving: how many groups are left, and how many starts are postponed for each of them;
            fewer where the pipeline has fewer than 16 stages.
    """

    placements: int
    groups: tuple[tuple[int, float], ...]
    rounds: tuple[tuple[int, int], ...]


FEW = Effort(30_000, (), ())
SOME = Effort(60_000, ((2, 1), (2, 0.5)), ((2, 100_000), (1, 150_000)))
FULL = Effort(
    60_000,
    ((2, 1), (3, 1), (3, 1), (3, 1), (4, 1), (2, 0.5), (4, 0.5)),
    ((7, 120_000), (3, 260_000), (1, 430_000)),
)
"""Where many plans compete; by default; for orders far above the bound."""

TURNS, FEWEST = 2, 16
"""Micro-batches a device that weigh the ends of an order against its period, and the fewest of all."""

STRETCHED = 8
"""A group that sets out at uneven intervals may have a period longer by up to so many 32nds."""


def steady_state(pipeline: ZeroBubbleProblem, random: Random, effort: Effort = FULL) -> ModuloSchedule | None:
    """The group whose repetitions stop first; None if a single micro-batch has no room even with twice the period.

    However many micro-batches there are, it is the one that stops first with `TURNS` a device: all orders repeat the
    same group then, and a longer one is no worse by luck.
    """
    few = min(pipeline.n_micro_batches, max(TURNS * pipeline.n_devices, FEWEST))
    pipeline = replace(pipeline, n_micro_batches=few)
    first = modulo_schedule(pipeline, random, effort.placements)
    if first is None:
        return None
    best = first
    rounds = [(n_groups, n_timed * min(pipeline.n_stages, 16) // 16) for n_groups, n_timed in effort.rounds]
    if rounds:
        best = annealed(pipeline, first, random, rounds[0][1])
        if best.period < first.period:  # other orders of the same period are worse to begin with
            first = best
    groups = [_departing(pipeline, first, size, spacing) for size, spacing in effort.groups]
    for n_groups, n_timed in rounds:
        groups = [annealed(pipeline, group, random, n_timed) for group in groups[:n_groups]]
        groups.sort(key=lambda group: group.stop(pipeline))
        best = min(best, groups[0], key=lambda group: group.stop(pipeline))
    return best


def _departing(pipeline: ZeroBubbleProblem, first: ModuloSchedule, size: int, spacing: float) -> ModuloSchedule:
    """A group of equal micro-batches that set out at a share of even intervals.

    Intervals are even if others need too long a period.
    """
    if spacing < 1:
        for extra in range(STRETCHED):
            group = first.repeated(size, size * first.period * (32 + extra) // 32, int(spacing * first.period))
            if CyclicOrder(pipeline, group).is_timed():
                return group
    return first.repeated(size, size * first.period, first.period)


def annealed(pipeline: ZeroBubbleProblem, schedule: ModuloSchedule, random: Random, n_timed: int) -> ModuloSchedule:
    """The schedule that stops first of those that a search from a schedule passes."""
    order = CyclicOrder(pipeline, schedule)
    if not order.is_timed():
        return schedule
    runs = _runs(order, order.tighten())
    best = order.schedule()
    n_periods, stop = best.n_periods(pipeline), best.stop(pipeline)
    while runs and order.n_timed < n_timed:
        order.n_timed += LOOKED_AT
        # The mean of a random amount by which the period may grow; it falls from HOT to COLD.
        longer = HOT * (COLD / HOT) ** (order.n_timed / n_timed) * order.period
        move = order.move(*_out_of_a_run(runs, random))
        if move is None:
            continue
        if not order.retime(move, order.period + int(-longer * log(1 - random.random()))):
            order.undo(move)
            continue
        runs = _runs(order, order.tighten())
        # To time an order from its start takes long: only those are that are likely to stop first.
        if n_periods * order.period + SPAN * (stop - n_periods * best.period) < stop:
            passed = order.schedule()
            if passed.stop(pipeline) < stop:
                best, stop = passed, passed.stop(pipeline)
    return best


def _runs(order: CyclicOrder, cycle: list[int]) -> list[list[int]]:
    """The runs of two or more actions of a cycle; none if the cycle is on one device, which then has no time left."""
    first = next((i for i, here in enumerate(cycle) if order.after[cycle[i - 1]] != here), None)
    if first is None:
        return []
    runs: list[list[int]] = []
    for here in cycle[first:] + cycle[:first]:  # from the beginning of a run on, so that none is divided
        if runs and order.after[runs[-1][-1]] == here:
            runs[-1].append(here)
        else:
            runs.append([here])
    return [order.between(run[0], run[-1]) for run in runs if len(run) > 1]


def _out_of_a_run(runs: list[list[int]], random: Random) -> tuple[int, int]:
    """Draw an action of a run, and how many others it passes to leave the run; sometimes it passes up to three more."""
    run, further = random.choice(runs), random.choice((0, 0, 0, 1, 2, 3))
    if random.random() < 0.5:
        i = random.randrange(len(run) - 1)
        return run[i], len(run) - 1 - i + further
    i = random.randrange(1, len(run))
    return run[i], -i - further
