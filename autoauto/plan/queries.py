"""Queries of the planner besides the best plan.

`k_best`                 the k cheapest plans, exactly: the best, then the best of all others, and so on
`pareto_front`           the Pareto front of compute, transfer and peak memory
`best_per_device_count`  plans for fewer devices
`replicas`               replicas of a shorter pipeline side by side
`explain`                why a plan costs what it costs: the stages that bind, and what moving a cut costs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby, islice, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.fitting import Fitting
from autoauto.plan.pipeline.infeasible import excess_bytes, why_infeasible
from autoauto.plan.pipeline.optimal import Incumbent, incumbents, minimum_compute_cuts, solve
from autoauto.plan.pipeline.probe import UNBOUNDED, probe, search_smallest_bound
from autoauto.plan.pipeline.problem import (
    CutProblem,
    check_one_in_flight,
    compute_lower_bound,
    compute_upper_bound,
    evaluate,
    largest_block,
    prepare,
    transfer_lower_bound,
)
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import CutMoves, Explanation, Move, Plan, Replicas


def k_best(table: CostTable, k: int) -> list[Plan]:
    """The k cheapest different plans, cheapest first; fewer when there are no more. Plans of equal cost in any order.

    Raises:
        BadInput: k is below 1.
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    if k < 1:
        raise BadInput(f"the number of best plans must be at least 1, got {k}")
    problem = prepare(table)
    plans = [evaluate(table, problem.partition(cuts)) for cuts in islice(ranked(problem), k)]
    if not plans:
        raise why_infeasible(table, problem)
    return plans


def ranked(problem: CutProblem) -> Iterator[list[int]]:
    """The cuts of all plans, cheapest first.

    The scheme of [lawler]. A box has a range for every cut (`CutProblem.cut_limits`) and consists of the plans whose
    cuts all lie in their ranges. Without its best plan it is divided into at most 2 (P - 1) smaller boxes, and none of
    them holds a cheaper plan:

        box                 cut 1 in [1, 6], cut 2 in [4, 9], best plan (3, 7)
        smaller boxes       cut 1 in [1, 2]                  cut 1 in [4, 6]
                            cut 1 = 3, cut 2 in [4, 6]       cut 1 = 3, cut 2 in [8, 9]

    So the cost of the best plan of its parent is a lower bound for a box. The box waits in a queue until this bound is
    the smallest. Then one probe looks for a plan of just that cost, and only if there is none, the box is searched.
    """
    order = count()  # breaks ties
    queue = [_QueueEntry(0, _EntryKind.BOUND, next(order), problem, [])]
    while queue:
        cost, kind, _, box, cuts = heappop(queue)
        if kind is _EntryKind.BEST:
            yield cuts
            for smaller in _boxes_without(box, cuts):
                heappush(queue, _QueueEntry(cost, _EntryKind.PARENT_BEST, next(order), smaller, cuts))
        elif kind is _EntryKind.PARENT_BEST:
            equal = probe(box, *box.bounds(cuts))
            if equal is None:
                heappush(queue, _QueueEntry(cost, _EntryKind.BOUND, next(order), box, []))
            else:
                heappush(queue, _QueueEntry(cost, _EntryKind.BEST, next(order), box, equal))
        else:
            best = _cheapest(box, cost)
            if best is not None:
                heappush(queue, _QueueEntry(best.cost_cycles, _EntryKind.BEST, next(order), box, best.cuts))


class _EntryKind(IntEnum):
    """The knowledge about a box in the queue: its best plan, the best plan of its parent, or only a lower bound."""

    BEST = 0
    PARENT_BEST = 1
    BOUND = 2


class _QueueEntry(NamedTuple):
    cost_cycles: int
    kind: _EntryKind
    order: int
    box: CutProblem
    cuts: list[int]


def _cheapest(box: CutProblem, bound: int) -> Incumbent | None:
    """The cheapest plan of the box, of which none costs less than `bound`; None when it holds none."""
    best = None
    for best in incumbents(box):
        if best.cost_cycles <= bound:
            break
    return best


def _boxes_without(box: CutProblem, cuts: list[int]) -> Iterator[CutProblem]:
    """Disjoint boxes of all plans of the box but `cuts`: equal to `cuts` before cut i, which lies earlier or later."""
    for i, ((first, last), cut) in enumerate(zip(box.cut_limits, cuts, strict=True)):
        same = [(cut, cut) for cut in cuts[:i]]
        for ends in ((first, cut - 1), (cut + 1, last)):
            if ends[0] <= ends[1]:
                yield replace(box, cut_limits=[*same, ends, *box.cut_limits[i + 1 :]])


def pareto_front(table: CostTable) -> Iterator[Plan]:
    """A plan for every point (compute, transfer, peak memory) of the Pareto front, no two for the same point.

    Every plan is final when it is yielded, so a caller may stop after any. First comes the front of compute against
    transfer within the limits, from the smallest compute on; then the points that need less and less memory.

    Where some plan fits without subgraphs for equal layers, none has them; else all stages have: so what a stage needs
    does not depend on a limit. Raises Infeasible if no plan respects the limits; the error says which limit and what is
    missing.
    """
    problem = prepare(replace(table.plain, period=Period.BARRIER))  # compute and transfer are bounded one by one
    if table.memory.outlined is not None and probe(problem, UNBOUNDED, UNBOUNDED) is None:
        table = table.with_memory(lambda memory: memory.outlined or memory)
        problem = prepare(replace(table, period=Period.BARRIER))
    table = table.plain
    min_peak_bytes = 0  # some stage holds the largest block
    for start, stop in pairwise(problem.blocks.cuts):
        on_devices = [own.memory.by_category(start, stop, 0) for own in table.of_devices or (table,)]
        min_peak_bytes = max(min_peak_bytes, min(sum(n_bytes.values()) for n_bytes in on_devices))
    empty = True
    if len(problem.blocks) >= problem.n_stages:
        for point in _points(_Tradeoff(table, problem, min_peak_bytes)):
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
        cap_bytes = max(point.peak_bytes for point in front) - 1
        runs, front = _runs(front, cap_bytes), []
        for i, run in enumerate(runs):
            if run[0].peak_bytes <= cap_bytes:
                front += run
                continue
            # The neighbours of a removed run are within the cap: nothing that replaces it lies beyond them.
            previous = front[-1] if front else None
            following = runs[i + 1][0] if i + 1 < len(runs) else None
            for point in tradeoff.between(cap_bytes, previous, following):
                front.append(point)
                yield point


def _runs(front: list[_FrontPoint], cap_bytes: int) -> list[list[_FrontPoint]]:
    """The front as runs of neighbours that are all within `cap_bytes`, or all beyond it, in turn."""
    return [list(run) for _, run in groupby(front, lambda point: point.peak_bytes <= cap_bytes)]


@dataclass(frozen=True, slots=True)
class _Tradeoff:
    """The points of a front for a memory cap; `min_peak_bytes` is a lower bound of every plan's peak memory."""

    table: CostTable
    problem: CutProblem
    min_peak_bytes: int

    def between(
        self, cap_bytes: int, previous: _FrontPoint | None, following: _FrontPoint | None
    ) -> Iterator[_FrontPoint]:
        """The points within `cap_bytes` with less transfer than `previous` and less compute than `following`."""
        problem = self.capped(cap_bytes)
        low, high = compute_lower_bound(problem), compute_upper_bound(problem)
        transfer = UNBOUNDED
        if previous is not None:
            low, transfer = previous.compute_cycles + 1, previous.transfer_cycles - 1
        if following is not None:
            high = following.compute_cycles - 1
        step = largest_block(problem) // 8
        while True:
            cuts = minimum_compute_cuts(problem, transfer, low, high, low + step)
            if cuts is None:
                return
            point = self.point(problem, cuts)
            yield point
            low, transfer = point.compute_cycles + 1, point.transfer_cycles - 1

    def point(self, problem: CutProblem, cuts: list[int]) -> _FrontPoint:
        """The point with the compute of `cuts`, the smallest transfer for it, and the smallest peak memory for both."""
        compute, high = problem.compute_cycles(cuts), problem.transfer_cycles(cuts) - 1
        low = transfer_lower_bound(problem)
        cuts = search_smallest_bound(partial(probe, problem, compute), problem.transfer_cycles, low, high, high) or cuts
        transfer, peak = problem.transfer_cycles(cuts), self.peak_bytes(cuts)

        def within_both(cap_bytes: int) -> list[int] | None:
            return probe(self.capped(cap_bytes), compute, transfer)

        cuts = search_smallest_bound(within_both, self.peak_bytes, self.min_peak_bytes, peak - 1, peak - 1) or cuts
        return _FrontPoint(compute, transfer, self.peak_bytes(cuts), cuts)

    def capped(self, cap_bytes: int) -> CutProblem:
        limits = [min(limit, cap_bytes) for limit in self.table.memory_limit_bytes.tolist()]
        return replace(self.problem, fitting=Fitting.of_devices(self.problem.blocks, limits))

    def peak_bytes(self, cuts: list[int]) -> int:
        return evaluate(self.table, self.problem.partition(cuts)).peak_memory_bytes


def best_per_device_count(table: CostTable) -> dict[int, Plan | Infeasible]:
    """The best plan on the first n devices, or why there is none, for every n from 1 to n_devices.

    The layers are prepared once for all of them. Raises BadInput if devices stash activations of several micro-batches.
    """
    check_one_in_flight(table, "every number of devices")
    problem = prepare(table)
    return {n_ipu: _outcome(table.part(0, n_ipu), problem.part(0, n_ipu)) for n_ipu in range(1, table.n_devices + 1)}


def _outcome(table: CostTable, problem: CutProblem) -> Plan | Infeasible:
    try:
        return solve(table, problem).plan
    except Infeasible as failure:
        return failure


def replicas(table: CostTable) -> Replicas:
    """Pipelines of equal length, side by side, with the highest throughput together.

    Every length n from 1 to n_devices is tried, with as many replicas as the devices allow: replica r runs the best
    plan of the devices [r n, (r + 1) n) and is left out if none fits. Replicas do not share the links to the host.

    Raises:
        BadInput: devices stash activations of several micro-batches.
        Infeasible: no pipeline of any length fits; of all the errors, the one with the fewest missing bytes.
    """
    check_one_in_flight(table, "replicas")
    problem = prepare(table)
    failures: list[Infeasible] = []
    best, best_rate = None, Fraction(0)
    for n_ipu in range(1, table.n_devices + 1):
        plans, rate = [], Fraction(0)
        for outcome in _pipelines(table, problem, n_ipu):
            if isinstance(outcome, Infeasible):
                failures.append(outcome)
            else:
                plans.append(outcome)
                rate += Fraction(1, max(outcome.cost_cycles, 1))
        if rate > best_rate:
            best, best_rate = Replicas(tuple(plans)), rate
    if best is None:
        # An error without missing bytes comes last: no memory would help against it.
        raise min(failures, key=lambda failure: (failure.excess_bytes == 0, failure.excess_bytes))
    return best


def _pipelines(table: CostTable, problem: CutProblem, n_ipu: int) -> Iterator[Plan | Infeasible]:
    """The best plan, or why there is none, for every group of `n_ipu` neighbours; equal groups are planned once."""
    planned: list[tuple[CutProblem, Plan | Infeasible]] = []
    for first in range(0, table.n_devices - n_ipu + 1, n_ipu):
        part = problem.part(first, first + n_ipu)
        outcome = next((outcome for group, outcome in planned if group == part), None)
        if outcome is None:
            outcome = _outcome(table.part(first, first + n_ipu), part)
            planned.append((part, outcome))
        if isinstance(outcome, Plan):
            stages = [replace(stage, device=stage.device + first) for stage in outcome.stages]
            yield replace(outcome, stages=tuple(stages))
        else:
            yield outcome


def explain(table: CostTable, plan: Plan) -> Explanation:
    """The stages that determine the cost of a plan, and its cost with each cut moved to a neighbouring legal position.

    The plan was made from the costs of `table`, and has one stage a device.
    """
    partition = plan.partition
    legal = np.flatnonzero(table.cut_allowed).tolist()
    spare = [stage.limit_bytes - stage.total_bytes for stage in plan.stages]
    moves = []
    for i in range(1, len(plan.stages)):
        index = legal.index(partition[i])
        earlier = later = None
        if legal[index - 1] > partition[i - 1]:
            earlier = _move(table, partition, i, legal[index - 1])
        if legal[index + 1] < partition[i + 1]:
            later = _move(table, partition, i, legal[index + 1])
        moves.append(CutMoves(partition[i], earlier, later))
    return Explanation(
        compute_stages=plan.compute_bottlenecks,
        transfer_stages=plan.transfer_bottlenecks,
        memory_stage=spare.index(min(spare)),
        spare_bytes=min(spare),
        cuts=tuple(moves),
    )


def _move(table: CostTable, partition: tuple[int, ...], i: int, layer: int) -> Move:
    """The cost with cut `i` before another layer, and the bytes by which a stage then exceeds its device."""
    moved = list(partition)
    moved[i] = layer
    plan = evaluate(table, moved)
    return Move(layer, plan.cost_cycles, max(0, excess_bytes(plan)))
