"""The k cheapest plans, exactly (`k_best`): the best, then the best of all others, and so on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count, islice
from typing import NamedTuple

from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.optimal import Incumbent, incumbents
from autoauto.plan.pipeline.probe import probe
from autoauto.plan.pipeline.problem import Problem, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.plan import Plan


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


def ranked(problem: Problem) -> Iterator[list[int]]:
    """The cuts of all plans, cheapest first.

    The scheme of [lawler]. A box has a range for every cut (`Problem.cut_limits`) and consists of the plans whose cuts
    all lie in their ranges. Without its best plan it is divided into at most 2 (P - 1) smaller boxes, and none of them
    holds a cheaper plan:

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
            entry = (
                (_EntryKind.BOUND, next(order), box, [])
                if equal is None
                else (_EntryKind.BEST, next(order), box, equal)
            )
            heappush(queue, _QueueEntry(cost, *entry))
        else:
            best = _cheapest(box, cost)
            if best is not None:
                heappush(queue, _QueueEntry(best.cost_cycles, _EntryKind.BEST, next(order), box, best.cuts))


class _EntryKind(IntEnum):
    """What is known of a box in the queue: its best plan, the best plan of its parent, or only a lower bound."""

    BEST = 0
    PARENT_BEST = 1
    BOUND = 2


class _QueueEntry(NamedTuple):
    cost_cycles: int
    kind: _EntryKind
    order: int
    box: Problem
    cuts: list[int]


def _cheapest(box: Problem, bound: int) -> Incumbent | None:
    """The cheapest plan of the box, of which none costs less than `bound`; None when it holds none."""
    best = None
    for best in incumbents(box):
        if best.cost_cycles <= bound:
            break
    return best


def _boxes_without(box: Problem, cuts: list[int]) -> Iterator[Problem]:
    """Disjoint boxes of all plans of the box but `cuts`: equal to `cuts` before cut i, which lies earlier or later."""
    for i, ((first, last), cut) in enumerate(zip(box.cut_limits, cuts, strict=True)):
        for ends in ((first, cut - 1), (cut + 1, last)):
            if ends[0] <= ends[1]:
                same = [(cut, cut) for cut in cuts[:i]]
                yield replace(box, cut_limits=[*same, ends, *box.cut_limits[i + 1 :]])
