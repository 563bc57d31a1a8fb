"""Phases of one device with the fewest cycles, `phased`: the exact optimum [popxl-phased].

Where layers are cut is decided in `phased_cuts.py`. From cuts to a `PhasedPlan`, `phased_plan`: phases share programs,
and buffer rows connect them [popxl-phased].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from autoauto.plan.phased_costs import PassCosts, PhaseCandidates, PhaseCosts, prepare_phases, single_candidate
from autoauto.plan.phased_cuts import best_cuts, each_fits_alone, minimum_excess_cuts
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.profile import ModelProfile
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.layers import LayerRange
from autoauto.records.plans.phased import BufferLayout, BufferRow, Phase, PhasedOptions, PhasedPlan, PhaseKind
from autoauto.records.units import format_bytes

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
    place of the number in `options`.

    Raises:
        BadInput: as `phased`.
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
    """True if one phase holds all layers. One phase is the best plan, since more phases load and store more."""
    costs = prepare_phases(table, profile, cluster, options)
    return bool(costs.excess_bytes(single_candidate(table, 0, table.n_layers))[0] <= 0)


def may_fit(table: CostTable, profile: ModelProfile, cluster: Cluster, options: PhasedOptions) -> bool:
    """False if some layer fits no phase alone, so that no phases fit. The check is quick."""
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
