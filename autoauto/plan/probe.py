"""Is there a plan whose stages compute in at most C cycles and transfer in at most T? The planner's one question."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from autoauto.plan.blocks import Blocks

UNBOUNDED = 2**62  # more cycles than any plan takes


@dataclass(frozen=True, slots=True)
class Problem:
    """What a probe reads: blocks to divide among P stages, each within the reach of its device's memory.

    Attributes:
        blocks: the blocks and their costs.
        earliest: (P, B + 1) by device and stop: the first start that memory allows, non-decreasing.
    """

    blocks: Blocks
    earliest: list[list[int]]

    @property
    def n_stages(self) -> int:
        """How many stages there must be."""
        return len(self.earliest)

    def compute_cycles(self, cuts: list[int]) -> int:
        """The largest compute of a plan that cuts at these blocks."""
        prefix = self.blocks.compute_prefix_cycles
        return max(prefix[stop] - prefix[start] for start, stop in pairwise(cuts))

    def transfer_cycles(self, cuts: list[int]) -> int:
        """The largest transfer of a plan that cuts at these blocks."""
        receive, send = self.blocks.receive_cycles, self.blocks.send_cycles
        return max(receive[i][start] + send[i][stop] for i, (start, stop) in enumerate(pairwise(cuts)))

    def cost_cycles(self, cuts: list[int]) -> int:
        """What a plan is judged by: both maxima together."""
        return self.compute_cycles(cuts) + self.transfer_cycles(cuts)


def bands(problem: Problem, compute_cycles: int) -> list[tuple[int, int]] | None:
    """Where each of the P + 1 cuts can lie when transfers cost nothing, as (first, last); None when nowhere.

    No cut lies beyond the farthest reach of the stages before it, nor before the earliest start of those after it.
    """
    prefix, n_blocks, n_stages = problem.blocks.compute_prefix_cycles, len(problem.blocks), problem.n_stages
    last = [0]
    for i, earliest in enumerate(problem.earliest):
        reach = bisect_right(prefix, prefix[last[-1]] + compute_cycles) - 1
        reach = min(reach, bisect_right(earliest, last[-1]) - 1, n_blocks - n_stages + i + 1)
        last.append(reach)
    if last[-1] < n_blocks:
        return None
    first = [n_blocks]
    for i in range(n_stages - 1, -1, -1):
        start = bisect_left(prefix, prefix[first[-1]] - compute_cycles)
        first.append(max(start, problem.earliest[i][first[-1]], i))
    first.reverse()
    if any(a > b for a, b in zip(first, last, strict=True)):
        return None
    return list(zip(first, last, strict=True))


def probe(problem: Problem, compute_cycles: int, transfer_cycles: int) -> list[int] | None:
    """The P + 1 cuts of a plan within both bounds, None when there is none.

    `reached[i]` holds every cut at which i stages within the bounds can stop. A stage and its past meet only in the
    choice of its start, so of the starts that compute and memory allow the one that receives fastest is best: a
    sliding-window minimum, O(1) a stop (PLANNER.md, "Probe"). The farthest start would not do: it may receive slowly.
    """
    limits = bands(problem, compute_cycles)
    if limits is None:
        return None
    bounds = _Bounds(compute_cycles, transfer_cycles)
    reached = [[0]]
    for stage, (first, last) in enumerate(limits[1:]):
        stops = _stops(problem, bounds, stage, reached[-1], range(first, last + 1))
        if not stops:
            return None
        reached.append(stops)
    return _trace(problem, bounds, reached)


class _Bounds(NamedTuple):
    compute_cycles: int
    transfer_cycles: int


def _stops(problem: Problem, bounds: _Bounds, stage: int, starts: list[int], candidates: range) -> list[int]:
    """Those candidates at which `stage` can stop when it begins at one of `starts`, both ascending."""
    prefix, earliest = problem.blocks.compute_prefix_cycles, problem.earliest[stage]
    receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
    compute_cycles, transfer_cycles = bounds
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
        needed = prefix[stop] - compute_cycles
        while window and (prefix[window[0]] < needed or window[0] < earliest[stop]):
            window.popleft()
        if window and receive[window[0]] + send[stop] <= transfer_cycles:
            stops.append(stop)
    return stops


def _trace(problem: Problem, bounds: _Bounds, reached: list[list[int]]) -> list[int]:
    """Walk back from the last cut: every stop that was reached has a start within the bounds."""
    prefix = problem.blocks.compute_prefix_cycles
    cuts = [len(problem.blocks)]
    for stage in range(problem.n_stages - 1, -1, -1):
        stop = cuts[-1]
        receive, send = problem.blocks.receive_cycles[stage], problem.blocks.send_cycles[stage]
        first = max(problem.earliest[stage][stop], bisect_left(prefix, prefix[stop] - bounds.compute_cycles))
        starts = reached[stage]
        inside = starts[bisect_left(starts, first) : bisect_left(starts, stop)]
        cuts.append(next(start for start in inside if receive[start] + send[stop] <= bounds.transfer_cycles))
    return cuts[::-1]
