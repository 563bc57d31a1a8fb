"""Which rows of which buffers phases share, and the rows through which one phase hands on to the next (seed 002)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from autoauto.plan.phased.costs import Pass, PhaseCosts, Ranges, one_range
from autoauto.records.layers import LayerRange
from autoauto.records.phased import BufferLayout, BufferRow, Phase, PhasedPlan, PhaseKind
from autoauto.records.profile import ModelProfile

# forward    x[0]      x[1]      x[2]
#        P0 ------> P1 -----> P2 -----> P3     the last phase only reads x, and writes dx
# backward  <------    <-----    <-----
#           dx[0]     dx[1]     dx[2]          the first phase only reads dx


class GraphRow(NamedTuple):
    """Which program a phase runs, and which of its phases it is."""

    graph: int
    row: int


def number_graphs(identities: Iterable[Hashable]) -> list[GraphRow]:
    """Phases of equal identity share a graph; graphs are numbered as they appear, rows within each.

    >>> [tuple(found) for found in number_graphs(["in", "fc", "fc", "out"])]
    [(0, 0), (1, 0), (1, 1), (2, 0)]
    """
    graphs: dict[Hashable, int] = {}
    rows: Counter[int] = Counter()
    found = []
    for identity in identities:
        graph = graphs.setdefault(identity, len(graphs))
        found.append(GraphRow(graph, rows[graph]))
        rows[graph] += 1
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """One row for every item, in as few buffers as their sizes allow.

    Attributes:
        rows: the row of every item, in order.
        buffers: a buffer for every different size.
    """

    rows: tuple[BufferRow, ...]
    buffers: tuple[BufferLayout, ...]


NO_ROWS = Rows((), ())


def share_buffers(name: str, keys: Sequence[Hashable], sizes_bytes: Sequence[int], steps: int) -> Rows:
    """Give items of equal key rows of one buffer; the buffer of a single key has the bare name.

    >>> [str(row) for row in share_buffers("x", [8, 8, 8], [8, 8, 8], 4).rows]
    ['x[0]', 'x[1]', 'x[2]']
    >>> [str(row) for row in share_buffers("x", [8, 2, 8], [8, 2, 8], 4).rows]
    ['x0[0]', 'x1[0]', 'x0[1]']
    """
    numbers = number_graphs(keys)
    alone = len({number.graph for number in numbers}) == 1
    rows = tuple(BufferRow(name if alone else f"{name}{number.graph}", number.row) for number in numbers)
    n_rows = Counter(row.buffer for row in rows)
    size = {row.buffer: n_bytes for row, n_bytes in zip(rows, sizes_bytes, strict=True)}
    return Rows(rows, tuple(BufferLayout(buffer, n_rows[buffer], steps, size[buffer]) for buffer in n_rows))


LOAD_BUFFER = "load buffer"
STORE_BUFFER = "store buffer"
HOST = -1  # in place of what crosses a cut


def phased_plan(costs: PhaseCosts, profile: ModelProfile, cuts: Sequence[int]) -> PhasedPlan:
    """The plan whose phases are the ranges between `cuts`; no limit is checked."""
    found = [one_range(costs.table, *ends) for ends in pairwise(cuts)]
    bare = [[_phase(costs, one, made) for made in costs.passes(one)] for one in found]
    widths = _widths(costs, cuts)
    edges = [(HOST, *widths), (*widths, HOST), costs.kept_inputs[cuts[:-1]].tolist()]
    numbers = number_graphs((*edge, *_identity(profile, phases)) for *edge, phases in zip(*edges, bare, strict=True))
    wires = _wire(costs, cuts, widths, [number.graph for number in numbers], [phases[0] for phases in bare])
    numbered = [
        [_wired(phase, number, wires, i) for phase in phases]
        for i, (phases, number) in enumerate(zip(bare, numbers, strict=True))
    ]
    forward = [phases[0] for phases in numbered]
    backward = [phase for phases in reversed(numbered) for phase in phases[1:]]
    return _timed(costs, (*forward, *backward), (*wires.buffers, *_variables(costs, forward)))


def _timed(costs: PhaseCosts, phases: tuple[Phase, ...], buffers: tuple[BufferLayout, ...]) -> PhasedPlan:
    """The plan; what would hold nothing is left out."""
    steps, mode = costs.options.steps, costs.options.effective_mode
    used = tuple(buffer for buffer in buffers if buffer.entry_bytes)
    names = {buffer.name for buffer in used}
    phases = tuple(
        replace(
            phase,
            loads=tuple(row for row in phase.loads if row.buffer in names),
            stores=tuple(row for row in phase.stores if row.buffer in names),
        )
        for phase in phases
    )
    return PhasedPlan(
        phases=phases,
        steps=steps,
        io_mode=mode,
        buffers=used,
        phase_cycles=tuple(phase.cycles(mode, steps) for phase in phases),
        naive_cycles=steps * sum(phase.variable_cycles + phase.step_cycles for phase in phases),
        n_replicas=costs.options.n_replicas,
        warning=costs.options.warning,
    )


def _phase(costs: PhaseCosts, found: Ranges, made: Pass) -> Phase:
    """One pass over one range, not yet numbered and wired."""
    layers = LayerRange(int(found.starts[0]), found.stop)
    load_bytes, store_bytes = int(made.load_bytes[0]), int(made.store_bytes[0])
    buffers = {LOAD_BUFFER: costs.n_buffers * load_bytes, STORE_BUFFER: costs.n_buffers * store_bytes}
    return Phase(
        layers=layers,
        graph=0,
        row=0,
        variable_cycles=int(made.variable_cycles[0]),
        load_cycles=int(made.load_cycles[0]),
        compute_cycles=int(made.compute_cycles[0]),
        store_cycles=int(made.store_cycles[0]),
        memory_bytes=costs.table.memory_bytes(*layers) | buffers,
        limit_bytes=int(costs.table.memory_limit_bytes[0]),
        kind=made.kind,
        variable_bytes=int(found.variable_bytes[0]),
        load_bytes=load_bytes,
        store_bytes=store_bytes,
    )


def _identity(profile: ModelProfile, phases: Sequence[Phase]) -> tuple[object, ...]:
    """Equal for phases over layers of equal kinds and costs: they run the same programs."""
    costs = [
        (
            phase.variable_cycles,
            phase.load_cycles,
            phase.compute_cycles,
            phase.store_cycles,
            *sorted(phase.memory_bytes.items()),
        )
        for phase in phases
    ]
    return (profile.kinds[slice(*phases[0].layers)], *costs)


class _Wires(NamedTuple):
    """Rows by phase: x[i] and dx[i] between phase i and the next, kept[i] from phase i to its backward.

    `inputs_too` tells of every phase whether its backward reads x again.
    """

    x: Rows
    dx: Rows
    kept: Rows
    inputs_too: tuple[bool, ...]

    @property
    def buffers(self) -> tuple[BufferLayout, ...]:
        return (*self.x.buffers, *self.dx.buffers, *self.kept.buffers)


def _widths(costs: PhaseCosts, cuts: Sequence[int]) -> list[int]:
    """What crosses each cut: the larger of what one side stores and the other loads."""
    return [int(max(costs.input_bytes[cut], costs.output_bytes[cut])) for cut in cuts[1:-1]]


def _wire(
    costs: PhaseCosts, cuts: Sequence[int], widths: Sequence[int], graphs: Sequence[int], forward: Sequence[Phase]
) -> _Wires:
    """Rows for what crosses the cuts and for what is kept."""
    steps, inner = costs.options.steps, cuts[1:-1]
    x = share_buffers("x", widths, widths, steps)
    if not costs.training:
        return _Wires(x, NO_ROWS, NO_ROWS, ())
    dx = share_buffers("dx", widths, widths, steps)
    kept = [phase.store_bytes - int(costs.output_bytes[cut]) for phase, cut in zip(forward[:-1], inner, strict=True)]
    inputs_too = tuple(costs.options.recompute or kept > 0 for kept in costs.kept_inputs[cuts[:-1]].tolist())
    return _Wires(x, dx, share_buffers("kept", graphs[:-1], kept, steps), inputs_too)


def _wired(phase: Phase, number: GraphRow, wires: _Wires, index: int) -> Phase:
    """The phase with its place and the rows it moves; the first reads from the host, which has no row."""
    before, after = slice(max(index - 1, 0), index), slice(index, index + 1)
    inputs = wires.x.rows[before]
    if phase.kind is PhaseKind.FORWARD:
        loads, stores = inputs, (*wires.x.rows[after], *wires.kept.rows[after])
    elif phase.kind is PhaseKind.BOTH:
        loads, stores = inputs, wires.dx.rows[before]
    else:
        again = inputs if wires.inputs_too[index] else ()
        loads, stores = (*wires.dx.rows[after], *wires.kept.rows[after], *again), wires.dx.rows[before]
    return replace(phase, graph=number.graph, row=number.row, loads=loads, stores=stores)


def _variables(costs: PhaseCosts, forward: Sequence[Phase]) -> tuple[BufferLayout, ...]:
    """A buffer of variables for every graph; replicas keep one copy among them."""
    shards = [-(-phase.variable_bytes // costs.options.n_replicas) for phase in forward]
    return share_buffers("variables", [phase.graph for phase in forward], shards, 1).buffers
