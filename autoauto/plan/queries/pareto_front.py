"""The whole trade of compute against transfer against peak memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

from autoauto.plan.pipeline.blocks import earliest_starts_by_device
from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, least, probe
from autoauto.plan.pipeline.problem import Problem, largest_block, least_compute, least_transfer, prepare
from autoauto.records.cost import CostTable
from autoauto.records.plan import Plan
from autoauto.records.units import reference_cycles


def staircase(table: CostTable) -> Iterator[Plan]:
    """One plan for every best (compute, transfer, peak memory): none is as good in all three and better in one.

    All are found in the end, and each is final when it comes, so one may stop at any: first the trade of compute
    against transfer within the limits, from the least compute on, then what less and less memory leaves of it.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    problem = prepare(table)
    least_kept = min(range(table.n_devices), key=problem.blocks.stash_entries.__getitem__)
    fullest = max(sum(table.memory_bytes(*block, least_kept).values()) for block in pairwise(problem.blocks.cuts))
    empty = True
    for step in _steps(_Trade(table, problem, fullest)) if len(problem.blocks) >= problem.n_stages else ():
        empty = False
        yield evaluate(table, problem.partition(step.cuts))
    if empty:
        raise why_infeasible(table, problem)


class _Step(NamedTuple):
    compute_cycles: int
    transfer_cycles: int
    peak_bytes: int
    cuts: list[int]


def _steps(trade: _Trade) -> Iterator[_Step]:
    """Keep the front of compute against transfer up to date while the memory that may be used falls.

    The fullest steps of the front are the first that must go, and in between nothing changes. Whatever takes the place
    of neighbouring ones lies between the steps that stay on either side.
    """
    front: list[_Step] = []
    for step in trade.between(UNBOUNDED, None, None):
        front.append(step)
        yield step
    while front:
        peak = max(step.peak_bytes for step in front)
        runs, front = _runs(front, peak - 1), []
        for i, (stays, run) in enumerate(runs):
            if stays:
                front += run
                continue
            following = runs[i + 1][1][0] if i + 1 < len(runs) else None
            for step in trade.between(peak - 1, front[-1] if front else None, following):
                front.append(step)
                yield step


def _runs(front: list[_Step], cap_bytes: int) -> list[tuple[bool, list[_Step]]]:
    """Neighbours that stay within `cap_bytes`, or do not, in turn."""
    return [(stays, list(run)) for stays, run in groupby(front, lambda step: step.peak_bytes <= cap_bytes)]


@dataclass(frozen=True, slots=True)
class _Trade:
    table: CostTable
    problem: Problem
    least_peak_bytes: int

    def between(self, cap_bytes: int, previous: _Step | None, following: _Step | None) -> Iterator[_Step]:
        """The front within `cap_bytes` of what transfers less than `previous` and computes less than `following`."""
        problem = self.capped(cap_bytes)
        low = previous.compute_cycles + 1 if previous else least_compute(problem)
        whole = problem.blocks.compute_prefix_cycles[-1]
        high = following.compute_cycles - 1 if following else reference_cycles(whole, min(problem.speeds))
        transfer = previous.transfer_cycles - 1 if previous else UNBOUNDED
        while True:
            within_transfer = partial(probe, problem, transfer_cycles=transfer)
            first = low + largest_block(problem) // 8
            cuts = least(within_transfer, problem.compute_cycles, low, high, first, snap=problem.next_compute)
            if cuts is None:
                return
            step = self.step(problem, cuts)
            yield step
            low, transfer = step.compute_cycles + 1, step.transfer_cycles - 1

    def step(self, problem: Problem, cuts: list[int]) -> _Step:
        """The least transfer that goes with the compute of `cuts`, and the least peak memory that goes with both."""
        compute, high = problem.compute_cycles(cuts), problem.transfer_cycles(cuts) - 1
        within_compute = partial(probe, problem, compute)
        cuts = least(within_compute, problem.transfer_cycles, least_transfer(problem), high, high) or cuts
        transfer, peak = problem.transfer_cycles(cuts), self.peak_bytes(cuts)

        def within_both(cap_bytes: int) -> list[int] | None:
            return probe(self.capped(cap_bytes), compute, transfer)

        cuts = least(within_both, self.peak_bytes, self.least_peak_bytes, peak - 1, peak - 1) or cuts
        return _Step(compute, transfer, self.peak_bytes(cuts), cuts)

    def capped(self, cap_bytes: int) -> Problem:
        """The problem with no more than `cap_bytes` on any device."""
        limits = [min(limit, cap_bytes) for limit in self.table.memory_limit_bytes.tolist()]
        return replace(self.problem, earliest=earliest_starts_by_device(self.problem.blocks, limits))

    def peak_bytes(self, cuts: list[int]) -> int:
        """What the fullest device of a plan needs."""
        return evaluate(self.table, self.problem.partition(cuts)).peak_memory_bytes
