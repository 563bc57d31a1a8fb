"""The k cheapest plans, exactly: the best, then the best of what is left, and so on."""

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

    Lawler's scheme (Management Science 18, 1972) on boxes, the plans whose every cut lies between two ends: the plans
    of a box other than its best fall into at most 2 (P - 1) smaller boxes, none of which holds a cheaper one. A box is
    searched only when that bound makes it the next, and first by the one probe that finds an equally cheap plan.
    """
    order = count()  # settles ties
    queue = [_Entry(0, _Known.BOUND, next(order), problem, [])]
    while queue:
        cost, known, _, box, cuts = heappop(queue)
        if known is _Known.BEST:
            yield cuts
            for smaller in _others(box, cuts):
                heappush(queue, _Entry(cost, _Known.NEIGHBOUR, next(order), smaller, cuts))
        elif known is _Known.NEIGHBOUR:
            equal = probe(box, box.compute_cycles(cuts), box.transfer_cycles(cuts))
            entry = (_Known.BOUND, next(order), box, []) if equal is None else (_Known.BEST, next(order), box, equal)
            heappush(queue, _Entry(cost, *entry))
        else:
            best = _cheapest(box, cost)
            if best is not None:
                heappush(queue, _Entry(best.cost_cycles, _Known.BEST, next(order), box, best.cuts))


class _Known(IntEnum):
    """What is known of a box: its best plan, a plan next to it that costs the bound, or the bound alone."""

    BEST = 0
    NEIGHBOUR = 1
    BOUND = 2


class _Entry(NamedTuple):
    cost_cycles: int
    known: _Known
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


def _others(box: Problem, cuts: list[int]) -> Iterator[Problem]:
    """Boxes of all plans of the box except `cuts`: equal up to some cut, which lies before or after."""
    for i, ((first, last), cut) in enumerate(zip(box.within, cuts, strict=True)):
        for ends in ((first, cut - 1), (cut + 1, last)):
            if ends[0] <= ends[1]:
                same = [(cut, cut) for cut in cuts[:i]]
                yield replace(box, within=[*same, ends, *box.within[i + 1 :]])
