"""Is there a plan whose stages compute in at most C cycles and transfer in at most T? The planner's one question."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from operator import lt

from autoauto.plan.problem import Problem

UNBOUNDED = 2**62  # more cycles than any plan takes


def bands(problem: Problem, own_cycles: list[int]) -> list[tuple[int, int]] | None:
    """Where each of the P + 1 cuts can lie when transfers cost nothing, as (first, last); None when nowhere.

    No cut lies beyond the farthest reach of the stages before it, nor before the earliest start of those after it.
    `own_cycles` is what each device may compute, by its own clock.
    """
    prefix = problem.blocks.compute_prefix_cycles
    reach = 0
    last = [reach]
    for earliest, cycles, (_, bound) in zip(problem.earliest, own_cycles, problem.within[1:], strict=True):
        farthest = bisect_right(prefix, prefix[reach] + cycles) - 1
        reach = min(farthest, bisect_right(earliest, reach) - 1, bound)
        last.append(reach)
    start = len(problem.blocks)
    if reach < start:
        return None
    first = [start]
    for i in range(problem.n_stages - 1, -1, -1):
        nearest = bisect_left(prefix, prefix[start] - own_cycles[i])
        start = max(nearest, problem.earliest[i][start], problem.within[i][0])
        first.append(start)
        if start > last[i]:
            return None
    first.reverse()
    return list(zip(first, last, strict=True))


def probe(problem: Problem, compute_cycles: int, transfer_cycles: int) -> list[int] | None:
    """The P + 1 cuts of a plan within both bounds, None when there is none.

    `reached[i]` holds every cut at which i stages within the bounds can stop. A stage and its past meet only in the
    choice of its start, so of the starts that compute and memory allow the one that receives fastest is best: a
    sliding-window minimum, O(1) a stop (PLANNER.md, "Probe"). The farthest start would not do: it may receive slowly.
    """
    own_cycles = problem.own_cycles(compute_cycles)
    limits = bands(problem, own_cycles)
    if limits is None:
        return None
    farthest = [last for _, last in limits]
    if all(map(lt, farthest, farthest[1:])) and problem.transfer_cycles(farthest) <= transfer_cycles:
        return farthest
    reached = [[0]]
    for stage, limit in enumerate(limits[1:]):
        stops = _stops(problem, stage, own_cycles[stage], transfer_cycles, starts=reached[-1], limit=limit)
        if not stops:
            return None
        reached.append(stops)
    return _trace(problem, own_cycles, transfer_cycles, reached)


def _stops(
    problem: Problem, stage: int, own_cycles: int, transfer_cycles: int, *, starts: list[int], limit: tuple[int, int]
) -> list[int]:
    """Where between both ends of `limit` this stage can stop when it begins at one of `starts`, both ascending."""
    prefix, earliest = problem.blocks.compute_prefix_cycles, problem.earliest[stage]
    receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
    most_receive = transfer_cycles - problem.blocks.least_send_cycles[stage]
    most_send = transfer_cycles - problem.blocks.least_receive_cycles[stage]
    starts = [start for start in starts if receive[start] <= most_receive]
    candidates = [stop for stop in range(limit[0], limit[1] + 1) if send[stop] <= most_send]
    stops = []
    window: deque[int] = deque()  # starts that no later one in the window beats; the first receives fastest
    n_starts, n_seen = len(starts), 0
    for stop in candidates:
        while n_seen < n_starts and starts[n_seen] < stop:
            start = starts[n_seen]
            while window and receive[window[-1]] >= receive[start]:
                window.pop()
            window.append(start)
            n_seen += 1
        needed = prefix[stop] - own_cycles
        while window and (prefix[window[0]] < needed or window[0] < earliest[stop]):
            window.popleft()
        if window and receive[window[0]] + send[stop] <= transfer_cycles:
            stops.append(stop)
    return stops


def _trace(problem: Problem, own_cycles: list[int], transfer_cycles: int, reached: list[list[int]]) -> list[int]:
    """Walk back from the last cut: every stop that was reached has a start within the bounds."""
    prefix = problem.blocks.compute_prefix_cycles
    cuts = [len(problem.blocks)]
    for stage in range(problem.n_stages - 1, -1, -1):
        stop = cuts[-1]
        receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
        first = max(problem.earliest[stage][stop], bisect_left(prefix, prefix[stop] - own_cycles[stage]))
        starts = reached[stage]
        inside = starts[bisect_left(starts, first) : bisect_left(starts, stop)]
        cuts.append(next(start for start in inside if receive[start] + send[stop] <= transfer_cycles))
    return cuts[::-1]
