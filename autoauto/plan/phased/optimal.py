"""Cut the layers into phases of one device: the exact optimum over any number of phases (seed 002)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autoauto.plan.phased.assemble import phased_plan
from autoauto.plan.phased.costs import PhaseCosts, Ranges, one_range, prepare_phases, ranges
from autoauto.records.cost import CostTable, IntArray
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.phased import PhasedOptions, PhasedPlan
from autoauto.records.profile import ModelProfile
from autoauto.records.units import format_bytes

_NEVER = 2**62


def phased(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> PhasedPlan:
    """The phases that take all steps through all layers in the fewest cycles, on each of equal replicas.

    A phase holds its variables, program and peak with the buffers of loads and stores; io tiles hold one copy of the
    buffers, and what they hold and compute is missing on the others. In training every phase but the last comes back
    for its backward pass. Only a phase's own program counts, as if it were loaded with the variables (seed 002 does not
    say); a compiler that keeps all programs on the device leaves less room.

    Args:
        table: the costs on one device with one micro-batch in flight.
        profile: the same layers, which tells what crosses every cut.
        cluster: of which the first device counts; replicas are devices like it.
        options: steps, io mode, replicas.

    Raises:
        BadInput: the cluster cannot run phases, or not so many replicas.
        Infeasible: some layers fit no phase, or the buffers do not fit the streaming memory.
    """
    costs = prepare_phases(table, profile, cluster, options)
    cuts = best_cuts(costs)
    if cuts is None:
        raise _out_of_memory(costs)
    plan = phased_plan(costs, profile, cuts)
    excess = sum(buffer.n_bytes for buffer in plan.buffers) - costs.streaming.capacity_bytes
    if excess > 0:
        raise Infeasible(
            f"the buffers of all {options.steps} steps must fit the streaming memory of "
            f"{format_bytes(costs.streaming.capacity_bytes)}, the fastest phases exceed it by {format_bytes(excess)}; "
            "try fewer steps",
            excess,
        )
    return plan


def best_cuts(costs: PhaseCosts) -> list[int] | None:
    """The cheapest sequence of phases that fit, as cuts between layers; None when there is none.

    The best way to a cut is the best over all last phases that end there, each after the best way to its start.
    """
    cheapest, previous = _empty(costs)
    for candidates in ranges(costs.table, costs.compute_limit_bytes):
        fitting = _only(candidates, costs.excess_bytes(candidates) <= 0)
        totals = cheapest[fitting.starts] + costs.total_cycles(fitting)
        _keep_least(cheapest, previous, fitting, totals)
    return _backwards(previous) if cheapest[-1] < _NEVER else None


def _easiest_cuts(costs: PhaseCosts) -> list[int]:
    """The phases of which the tightest exceeds its memory least: the same recursion on the largest excess.

    It is never more than that of single layers, which bounds how far memory reaches.
    """
    singles = [one_range(costs.table, layer, layer + 1) for layer in range(costs.table.n_layers)]
    allowance = max(int(costs.excess_bytes(single)[0]) for single in singles)
    least, previous = _empty(costs)
    least[0] = -_NEVER
    for candidates in ranges(costs.table, costs.compute_limit_bytes + allowance):
        excess = np.maximum(least[candidates.starts], costs.excess_bytes(candidates))
        _keep_least(least, previous, candidates, excess)
    return _backwards(previous)


def _empty(costs: PhaseCosts) -> tuple[IntArray, IntArray]:
    values = np.full(costs.table.n_layers + 1, _NEVER, dtype=np.int64)
    values[0] = 0
    return values, np.zeros(costs.table.n_layers + 1, dtype=np.int64)


def _only(candidates: Ranges, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ranges:
    starts, stop, base_bytes, variable_bytes = candidates
    return Ranges(starts[chosen], stop, base_bytes[chosen], variable_bytes[chosen])


def _keep_least(values: IntArray, previous: IntArray, candidates: Ranges, totals: IntArray) -> None:
    if len(totals):
        best = int(totals.argmin())
        values[candidates.stop] = min(int(totals[best]), _NEVER)
        previous[candidates.stop] = candidates.starts[best]


def _backwards(previous: IntArray) -> list[int]:
    cuts = [len(previous) - 1]
    while cuts[-1]:
        cuts.append(int(previous[cuts[-1]]))
    return cuts[::-1]


def _out_of_memory(costs: PhaseCosts) -> Infeasible:
    """`excess_bytes` is the least that would have to be held more for some plan, `layers` the phase that needs it."""
    found = [one_range(costs.table, *ends) for ends in pairwise(_easiest_cuts(costs))]
    tightest = max(found, key=lambda single: int(costs.excess_bytes(single)[0]))
    excess = int(costs.excess_bytes(tightest)[0])
    layers = LayerRange(int(tightest.starts[0]), tightest.stop)
    io_bytes, compute_bytes = int(costs.io_bytes(tightest)[0]), int(costs.compute_bytes(tightest)[0])
    if io_bytes - costs.io_limit_bytes == excess:
        need = f"move {format_bytes(io_bytes)} through {costs.options.n_io_tiles} io tiles"
        limit, more = costs.io_limit_bytes, "more io tiles"
    else:
        need, limit = f"need {format_bytes(compute_bytes)} on the compute tiles", costs.compute_limit_bytes
        more = "a larger planning proportion"
    return Infeasible(
        f"every phase must fit the device, but at best one exceeds it by {format_bytes(excess)}: layers {layers} "
        f"{need}, which may fill {format_bytes(limit)}; try a smaller batch size or {more}",
        excess,
        layers,
        costs.table.memory_bytes(*layers),
    )
