"""The Pareto front of compute, transfer and peak memory: `pareto_front`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

from autoauto.plan.pipeline.blocks import earliest_starts_by_device
from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, probe, search_smallest_bound
from autoauto.plan.pipeline.problem import Problem, compute_lower_bound, largest_block, prepare, transfer_lower_bound
from autoauto.records.cost import CostTable
from autoauto.records.hardware import Period
from autoauto.records.plan import Plan
from autoauto.records.units import reference_cycles


def pareto_front(table: CostTable) -> Iterator[Plan]:
    """A plan for every point (compute, transfer, peak memory) of the Pareto front, no two for the same point.

    Every plan is final when it is yielded, so a caller may stop after any. First comes the front of compute against
    transfer within the limits, from the smallest compute on; then the points that need less and less memory.

    Where some plan fits without subgraphs for equal layers, none has them; else all stages have: so what a stage needs
    does not depend on a limit.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    problem = prepare(replace(table.plain, period=Period.BARRIER))  # compute and transfer are bounded one by one
    if table.memory.outlined is not None and probe(problem, UNBOUNDED, UNBOUNDED) is None:
        table = replace(table, memory=table.memory.outlined)
        problem = prepare(replace(table, period=Period.BARRIER))
    table = table.plain
    smallest_stash = min(range(table.n_devices), key=problem.blocks.stash_entries.__getitem__)
    block_bytes = (sum(table.memory_bytes(*block, smallest_stash).values()) for block in pairwise(problem.blocks.cuts))
    min_peak_bytes = max(block_bytes)  # some stage holds the largest block
    empty = True
    for point in _points(_Tradeoff(table, problem, min_peak_bytes)) if len(problem.blocks) >= problem.n_stages else ():
        empty = False
        yield evaluate(table, problem.partition(point.cuts))
    if empty:
        raise why_infeasible(table, problem)


class _FrontPoint(NamedTuple):
    compute_cycles: int
    transfer_cycles: int
    peak_bytes: int
    cuts: list[int]


def _points(tradeoff: _Tradeoff) -> Iterator[_FrontPoint]:
    """All points: the front of compute against transfer within the limits, then within lower and lower memory caps.

    Each cap is one byte below the highest peak of the front, so it removes only the points with this peak. The points
    that replace a run of removed neighbours lie between the points on either side:

        transfer   o                      o remain, x exceed the cap
                       x  x
                             o            new points: less transfer than the left o, less compute than the right o
                                 compute
    """
    front: list[_FrontPoint] = []
    for point in tradeoff.between(UNBOUNDED, None, None):
        front.append(point)
        yield point
    while front:
        peak = max(point.peak_bytes for point in front)
        runs, front = _runs(front, peak - 1), []
        for i, (remains, run) in enumerate(runs):
            if remains:
                front += run
                continue
            following = runs[i + 1][1][0] if i + 1 < len(runs) else None
            for point in tradeoff.between(peak - 1, front[-1] if front else None, following):
                front.append(point)
                yield point


def _runs(front: list[_FrontPoint], cap_bytes: int) -> list[tuple[bool, list[_FrontPoint]]]:
    """The front as runs of neighbours, each with whether all of its points are within `cap_bytes` or none is."""
    return [(within, list(run)) for within, run in groupby(front, lambda point: point.peak_bytes <= cap_bytes)]


@dataclass(frozen=True, slots=True)
class _Tradeoff:
    """The points of a front for a memory cap; `min_peak_bytes` is a lower bound of every plan's peak memory."""

    table: CostTable
    problem: Problem
    min_peak_bytes: int

    def between(
        self, cap_bytes: int, previous: _FrontPoint | None, following: _FrontPoint | None
    ) -> Iterator[_FrontPoint]:
        """The points within `cap_bytes` with less transfer than `previous` and less compute than `following`."""
        problem = self.capped(cap_bytes)
        low = previous.compute_cycles + 1 if previous else compute_lower_bound(problem)
        whole = problem.blocks.compute_prefix_cycles[-1]
        high = following.compute_cycles - 1 if following else reference_cycles(whole, min(problem.speeds))
        transfer = previous.transfer_cycles - 1 if previous else UNBOUNDED
        while True:
            within_transfer = partial(probe, problem, transfer_cycles=transfer)
            first = low + largest_block(problem) // 8
            cuts = search_smallest_bound(
                within_transfer, problem.compute_cycles, low, high, first, snap=problem.next_compute
            )
            if cuts is None:
                return
            point = self.point(problem, cuts)
            yield point
            low, transfer = point.compute_cycles + 1, point.transfer_cycles - 1

    def point(self, problem: Problem, cuts: list[int]) -> _FrontPoint:
        """The point with the compute of `cuts`, the smallest transfer for it, and the smallest peak memory for both."""
        compute, high = problem.compute_cycles(cuts), problem.transfer_cycles(cuts) - 1
        within_compute = partial(probe, problem, compute)
        cuts = (
            search_smallest_bound(within_compute, problem.transfer_cycles, transfer_lower_bound(problem), high, high)
            or cuts
        )
        transfer, peak = problem.transfer_cycles(cuts), self.peak_bytes(cuts)

        def within_both(cap_bytes: int) -> list[int] | None:
            return probe(self.capped(cap_bytes), compute, transfer)

        cuts = search_smallest_bound(within_both, self.peak_bytes, self.min_peak_bytes, peak - 1, peak - 1) or cuts
        return _FrontPoint(compute, transfer, self.peak_bytes(cuts), cuts)

    def capped(self, cap_bytes: int) -> Problem:
        """The problem with no more than `cap_bytes` on any device."""
        limits = [min(limit, cap_bytes) for limit in self.table.memory_limit_bytes.tolist()]
        return replace(self.problem, earliest=earliest_starts_by_device(self.problem.blocks, limits))

    def peak_bytes(self, cuts: list[int]) -> int:
        """Bytes on the fullest device of a plan."""
        return evaluate(self.table, self.problem.partition(cuts)).peak_memory_bytes
