"""Where layers are cut into phases: for fewest cycles, `best_cuts`; where none fit, for least excess of memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.phased_costs import PhaseCandidates, PhaseCosts, all_cuts, phase_candidates, single_layers
from autoauto.records.units import FloatArray, IntArray

_NEVER = 2**62  # for stops that no sequence of phases reaches: more cycles or bytes than any can have


def best_cuts(costs: PhaseCosts, counts: Sequence[int]) -> list[list[int]] | None:
    """The cheapest sequence of phases that fit, as cuts between layers; None when there is none.

    There is one for every number of replicas, which decides what fits for none of them. Few cuts are worth a look:
    those where little is stored and loaded give a plan, whose cost bounds that of the best, and only cuts are left
    through which plans may cost less (`cuts_within`).
    """
    earliest = costs.earliest_starts()
    if not each_fits_alone(earliest):
        return None
    first = shortest_paths(costs, counts, cheapest_cuts(costs))
    return shortest_paths(costs, counts, cuts_within(costs, counts, first.cycles, earliest)).cuts


def each_fits_alone(earliest: Sequence[int]) -> bool:
    """Whether every layer fits a phase of its own, buffers left out; `earliest` as `PhaseCosts.earliest_starts`."""
    return all(start < stop for stop, start in enumerate(earliest) if stop)


class ShortestPaths(NamedTuple):
    """Sequences of phases, one for every number of replicas.

    Attributes:
        cycles: of each; `_NEVER` where no sequence fits.
        cuts: between layers; None where no sequence fits.
    """

    cycles: list[int]
    cuts: list[list[int]] | None


def shortest_paths(costs: PhaseCosts, counts: Sequence[int], cuts: IntArray) -> ShortestPaths:
    """The cheapest sequence of phases between some cuts, a shortest path over them with a phase as an edge:

        cost(stop) = min over start of  cost(start) + phase(start, stop)

        0 -----------> 2 ------> 3 --> ... --> n        every stop is reached from the starts whose phase fits
        0 ----> 1 -------------> 3
    """  # fmt: skip
    cheapest, previous = _initial_values(costs, len(counts))
    for candidates in phase_candidates(costs.table, costs.compute_limit_bytes, cuts):
        fits = costs.excess_bytes(candidates) <= 0
        fitting = PhaseCandidates(*(column[fits] for column in candidates))
        if len(fitting.starts):
            for stop, starts, cycles in _by_stop(fitting, costs.total_cycles(fitting, counts)):
                _keep_minimum(cheapest, previous, stop, starts, cheapest[:, starts] + cycles)
    cycles = cheapest[:, -1].tolist()
    return ShortestPaths(cycles, list(map(_trace_back, previous)) if cycles[0] < _NEVER else None)


def cheapest_cuts(costs: PhaseCosts) -> IntArray:
    """The cuts at which least is stored and loaded, about one in eight, and both ends."""
    loads, stores = costs.min_transfer_cycles()
    cycles = (loads + stores)[1:-1]
    if not len(cycles):
        return all_cuts(costs.table)
    inner = 1 + np.flatnonzero(cycles <= np.partition(cycles, len(cycles) // 8)[len(cycles) // 8])
    return np.concatenate(([0], inner, [costs.table.n_layers]))


def cuts_within(
    costs: PhaseCosts, counts: Sequence[int], most_cycles: Sequence[int], earliest: Sequence[int]
) -> IntArray:
    """The cuts through which a plan may cost no more than `most_cycles`, for one of the numbers of replicas.

    A plan computes all layers and loads all variables. Beside that it loads and stores at its cuts, at least what the
    cheapest sequences of ranges do that lead from the first layer to the cut and from there to the last:

        0 -----> . -----> cut ----> . ----> n          every range from its earliest start or a later one
    """
    before, after = _transfer_cycles_to(costs, earliest)
    variables = [costs.min_variable_cycles(n) for n in counts]
    allowed = max(most - fewest for most, fewest in zip(most_cycles, variables, strict=True))
    return np.flatnonzero(before + after + costs.min_compute_cycles() <= allowed)


def _transfer_cycles_to(costs: PhaseCosts, earliest: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """By cut, (n + 1,): cycles to load and store on the cheapest way to it from the first layer, and on to the last."""
    loads, stores = costs.min_transfer_cycles()
    n = costs.table.n_layers
    before, after = np.zeros(n + 1), np.full(n + 1, np.inf)
    after[n] = 0.0
    for stop in range(1, n + 1):
        start = earliest[stop]
        before[stop] = stores[stop] + (before[start:stop] + loads[start:stop]).min()
    for stop in range(n, 0, -1):
        start = earliest[stop]
        after[start:stop] = np.minimum(after[start:stop], loads[start:stop] + stores[stop] + after[stop])
    return before, after


def minimum_excess_cuts(costs: PhaseCosts) -> list[int]:
    """The cuts that minimise the largest excess of a phase: the recursion of `best_cuts` with a maximum for the sum.

    The minimum is at most the largest excess with a phase for every layer, so larger ranges need not be looked at.
    """
    allowance = max(int(costs.excess_bytes(singles).max()) for singles in single_layers(costs.table))
    largest_excess, previous = _initial_values(costs, 1)
    largest_excess[:, 0] = -_NEVER
    limit_bytes = costs.compute_limit_bytes + allowance
    for candidates in phase_candidates(costs.table, limit_bytes, all_cuts(costs.table)):
        for stop, starts, excess in _by_stop(candidates, costs.excess_bytes(candidates)[None]):
            _keep_minimum(largest_excess, previous, stop, starts, np.maximum(largest_excess[:, starts], excess))
    return _trace_back(previous[0])


def _initial_values(costs: PhaseCosts, n_rows: int) -> tuple[IntArray, IntArray]:
    """By stop: the best value so far, and the start from which it is reached; a row for every number of replicas."""
    values = np.full((n_rows, costs.table.n_layers + 1), _NEVER, dtype=np.int64)
    values[:, 0] = 0
    return values, np.zeros_like(values)


def _by_stop(candidates: PhaseCandidates, values: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """By stop, ascending: the starts of the candidates that end there, and their columns of `values`.

    Candidates are sorted by stop; `values` are (n_rows, n_candidates), a row for each number of replicas.
    """
    firsts = np.flatnonzero(np.diff(candidates.stops, prepend=-1)).tolist()
    for first, end in pairwise((*firsts, len(candidates.stops))):
        yield int(candidates.stops[first]), candidates.starts[first:end], values[:, first:end]


def _keep_minimum(values: IntArray, previous: IntArray, stop: int, starts: IntArray, totals: IntArray) -> None:
    values[:, stop] = np.minimum(totals.min(axis=1), _NEVER)
    previous[:, stop] = starts[totals.argmin(axis=1)]


def _trace_back(previous: IntArray) -> list[int]:
    cuts = [len(previous) - 1]
    while cuts[-1]:
        cuts.append(int(previous[cuts[-1]]))
    return cuts[::-1]
