"""Bisection that makes use of what successes and failures tell."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from operator import lt
from typing import TypeVar

import numpy as np

from autoauto.plan.pipeline.problem import Problem

Found = TypeVar("Found")


def least(
    attempt: Callable[[int], Found | None],
    realised: Callable[[Found], int],
    low: int,
    high: int,
    first: int,
    *,
    snap: Callable[[int], int] = int,
    tolerance: int = 0,
) -> Found | None:
    """What `attempt` finds at the smallest bound of `[low, high]` at which it finds anything; None when nowhere.

    Whoever succeeds at a bound must succeed at every larger one. What is found at a bound may do with less: `realised`
    tells how much, and the search goes on below that. `first` is tried first; while attempts fail, the distance from
    `low` doubles. `snap` raises a bound to the next one that anything can realise: below that nothing changes.
    With a `tolerance` the bound that is found may be too large by as much, but something is found if anything can be.
    """
    best = None
    bound, step = max(low, min(first, high)), max(first - low, 1)
    while low <= high - (0 if best is None else tolerance):
        found = attempt(bound)
        if found is None:
            low, step = snap(bound + 1), 2 * step
        else:
            best, high = found, realised(found) - 1
        bound = (low + high) // 2 if best is not None else min(low + step, high)
    return best


UNBOUNDED = 2**62  # more cycles than any plan takes


def cheap_cuts(problem: Problem, transfer_cycles: int) -> list[list[int]]:
    """Where each of the P + 1 cuts can lie by its own transfers, ascending.

    A device that sends at a cut receives at least what any start receives, one that receives there sends as much as
    any stop (PLANNER.md, "Bands").
    """
    blocks = problem.blocks
    known: dict[tuple[int, ...], list[int]] = {}
    cuts = [[0]]
    for i in range(1, problem.n_stages):
        send, most_send = blocks.send_rows[i - 1], transfer_cycles - blocks.least_receive_cycles[i - 1]
        receive, most_receive = blocks.receive_rows[i], transfer_cycles - blocks.least_send_cycles[i]
        key = id(send), most_send, id(receive), most_receive
        if key not in known:
            known[key] = np.flatnonzero((send <= most_send) & (receive <= most_receive)).tolist()
        cuts.append(known[key])
    return [*cuts, [len(blocks)]]


def bands(problem: Problem, own_cycles: list[int], cuts: list[list[int]]) -> list[list[int]] | None:
    """What is left of `cuts`, where each of the P + 1 cuts can lie; None when one can lie nowhere.

    No cut lies beyond the farthest reach of the stages before it, nor before the earliest start of those after it.
    `own_cycles` is what each device may compute, by its own clock.
    """
    prefix, begun = problem.blocks.compute_prefix_cycles, problem.blocks.start_cycles
    reach = 0
    ends = [1]
    for i, (earliest, cycles) in enumerate(zip(problem.earliest, own_cycles, strict=True), start=1):
        farthest = bisect_right(prefix, begun[reach] + cycles) - 1
        end = bisect_right(cuts[i], min(farthest, bisect_right(earliest, reach) - 1, problem.within[i][1]))
        if end == 0:
            return None
        reach = cuts[i][end - 1]
        ends.append(end)
    start = len(problem.blocks)
    left = [[start]]
    for i in range(problem.n_stages - 1, -1, -1):
        nearest = bisect_left(begun, prefix[start] - own_cycles[i])
        begin = bisect_left(cuts[i], max(nearest, problem.earliest[i][start], problem.within[i][0]))
        if begin >= ends[i]:
            return None
        start = cuts[i][begin]
        left.append(cuts[i][begin : ends[i]])
    return left[::-1]


def probe(
    problem: Problem, compute_cycles: int, transfer_cycles: int, cheap: list[list[int]] | None = None
) -> list[int] | None:
    """The P + 1 cuts of a plan within both bounds, None when there is none; `cheap` are the `cheap_cuts`, if known.

    `reached[i]` holds every cut at which i stages within the bounds can stop. A stage and its past meet only in the
    choice of its start, so of the starts that compute and memory allow the one that receives fastest is best: a
    sliding-window minimum, O(1) a stop (PLANNER.md, "Probe"). The farthest start would not do: it may receive slowly.
    """
    own_cycles = problem.own_cycles(compute_cycles)
    candidates = bands(problem, own_cycles, cheap or cheap_cuts(problem, transfer_cycles))
    if candidates is None:
        return None
    farthest = [cuts[-1] for cuts in candidates]
    if all(map(lt, farthest, farthest[1:])) and problem.transfer_cycles(farthest) <= transfer_cycles:
        return farthest
    reached = [[0]]
    for stage, ends in enumerate(candidates[1:]):
        stops = _stops(problem, stage, own_cycles[stage], transfer_cycles, starts=reached[-1], ends=ends)
        if not stops:
            return None
        reached.append(stops)
    return _trace(problem, own_cycles, transfer_cycles, reached)


def _stops(
    problem: Problem, stage: int, own_cycles: int, transfer_cycles: int, *, starts: list[int], ends: list[int]
) -> list[int]:
    """At which of `ends` this stage can stop when it begins at one of `starts`; all ascending."""
    prefix, begun = problem.blocks.compute_prefix_cycles, problem.blocks.start_cycles
    earliest = problem.earliest[stage]
    receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
    stops = []
    window: deque[int] = deque()  # starts that no later one in the window beats; the first receives fastest
    n_starts, n_seen = len(starts), 0
    for stop in ends:
        while n_seen < n_starts and starts[n_seen] < stop:
            start = starts[n_seen]
            while window and receive[window[-1]] >= receive[start]:
                window.pop()
            window.append(start)
            n_seen += 1
        needed = prefix[stop] - own_cycles
        while window and (begun[window[0]] < needed or window[0] < earliest[stop]):
            window.popleft()
        if window and receive[window[0]] + send[stop] <= transfer_cycles:
            stops.append(stop)
    return stops


def _trace(problem: Problem, own_cycles: list[int], transfer_cycles: int, reached: list[list[int]]) -> list[int]:
    """Walk back from the last cut: every stop that was reached has a start within the bounds."""
    prefix, begun = problem.blocks.compute_prefix_cycles, problem.blocks.start_cycles
    cuts = [len(problem.blocks)]
    for stage in range(problem.n_stages - 1, -1, -1):
        stop = cuts[-1]
        receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
        first = max(problem.earliest[stage][stop], bisect_left(begun, prefix[stop] - own_cycles[stage]))
        starts = reached[stage]
        inside = starts[bisect_left(starts, first) : bisect_left(starts, stop)]
        cuts.append(next(start for start in inside if receive[start] + send[stop] <= transfer_cycles))
    return cuts[::-1]
