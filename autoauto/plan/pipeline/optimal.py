"""The best plan there is, exactly; or the best so far, with proof of how much better any other could be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import monotonic
from typing import NamedTuple

from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.infeasible import why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, cheap_cuts, least, probe
from autoauto.plan.pipeline.problem import Problem, largest_block, least_compute, least_transfer, prepare
from autoauto.records.cost import CostTable
from autoauto.records.plan import Certified, Plan
from autoauto.records.units import reference_cycles


def optimal(table: CostTable) -> Plan:
    """The plan of least cost over exactly n_devices non-empty stages, within memory limits and legal cuts.

    The seed's objective (seed 001, "Considering data transfer time"): the largest compute of a stage plus the largest
    transfer of a stage; with `table.overlap` the larger of the two. No other plan costs less; several may cost the
    same.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    return anytime(table).plan


def anytime(table: CostTable, seconds: float = float("inf"), rel_gap: float = 0.0) -> Certified:
    """The best plan within `seconds`, or as soon as no plan can cost less by more than the share `rel_gap` of its cost.

    Stops between two steps of the search, and never before there is a plan.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    return solve(table, prepare(table), seconds, rel_gap)


def solve(table: CostTable, problem: Problem, seconds: float = float("inf"), rel_gap: float = 0.0) -> Certified:
    """As `anytime`, for a table that is prepared already."""
    end = monotonic() + seconds
    found = None
    for found in incumbents(problem):
        if monotonic() >= end or found.cost_cycles - found.bound_cycles <= rel_gap * found.cost_cycles:
            break
    if found is None:
        raise why_infeasible(table, problem)
    return Certified(evaluate(table, problem.partition(found.cuts)), found.bound_cycles)


class Incumbent(NamedTuple):
    """The best plan so far, what it costs, and what no plan can cost less than."""

    cuts: list[int]
    cost_cycles: int
    bound_cycles: int


def incumbents(problem: Problem) -> Iterator[Incumbent]:
    """Ever better plans with ever better bounds; the last one is optimal. Nothing when there is no plan."""
    if len(problem.blocks) < problem.n_stages:
        return iter(())
    return _one_bound(problem) if problem.overlap else _walk(problem)


def _one_bound(problem: Problem) -> Iterator[Incumbent]:
    """The least bound that compute and transfer both keep, by bisection in one step."""
    low = max(least_compute(problem), least_transfer(problem))
    first = low + largest_block(problem) // 8
    cuts = least(lambda cost: probe(problem, cost, cost), problem.cost_cycles, low, UNBOUNDED, first)
    if cuts is not None:
        cost = problem.cost_cycles(cuts)
        yield Incumbent(cuts, cost, cost)


def _walk(problem: Problem) -> Iterator[Incumbent]:
    """Walk over the trade between compute and transfer, from the least compute upwards (PLANNER.md, "Search").

    No plan with compute below `low` costs less than `cost`. One that costs less must then transfer in at most
    `cost - low - 1`; the least compute at which that can be had is the next stop, and there nearly the least transfer
    is found: what is left below it, the next round finds. Compute rises and `cost` falls until no room is left.
    """
    low, step = least_compute(problem), largest_block(problem) // 8
    scouted = None
    for scouted in _scout(problem, low, step):
        yield scouted.incumbent
    if scouted is None:
        return
    (best, cost, _), lowest_transfer = scouted
    while low + lowest_transfer < cost:
        cuts = _least_compute(problem, cost - low - 1, low, cost - lowest_transfer - 1, low + step)
        if cuts is None:
            break
        compute = problem.compute_cycles(cuts)
        if problem.cost_cycles(cuts) < cost:
            best, cost = cuts, problem.cost_cycles(cuts)
        yield Incumbent(best, cost, min(cost, compute + lowest_transfer))
        within_compute = partial(probe, problem, compute)
        high = cost - compute - 1
        tolerance = max(0, high - lowest_transfer) // 64
        cuts = least(within_compute, problem.transfer_cycles, lowest_transfer, high, high, tolerance=tolerance)
        low = compute
        if cuts is None:
            low += 1
        else:
            best, cost = cuts, problem.cost_cycles(cuts)
        yield Incumbent(best, cost, min(cost, low + lowest_transfer))
    yield Incumbent(best, cost, cost)


class _Scouted(NamedTuple):
    """An incumbent, and the least that any cheaper plan transfers in."""

    incumbent: Incumbent
    lowest_transfer: int


def _scout(problem: Problem, low: int, step: int) -> Iterator[_Scouted]:
    """Plans of nearly the least compute at a few bounds on transfer, by bisection: good ones shorten the walk.

    `low` is what all plans compute in at least; the least compute is found up to `step`.
    """
    lowest_transfer = least_transfer(problem)
    total = reference_cycles(problem.blocks.compute_prefix_cycles[-1], min(problem.speeds))
    best = _least_compute(problem, UNBOUNDED, low, total, low + step, tolerance=step)
    if best is None:
        return
    cost, first = problem.cost_cycles(best), problem.compute_cycles(best)
    highest_transfer = problem.transfer_cycles(best)
    for _ in range(3):
        yield _Scouted(Incumbent(best, cost, min(cost, low + lowest_transfer)), lowest_transfer)
        transfer = (lowest_transfer + highest_transfer) // 2
        cuts = _least_compute(problem, transfer, low, cost - lowest_transfer - 1, first + step, tolerance=step)
        if cuts is None:
            lowest_transfer = transfer + 1
        else:
            highest_transfer = problem.transfer_cycles(cuts)
            best = min(best, cuts, key=problem.cost_cycles)
            cost = problem.cost_cycles(best)
    yield _Scouted(Incumbent(best, cost, min(cost, low + lowest_transfer)), lowest_transfer)


def _least_compute(
    problem: Problem, transfer_cycles: int, low: int, high: int, first: int, tolerance: int = 0
) -> list[int] | None:
    """The plan of least compute in `[low, high]` that transfers in at most `transfer_cycles`, as `least` finds it."""
    attempt = partial(probe, problem, transfer_cycles=transfer_cycles, cheap=cheap_cuts(problem, transfer_cycles))
    return least(attempt, problem.compute_cycles, low, high, first, snap=problem.next_compute, tolerance=tolerance)
