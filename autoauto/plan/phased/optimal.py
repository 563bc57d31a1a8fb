"""Cut the layers into phases of one device with the fewest cycles, `phased`: the exact optimum [popxl-phased]."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from autoauto.plan.phased.assemble import phased_plan
from autoauto.plan.phased.costs import PhaseCandidates, PhaseCosts, phase_candidates, prepare_phases, single_candidate
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.phased import PhasedOptions, PhasedPlan
from autoauto.records.profile import ModelProfile
from autoauto.records.units import IntArray, format_bytes

_NEVER = 2**62  # for stops that no sequence of phases reaches: more cycles or bytes than any can have


def phased(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> PhasedPlan:
    """The phases that take all steps through all layers in the fewest cycles, on each of equal replicas.

    A phase needs memory for its variables, its program, its peak of temporary memory, and the buffers of loads and
    stores. Io tiles hold one copy of these buffers; they neither compute nor hold anything else. In training every
    phase but the last runs a second time, for its backward pass. The device is assumed to hold the program of the
    current phase only ([popxl-phased] does not say); a compiler that holds all programs there leaves less room.

    Args:
        table: the costs on one device with one micro-batch in flight.
        profile: the same layers, with the bytes that cross every cut.
        cluster: the phases run on its first device; replicas are devices like it.
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


def fits_at_once(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> bool:
    """Whether one phase holds all layers; no other phases take fewer cycles then, since they load and store more.

    Args:
        table, profile, cluster, options: as of `phased`.

    Raises:
        BadInput: as `phased`.
    """
    costs = prepare_phases(table, profile, cluster, options)
    return bool(costs.excess_bytes(single_candidate(table, 0, table.n_layers))[0] <= 0)


def best_cuts(costs: PhaseCosts) -> list[int] | None:
    """The cheapest sequence of phases that fit, as cuts between layers; None when there is none.

    A shortest path over the cuts, with a phase as an edge:

        cost(stop) = min over start of  cost(start) + phase(start, stop)

        0 -----------> 2 ------> 3 --> ... --> n        every stop is reached from the starts whose phase fits
        0 ----> 1 -------------> 3
    """
    cheapest, previous = _initial_values(costs)
    for candidates in phase_candidates(costs.table, costs.compute_limit_bytes):
        fits = costs.excess_bytes(candidates) <= 0
        fitting = PhaseCandidates(*(column[fits] for column in candidates))
        if len(fitting.starts):
            for stop, starts, cycles in _by_stop(fitting, costs.total_cycles(fitting)):
                _keep_minimum(cheapest, previous, stop, starts, cheapest[starts] + cycles)
    return _trace_back(previous) if cheapest[-1] < _NEVER else None


def _minimum_excess_cuts(costs: PhaseCosts) -> list[int]:
    """The cuts that minimise the largest excess of a phase: the recursion of `best_cuts` with a maximum for the sum.

    The minimum is at most the largest excess with a phase for every layer, so larger ranges need not be looked at.
    """
    singles = [single_candidate(costs.table, layer, layer + 1) for layer in range(costs.table.n_layers)]
    allowance = max(int(costs.excess_bytes(single)[0]) for single in singles)
    largest_excess, previous = _initial_values(costs)
    largest_excess[0] = -_NEVER
    for candidates in phase_candidates(costs.table, costs.compute_limit_bytes + allowance):
        for stop, starts, excess in _by_stop(candidates, costs.excess_bytes(candidates)):
            _keep_minimum(largest_excess, previous, stop, starts, np.maximum(largest_excess[starts], excess))
    return _trace_back(previous)


def _initial_values(costs: PhaseCosts) -> tuple[IntArray, IntArray]:
    """By stop: the best value so far, and the start from which it is reached."""
    values = np.full(costs.table.n_layers + 1, _NEVER, dtype=np.int64)
    values[0] = 0
    return values, np.zeros(costs.table.n_layers + 1, dtype=np.int64)


def _by_stop(candidates: PhaseCandidates, values: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Every stop, which ascend, with its starts and their values."""
    firsts = np.flatnonzero(np.diff(candidates.stops, prepend=-1)).tolist()
    for first, end in pairwise((*firsts, len(values))):
        yield int(candidates.stops[first]), candidates.starts[first:end], values[first:end]


def _keep_minimum(values: IntArray, previous: IntArray, stop: int, starts: IntArray, totals: IntArray) -> None:
    """Set the value and the start of a stop to those of the smallest total."""
    best = int(totals.argmin())
    values[stop] = min(int(totals[best]), _NEVER)
    previous[stop] = starts[best]


def _trace_back(previous: IntArray) -> list[int]:
    """The cuts of the best sequence, from its last stop back to 0."""
    cuts = [len(previous) - 1]
    while cuts[-1]:
        cuts.append(int(previous[cuts[-1]]))
    return cuts[::-1]


def _out_of_memory(costs: PhaseCosts) -> Infeasible:
    """The error: `excess_bytes` is what memory must grow by for some plan to fit, `layers` the phase that needs it."""
    phases = [single_candidate(costs.table, *ends) for ends in pairwise(_minimum_excess_cuts(costs))]
    tightest = max(phases, key=lambda phase: int(costs.excess_bytes(phase)[0]))
    excess = int(costs.excess_bytes(tightest)[0])
    layers = LayerRange(int(tightest.starts[0]), int(tightest.stops[0]))
    compute_bytes, io_bytes = (int(n_bytes[0]) for n_bytes in costs.needed_bytes(tightest))
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
