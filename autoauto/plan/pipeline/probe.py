"""Find a plan within a bound on compute and one on transfer, `probe`; search such bounds, `search_smallest_bound`.

**Probe.** Which cuts can i stages reach, with every stage within both bounds? The stops of one stage are the starts of
the next. For every stop, compute and memory leave a window of starts. Both ends of the window move right with the stop,
so a monotone queue gives the start of the window that receives fastest, in O(1) a stop. Where ranges that fit memory
are not nested (`Fitting`), starts leave the window in any order, but for good: then a heap does, in O(log n).

    starts s that i stages reach    s   s   s   s   s   s
    window for the stop r               [_______]   r   ^ too late: a stage needs a block
                                    ^ too early: compute or memory
    i + 1 stages reach r if  min receive(s) in the window + send(r) <= transfer

The stages before and the stage itself have only the start in common, and every start in the window is reached, so the
start that receives fastest is as good as any. The latest start is not: it may receive slowly.

**Cut ranges.** Compute and memory alone bound every cut: it lies no later than the farthest cut that the stages before
can reach, and no earlier than the first from which the stages after can reach the end. Near the optimum these ranges
have few blocks:

    blocks   0 . . . . . . . . . . . . . . . . . . n
    cut 1            [earliest .. farthest]
    cut 2                            [earliest .. farthest]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from operator import lt
from typing import TypeVar

import numpy as np

from autoauto.plan.pipeline.problem import CutProblem
from autoauto.records.hardware import Period

Solution = TypeVar("Solution")

UNBOUNDED = 2**62  # more cycles than any plan takes


def search_smallest_bound(
    attempt: Callable[[int], Solution | None],
    realised: Callable[[Solution], int],
    low: int,
    high: int,
    first: int,
    *,
    snap: Callable[[int], int] = int,
    tolerance: int = 0,
) -> Solution | None:
    """The solution at the smallest bound in `[low, high]` at which `attempt` finds one; None when there is none.

    An exponential search: it doubles the distance from `low` until the first success, then bisects.

        low   first                                               high
        |--x--|--x------|--x---------------|--o                          x failure, o success
                                           [   ] then bisect here

    Args:
        attempt: finds a solution within a bound, or None; if it succeeds at a bound, it must succeed at larger ones.
        realised: the value of a solution, which is the smallest bound that holds for it; the search continues below.
        snap: raises a bound to the next value that a solution may have, since no bound in between can succeed.
        tolerance: the bound of the result may exceed the smallest one by this much.
    """
    best = None
    bound, step = max(low, min(first, high)), max(first - low, 1)
    while low <= high - (0 if best is None else tolerance):
        solution = attempt(bound)
        if solution is None:
            low, step = snap(bound + 1), 2 * step
        else:
            best, high = solution, realised(solution) - 1
        bound = (low + high) // 2 if best is not None else min(low + step, high)
    return best


def cheap_cuts(problem: CutProblem, transfer_cycles: int) -> list[list[int]]:
    """For each of the P + 1 cuts the positions at which its transfers can be within the bound, ascending.

    The device that sends at a cut also receives elsewhere, which takes it at least its minimum; this is subtracted from
    the bound. The same holds for the sends of the device that receives at the cut. Where devices receive and send at
    the same time, nothing is subtracted.
    """
    blocks = problem.blocks
    lists: dict[tuple[int, ...], list[int]] = {}
    cuts = [[0]]
    for i in range(1, problem.n_stages):
        send, receive = blocks.send_rows[i - 1], blocks.receive_rows[i]
        max_send = max_receive = transfer_cycles
        if problem.period is not Period.DUPLEX:
            max_send -= blocks.min_receive_cycles[i - 1]
            max_receive -= blocks.min_send_cycles[i]
        key = id(send), max_send, id(receive), max_receive  # like devices have the same rows
        if key not in lists:
            lists[key] = np.flatnonzero((send <= max_send) & (receive <= max_receive)).tolist()
        cuts.append(lists[key])
    return [*cuts, [len(blocks)]]


def cut_ranges(problem: CutProblem, own_cycles: list[int], cuts: list[list[int]]) -> list[list[int]] | None:
    """For each of the P + 1 cuts the positions among `cuts` that lie in its range; None when a range is empty.

    The ranges are those of the module's drawing, by compute and memory.

    Args:
        own_cycles: the bound on compute in cycles of every device's own clock.
        cuts: for every cut the positions to choose from, ascending.
    """
    # Forward: the farthest cut that i stages reach, if each is as long as compute and memory allow.
    reach = 0
    ends = [1]
    for i, (fitting, cycles) in enumerate(zip(problem.fitting, own_cycles, strict=True), start=1):
        blocks = problem.blocks.costs[i - 1]
        farthest = bisect_right(blocks.compute_prefix_cycles, blocks.start_offset_cycles[reach] + cycles) - 1
        end = bisect_right(cuts[i], min(farthest, bisect_right(fitting.earliest, reach) - 1, problem.cut_limits[i][1]))
        if end == 0:
            return None
        reach = cuts[i][end - 1]
        ends.append(end)
    # Backward: the first cut from which the stages after it can reach the end, likewise.
    start = len(problem.blocks)
    left = [[start]]
    for i in range(problem.n_stages - 1, -1, -1):
        blocks = problem.blocks.costs[i]
        nearest = bisect_left(blocks.start_offset_cycles, blocks.compute_prefix_cycles[start] - own_cycles[i])
        first = bisect_left(cuts[i], max(nearest, problem.fitting[i].earliest[start], problem.cut_limits[i][0]))
        if first >= ends[i]:
            return None
        start = cuts[i][first]
        left.append(cuts[i][first : ends[i]])
    return left[::-1]


def probe(
    problem: CutProblem, compute_cycles: int, transfer_cycles: int, cheap: list[list[int]] | None = None
) -> list[int] | None:
    """The P + 1 cuts of a plan within both bounds; None when there is none.

    With the period SERIAL or DUPLEX, both bounds are one bound of the cost. `cheap` are the `cheap_cuts` of this bound
    on transfer, where the caller has them. In the code, `reached[i]` has every position at which i stages within the
    bounds can stop.
    """
    own_cycles = problem.own_cycles(compute_cycles)
    candidates = cut_ranges(problem, own_cycles, cheap or cheap_cuts(problem, transfer_cycles))
    if candidates is None:
        return None
    # The farthest cuts are often a plan within the bounds, by luck: to look is much quicker than to search.
    farthest = [cuts[-1] for cuts in candidates]
    increases = all(map(lt, farthest, farthest[1:]))
    if increases and problem.fits(farthest) and problem.loads_within(farthest, transfer_cycles):
        return farthest
    reached = [[0]]
    for stage, ends in enumerate(candidates[1:]):
        stops_of = _stops if problem.fitting[stage].nested else _stops_in_any_order
        stops = stops_of(problem, stage, own_cycles[stage], transfer_cycles, starts=reached[-1], ends=ends)
        if not stops:
            return None
        reached.append(stops)
    return _trace(problem, own_cycles, transfer_cycles, reached)


def _stops(
    problem: CutProblem, stage: int, own_cycles: int, transfer_cycles: int, *, starts: list[int], ends: list[int]
) -> list[int]:
    """The positions among `ends` at which a stage can stop that starts at one of `starts`; all ascending."""
    blocks = problem.blocks.costs[stage]
    prefix, offsets = blocks.compute_prefix_cycles, blocks.start_offset_cycles
    earliest = problem.fitting[stage].earliest
    start_loads, stop_loads = problem.start_loads[stage], problem.stop_loads[stage]
    limit = transfer_cycles * problem.load_scales[stage]
    stops = []
    window: deque[int] = deque()  # ascending by start and by load: the first is the minimum
    n_starts, n_seen = len(starts), 0
    for stop in ends:
        while n_seen < n_starts and starts[n_seen] < stop:
            start = starts[n_seen]
            # An earlier start with no smaller load leaves the window first, so it is never the minimum again.
            while window and start_loads[window[-1]] >= start_loads[start]:
                window.pop()
            window.append(start)
            n_seen += 1
        needed = prefix[stop] - own_cycles
        while window and (offsets[window[0]] < needed or window[0] < earliest[stop]):
            window.popleft()
        if window and start_loads[window[0]] + stop_loads[stop] <= limit:
            stops.append(stop)
    return stops


def _stops_in_any_order(
    problem: CutProblem, stage: int, own_cycles: int, transfer_cycles: int, *, starts: list[int], ends: list[int]
) -> list[int]:
    """As `_stops`, for costs where a range may fit although a shorter one does not."""
    blocks = problem.blocks.costs[stage]
    prefix, offsets = blocks.compute_prefix_cycles, blocks.start_offset_cycles
    latest = problem.fitting[stage].latest
    start_loads, stop_loads = problem.start_loads[stage], problem.stop_loads[stage]
    limit = transfer_cycles * problem.load_scales[stage]
    stops: list[int] = []
    window: list[tuple[int, int]] = []  # a heap of loads and starts: of starts that have left some are still in it
    unseen = deque(starts)
    for stop in ends:
        while unseen and unseen[0] < stop:
            heappush(window, (start_loads[unseen[0]], unseen.popleft()))
        needed = prefix[stop] - own_cycles
        # Only the smallest load is wanted: a start that has left the window is removed when it comes up.
        while window and (offsets[window[0][1]] < needed or latest[window[0][1]] < stop):
            heappop(window)
        if window and window[0][0] + stop_loads[stop] <= limit:
            stops.append(stop)
    return stops


def _trace(problem: CutProblem, own_cycles: list[int], transfer_cycles: int, reached: list[list[int]]) -> list[int]:
    """Walk back from the last cut: every stop in `reached` has a start within the bounds."""
    cuts = [len(problem.blocks)]
    for stage in range(problem.n_stages - 1, -1, -1):
        stop, blocks, latest = cuts[-1], problem.blocks.costs[stage], problem.fitting[stage].latest
        start_loads, stop_loads = problem.start_loads[stage], problem.stop_loads[stage]
        limit = transfer_cycles * problem.load_scales[stage]
        first = bisect_left(blocks.start_offset_cycles, blocks.compute_prefix_cycles[stop] - own_cycles[stage])
        starts = reached[stage]
        for start in starts[bisect_left(starts, first) : bisect_left(starts, stop)]:
            if stop <= latest[start] and start_loads[start] + stop_loads[stop] <= limit:
                cuts.append(start)
                break
    return cuts[::-1]
