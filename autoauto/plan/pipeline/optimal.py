"""The best plan, `optimal`; or the best plan within a time, with a lower bound of every plan's cost, `anytime`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import NamedTuple

from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, cheap_cuts, probe, search_smallest_bound
from autoauto.plan.pipeline.problem import (
    CutProblem,
    compute_lower_bound,
    compute_upper_bound,
    evaluate,
    largest_block,
    prepare,
    transfer_lower_bound,
)
from autoauto.plan.pipeline.range_plans import best_in_line
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan, Plan


def optimal(table: CostTable) -> Plan:
    """The plan of minimum cost over exactly n_devices non-empty stages, within memory limits and legal cuts.

    The cost is that of `table.period`, by default that of [auto-pipeline, "Considering data transfer time"]: the
    largest compute of a stage plus the largest transfer of a stage. No other plan costs less; several may cost
    the same.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    return anytime(table).plan


def anytime(table: CostTable, seconds: float = float("inf"), rel_gap: float = 0.0) -> BoundedPlan:
    """The best plan within `seconds`, or as soon as no plan can cost less by more than the share `rel_gap` of its cost.

    Stops between two steps of the search, and never before there is a plan. Where any device reaches any other, it
    takes the time that it takes (`best_in_line`). Raises Infeasible if no plan respects the limits; the error says
    which limit and what is missing.
    """
    if table.exchange is not None:
        return best_in_line(table)
    return solve(table, prepare(table), seconds, rel_gap)


def has_plan(table: CostTable) -> bool | None:
    """Whether a plan respects the limits, sooner than the best is known; None where any device reaches any other."""
    if table.exchange is not None:
        return None
    problem = prepare(table)
    return len(problem.blocks) >= problem.n_stages and probe(problem, UNBOUNDED, UNBOUNDED) is not None


def best_or_reason(table: CostTable) -> BoundedPlan | Callable[[], Infeasible]:
    """The plan of `anytime`, or where none fits a function that finds out why: the reason takes longer to find."""
    if table.exchange is None:
        problem = prepare(table)
        return _solve(table, problem) or partial(why_infeasible, table, problem)
    try:
        return best_in_line(table)
    except Infeasible as failure:
        reason = failure
    return lambda: reason


def solve(table: CostTable, problem: CutProblem, seconds: float = float("inf"), rel_gap: float = 0.0) -> BoundedPlan:
    """Solve a prepared table; arguments and result as of `anytime`."""
    best = _solve(table, problem, seconds, rel_gap)
    if best is None:
        raise why_infeasible(table, problem)
    return best


def _solve(
    table: CostTable, problem: CutProblem, seconds: float = float("inf"), rel_gap: float = 0.0
) -> BoundedPlan | None:
    end = monotonic() + seconds
    incumbent = None
    for incumbent in incumbents(problem):
        if monotonic() >= end or incumbent.cost_cycles - incumbent.bound_cycles <= rel_gap * incumbent.cost_cycles:
            break
    if incumbent is None:
        return None
    plan = evaluate(table, problem.partition(incumbent.cuts))
    return BoundedPlan(plan, incumbent.bound_cycles)


class Incumbent(NamedTuple):
    """The best plan so far, its cost, and a lower bound of every plan's cost."""

    cuts: list[int]
    cost_cycles: int
    bound_cycles: int


def incumbents(problem: CutProblem) -> Iterator[Incumbent]:
    """Ever better plans with ever better bounds; the last one is optimal. Nothing when there is no plan."""
    if len(problem.blocks) < problem.n_stages:
        return iter(())
    return _walk(problem) if problem.period is Period.BARRIER else _single_bound(problem)


def _single_bound(problem: CutProblem) -> Iterator[Incumbent]:
    """Without a barrier the cost is one bound on every stage by itself, so a single search finds the optimum."""
    low = max(compute_lower_bound(problem), transfer_lower_bound(problem))
    first = low + largest_block(problem) // 8
    cuts = search_smallest_bound(lambda cost: probe(problem, cost, cost), problem.cost_cycles, low, UNBOUNDED, first)
    if cuts is not None:
        cost = problem.cost_cycles(cuts)
        yield Incumbent(cuts, cost, cost)


def _walk(problem: CutProblem) -> Iterator[Incumbent]:
    """Walk over the trade-off between compute and transfer, from the smallest compute upwards.

        transfer
           |  o               o  plans visited
           |     o            invariant: every plan with compute below `low` costs `cost` or more
           |        o
           |              o
           |_ _ _ _ _ _ _ _ _ _ lowest_transfer
                |
               low -->  compute

    A cheaper plan than the best so far has compute of `low` or more, hence transfer of `cost - low - 1` or less. Each
    round searches the smallest compute for which a plan with such a transfer exists, and then, within that compute, a
    plan with nearly the smallest transfer: a tolerance saves probes, and the next round tries the same compute again.
    Compute rises and `cost` falls until `low + lowest_transfer`, a lower bound of every cheaper plan, meets `cost`.
    """
    low, step = compute_lower_bound(problem), largest_block(problem) // 8
    start = None
    for start in _initial_incumbents(problem, low, step):
        yield start[0]
    if start is None:
        return
    (best, cost, _), lowest_transfer = start
    while low + lowest_transfer < cost:
        cuts = minimum_compute_cuts(problem, cost - low - 1, low, cost - lowest_transfer - 1, low + step)
        if cuts is None:
            break
        compute = problem.compute_cycles(cuts)
        if problem.cost_cycles(cuts) < cost:
            best, cost = cuts, problem.cost_cycles(cuts)
        yield Incumbent(best, cost, min(cost, compute + lowest_transfer))
        within_compute = partial(probe, problem, compute)
        high = cost - compute - 1
        tolerance = max(0, high - lowest_transfer) // 64
        cuts = search_smallest_bound(
            within_compute, problem.transfer_cycles, lowest_transfer, high, high, tolerance=tolerance
        )
        low = compute
        if cuts is None:
            low += 1  # no cheaper plan has this compute
        else:
            best, cost = cuts, problem.cost_cycles(cuts)
        yield Incumbent(best, cost, min(cost, low + lowest_transfer))
    yield Incumbent(best, cost, cost)


def _initial_incumbents(problem: CutProblem, low: int, step: int) -> Iterator[tuple[Incumbent, int]]:
    """A few plans, each with a lower bound of the transfer of any cheaper plan.

    They are found by a bisection over transfer, with nearly the smallest compute for each. The cheaper they are, the
    shorter is the walk. `low` is a lower bound of every plan's compute; compute may exceed the smallest by `step`.
    """
    lowest_transfer = transfer_lower_bound(problem)
    high = compute_upper_bound(problem)
    best = minimum_compute_cuts(problem, UNBOUNDED, low, high, low + step, tolerance=step)
    if best is None:
        return
    cost, first = problem.cost_cycles(best), problem.compute_cycles(best)
    highest_transfer = problem.transfer_cycles(best)
    for _ in range(3):
        yield Incumbent(best, cost, min(cost, low + lowest_transfer)), lowest_transfer
        transfer = (lowest_transfer + highest_transfer) // 2
        cuts = minimum_compute_cuts(problem, transfer, low, cost - lowest_transfer - 1, first + step, tolerance=step)
        if cuts is None:
            lowest_transfer = transfer + 1
        else:
            highest_transfer = problem.transfer_cycles(cuts)
            best = min(best, cuts, key=problem.cost_cycles)
            cost = problem.cost_cycles(best)
    yield Incumbent(best, cost, min(cost, low + lowest_transfer)), lowest_transfer


def minimum_compute_cuts(
    problem: CutProblem, transfer_cycles: int, low: int, high: int, first: int, tolerance: int = 0
) -> list[int] | None:
    """The cuts with the smallest compute in `[low, high]` that transfer in `transfer_cycles` or less.

    The search begins at `first`; compute may exceed the smallest by `tolerance`.
    """
    attempt = partial(probe, problem, transfer_cycles=transfer_cycles, cheap=cheap_cuts(problem, transfer_cycles))
    return search_smallest_bound(
        attempt, problem.compute_cycles, low, high, first, snap=problem.next_compute, tolerance=tolerance
    )
