"""Phases of one device with the fewest cycles, `phased`: the exact optimum [popxl-phased].

`best_cuts` decides where layers are cut, and `phased_plan` leads from cuts to a `PhasedPlan`: phases share programs,
and buffer rows connect them [popxl-phased].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.phased_costs import (
    PassCosts,
    PhaseCandidates,
    PhaseCosts,
    all_cuts,
    phase_candidates,
    prepare_phases,
    single_candidate,
    single_layers,
)
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import BufferLayout, BufferRow, Phase, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.units import FloatArray, IntArray, format_bytes

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


# The rows of the buffers x (activations) and dx (their gradients) between four phases P0 to P3, in training:
#
# forward    x[0]      x[1]      x[2]
#        P0 ------> P1 -----> P2 -----> P3     P3 runs forward and backward in one pass: it reads x[2] and writes dx[2]
# backward  <------    <-----    <-----
#           dx[0]     dx[1]     dx[2]          the backward pass of P0 reads dx[0] and writes no gradient

LOAD_BUFFER = "load buffer"
STORE_BUFFER = "store buffer"
HOST = -1  # the width of an edge to the host, which differs from every number of bytes


class GraphRow(NamedTuple):
    """The number of a phase's graph (its program), and the phase's row among the phases of that graph."""

    graph: int
    row: int


def number_graphs(identities: Iterable[Hashable]) -> list[GraphRow]:
    """Phases of equal identity share a graph; graphs are numbered as they appear, rows within each."""
    graphs: dict[Hashable, int] = {}
    rows: Counter[int] = Counter()
    numbers = []
    for identity in identities:
        graph = graphs.setdefault(identity, len(graphs))
        numbers.append(GraphRow(graph, rows[graph]))
        rows[graph] += 1
    return numbers


class SharedBuffers(NamedTuple):
    """A row for every item, in order, and the buffers that hold the rows (`share_buffers`)."""

    rows: tuple[BufferRow, ...]
    buffers: tuple[BufferLayout, ...]


NO_ROWS = SharedBuffers((), ())


def share_buffers(name: str, keys: Sequence[Hashable], sizes_bytes: Sequence[int], steps: int) -> SharedBuffers:
    """Give items of equal key rows of one buffer; the buffer of a single key has the bare name."""
    alone = len(set(keys)) == 1
    rows = []
    n_rows: Counter[str] = Counter()
    size: dict[str, int] = {}
    for number, n_bytes in zip(number_graphs(keys), sizes_bytes, strict=True):
        buffer = name if alone else f"{name}{number.graph}"
        rows.append(BufferRow(buffer, number.row))
        n_rows[buffer] += 1
        size[buffer] = n_bytes
    layouts = [BufferLayout(buffer, n_rows[buffer], steps, size[buffer]) for buffer in n_rows]
    return SharedBuffers(tuple(rows), tuple(layouts))


def phased_plan(costs: PhaseCosts, profile: ModelProfile, cuts: Sequence[int]) -> PhasedPlan:
    """The plan whose phases are the ranges between `cuts`; no limit is checked.

    First every phase is made alone (`bare`). Phases with equal kinds of layers, costs and bytes at their edges are then
    given one graph, and connected by rows of buffers.
    """
    stashed_bytes = costs.table.memory.stashed_input_bytes[cuts[:-1]].tolist()
    edges = [HOST]
    for cut in cuts[1:-1]:  # the bytes that cross it: the larger of what one side stores and the other loads
        edges.append(int(max(costs.input_bytes[cut], costs.output_bytes[cut])))
    edges.append(HOST)
    bare, identities = [], []
    for index, (start, stop) in enumerate(pairwise(cuts)):
        layers = single_candidate(costs.table, start, stop)
        phases = [_phase(costs, layers, one_pass) for one_pass in costs.passes(layers)]
        bare.append(phases)
        identities.append((edges[index], edges[index + 1], stashed_bytes[index], _identity(profile, phases)))
    numbers = number_graphs(identities)
    graphs = [number.graph for number in numbers]
    connections = _buffer_rows(costs, cuts, edges[1:-1], graphs, [phases[0] for phases in bare])
    forward: list[Phase] = []
    backward: list[Phase] = []  # from the last range to the first
    for index, (phases, number) in enumerate(zip(bare, numbers, strict=True)):
        first, *others = [_with_rows(phase, number, connections, index) for phase in phases]
        forward.append(first)
        backward = others + backward
    return _timed(costs, forward + backward, connections.buffers + _variables(costs, forward))


def _timed(costs: PhaseCosts, phases: Sequence[Phase], buffers: Sequence[BufferLayout]) -> PhasedPlan:
    """The plan with its cycles; buffers without bytes, and their rows, are left out."""
    steps, mode = costs.options.steps, costs.options.effective_mode
    used = tuple(buffer for buffer in buffers if buffer.entry_bytes)
    names = {buffer.name for buffer in used}
    in_use = []
    for phase in phases:
        loads = tuple(row for row in phase.loads if row.buffer in names)
        stores = tuple(row for row in phase.stores if row.buffer in names)
        in_use.append(replace(phase, loads=loads, stores=stores))
    return PhasedPlan(
        phases=tuple(in_use),
        steps=steps,
        io_mode=mode,
        buffers=used,
        phase_cycles=tuple(phase.cycles(mode, steps) for phase in phases),
        naive_cycles=steps * sum(phase.variable_cycles + phase.step_cycles for phase in phases),
        n_replicas=costs.options.n_replicas,
        warning=costs.options.warning,
    )


def _phase(costs: PhaseCosts, candidate: PhaseCandidates, one_pass: PassCosts) -> Phase:
    """One pass over one range, without its graph and its rows."""
    layers = LayerRange(int(candidate.starts[0]), int(candidate.stops[0]))
    load_bytes, store_bytes = int(one_pass.load_bytes[0]), int(one_pass.store_bytes[0])
    buffers = {LOAD_BUFFER: costs.n_buffers * load_bytes, STORE_BUFFER: costs.n_buffers * store_bytes}
    variable_cycles = costs.variable_cycles(candidate.variable_bytes, costs.options.n_replicas)
    return Phase(
        layers=layers,
        graph=0,
        row=0,
        variable_cycles=one_pass.n_variable_moves * int(variable_cycles[0]),
        load_cycles=int(one_pass.load_cycles[0]),
        compute_cycles=int(one_pass.compute_cycles[0]),
        store_cycles=int(one_pass.store_cycles[0]),
        memory_bytes=costs.table.memory_bytes(*layers) | buffers,
        limit_bytes=int(costs.table.memory_limit_bytes[0]),
        kind=one_pass.kind,
        variable_bytes=int(candidate.variable_bytes[0]),
        load_bytes=load_bytes,
        store_bytes=store_bytes,
    )


def _identity(profile: ModelProfile, phases: Sequence[Phase]) -> tuple[object, ...]:
    """A key of a range: ranges of equal keys have equal kinds of layers and equal costs, and can run one program."""
    key: list[object] = [profile.kinds[slice(*phases[0].layers)]]
    for phase in phases:
        key += (phase.variable_cycles, phase.load_cycles, phase.compute_cycles, phase.store_cycles)
        key.append(tuple(sorted(phase.memory_bytes.items())))
    return tuple(key)


class _BufferRows(NamedTuple):
    """The rows that connect phases.

    Attributes:
        x: row i has the activations from phase i to phase i + 1.
        dx: row i has the gradients from phase i + 1 back to phase i.
        stash: row i has the activations that phase i stores for its backward pass; the buffers are named "kept".
        reads_inputs_again: by phase, True if the backward pass loads the inputs x again.
    """

    x: SharedBuffers
    dx: SharedBuffers
    stash: SharedBuffers
    reads_inputs_again: tuple[bool, ...]

    @property
    def buffers(self) -> tuple[BufferLayout, ...]:
        return self.x.buffers + self.dx.buffers + self.stash.buffers


def _buffer_rows(
    costs: PhaseCosts, cuts: Sequence[int], widths: Sequence[int], graphs: Sequence[int], forward: Sequence[Phase]
) -> _BufferRows:
    steps = costs.options.steps
    x = share_buffers("x", widths, widths, steps)
    if not costs.training:
        return _BufferRows(x, NO_ROWS, NO_ROWS, ())
    dx = share_buffers("dx", widths, widths, steps)
    # A phase stores its outputs and its stash; the last phase stores no stash, since it runs backward at once.
    stashed = []
    for phase, cut in zip(forward[:-1], cuts[1:-1], strict=True):
        stashed.append(phase.store_bytes - int(costs.output_bytes[cut]))
    stashed_input_bytes = costs.table.memory.stashed_input_bytes[cuts[:-1]].tolist()
    again = tuple(costs.options.recompute or n_bytes > 0 for n_bytes in stashed_input_bytes)
    return _BufferRows(x, dx, share_buffers("kept", graphs[:-1], stashed, steps), again)


def _with_rows(phase: Phase, number: GraphRow, rows: _BufferRows, index: int) -> Phase:
    """The phase with its graph and its rows; the first phase reads from the host, which has no row."""
    before, after = slice(max(index - 1, 0), index), slice(index, index + 1)
    inputs = rows.x.rows[before]
    if phase.kind is PhaseKind.FORWARD:
        loads, stores = inputs, rows.x.rows[after] + rows.stash.rows[after]
    elif phase.kind is PhaseKind.BOTH:
        loads, stores = inputs, rows.dx.rows[before]
    else:
        loads, stores = rows.dx.rows[after] + rows.stash.rows[after], rows.dx.rows[before]
        if rows.reads_inputs_again[index]:  # to recompute, or as a part of the stash that phases before have stored
            loads += inputs
    return replace(phase, graph=number.graph, row=number.row, loads=loads, stores=stores)


def _variables(costs: PhaseCosts, forward: Sequence[Phase]) -> tuple[BufferLayout, ...]:
    """A buffer of variables for every graph; all replicas together store one copy."""
    shards = [-(-phase.variable_bytes // costs.options.n_replicas) for phase in forward]
    return share_buffers("variables", [phase.graph for phase in forward], shards, 1).buffers


def phased(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> PhasedPlan:
    """The phases that take all steps through all layers in the fewest cycles, on each of equal replicas.

    A phase needs memory for its variables, its program, its peak of temporary memory, and the buffers of loads and
    stores. Io tiles hold one copy of these buffers; they neither compute nor hold anything else. In training every
    phase but the last runs a second time, for its backward pass. The device is assumed to hold the program of the
    current phase only ([popxl-phased] does not say); a compiler that holds all programs there leaves less room.

    Args:
        table: the costs on one device with one micro-batch in flight.
        cluster: the phases run on its first device; replicas are devices like it.

    Raises:
        BadInput: the cluster cannot run phases, or not so many replicas.
        Infeasible: some layers fit no phase, or the buffers do not fit the streaming memory.
    """
    (plan,) = phased_by_replicas(table, profile, cluster, options, [options.n_replicas])
    if isinstance(plan, Infeasible):
        raise plan
    return plan


def phased_by_replicas(
    table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions, counts: Sequence[int]
) -> list[PhasedPlan | Infeasible]:
    """The phases of `phased`, or why there are none, for several numbers of replicas.

    The number of replicas changes the cost of variables only, so everything else is computed once. `counts` stand in
    place of the number in `options`. Raises BadInput as `phased`.
    """
    costs = [prepare_phases(table, profile, cluster, replace(options, n_replicas=n)) for n in counts]
    paths = best_cuts(costs[0], counts)
    if paths is None:
        return [_out_of_memory(costs[0])] * len(counts)
    capacity_bytes = costs[0].streaming.capacity_bytes
    outcomes: list[PhasedPlan | Infeasible] = []
    for each, cuts in zip(costs, paths, strict=True):
        plan = phased_plan(each, profile, cuts)
        excess = sum(buffer.n_bytes for buffer in plan.buffers) - capacity_bytes
        if excess <= 0:
            outcomes.append(plan)
            continue
        failure = Infeasible(
            f"the buffers of all {options.steps} steps must fit the streaming memory of "
            f"{format_bytes(capacity_bytes)}, the fastest phases exceed it by {format_bytes(excess)}; try fewer steps",
            excess,
        )
        outcomes.append(failure)
    return outcomes


def fits_at_once(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> bool:
    """True if one phase holds all layers. One phase is the best plan, since more phases load and store more.

    Raises BadInput as `phased`.
    """
    costs = prepare_phases(table, profile, cluster, options)
    return bool(costs.excess_bytes(single_candidate(table, 0, table.n_layers))[0] <= 0)


def may_fit(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> bool:
    """False if some layer fits no phase alone, so that no phases fit. The check is quick.

    Raises BadInput as `phased`.
    """
    return each_fits_alone(prepare_phases(table, profile, cluster, options).earliest_starts())


def _out_of_memory(costs: PhaseCosts) -> Infeasible:
    """The error: memory must grow by `excess_bytes` for some plan to fit; `layers` are the phase that needs them."""
    phases = [single_candidate(costs.table, *ends) for ends in pairwise(minimum_excess_cuts(costs))]
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
