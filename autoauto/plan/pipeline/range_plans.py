"""The best plans where a stage costs more than its two ends say: `best_in_line`, `best_in_any_order`.

`range_problem.py` says which lines of devices these are, and draws how they are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, block_forms, contract
from autoauto.plan.pipeline.fitting import RangeEnds, SharedUses, bytes_by_ends
from autoauto.plan.pipeline.infeasible import excess_bytes, out_of_memory, too_few_cuts, why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, search_smallest_bound
from autoauto.plan.pipeline.problem import evaluate, prepare, stage_of
from autoauto.plan.pipeline.range_problem import (
    RangeCosts,
    RangeProblem,
    Route,
    StageChoice,
    even_spread,
    steps_between,
    usages,
)
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import RangeMemory
from autoauto.records.costs.profile import PARAMETER
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.units import Amount, BoolArray, IntArray

MAX_BLOCKS = 2_000
"""With more of them, only so many cuts are tried, and the plan has a lower bound (`BoundedPlan`)."""


_NO_RANGE = np.iinfo(np.int64).max  # bytes; more than a device without limit and an allowance have


class GradientCycles(Protocol):
    """Cycles in which a device moves a number of bytes, or each of an array."""

    def __call__(self, n_bytes: Amount, /) -> Amount:
        """The cycles."""


def no_cycles(n_bytes: Amount, /) -> Amount:
    """Nothing is moved, as in inference."""
    return n_bytes * 0


def best_in_line(table: CostTable) -> BoundedPlan:
    """The best plan on all devices in their order; exact for up to `MAX_BLOCKS` legal cuts.

    Raises Infeasible if no plan fits; the error says what is missing.
    """
    coarse = _with_fewer_cuts([table])[0]
    blocks = contract(coarse)
    moved = moved_bytes(coarse, blocks)
    choices: list[StageChoice] = []
    choice_of: dict[tuple[object, ...], int] = {}  # like devices share a choice, and with it the costs of all ranges
    steps = []
    for device in range(table.n_devices):
        # Every range costs the same, transfers included, on devices of equal keys.
        links = table.exchange and (table.exchange.receive_links[device], table.exchange.send_links[device])
        cycles = table.receive_cycles[device].tobytes(), table.send_cycles[device].tobytes()
        key = _own_key(table, device), cycles, links
        if key not in choice_of:
            choice_of[key] = len(choices)
            fits = range_bytes(coarse, device) <= coarse.memory_limit_bytes[device]
            choices.append(StageChoice(device, 1, range_costs(coarse, device, blocks, moved, fits)))
        steps.append((choice_of[key], np.array([device]), np.array([device + 1])))

    bound, n_in_use = _lower_bound([table], table.n_devices), np.arange(table.n_devices + 1)
    searched = RangeProblem(tuple(choices), tuple(steps), n_in_use, (table.n_devices,), table.period, bound)
    route = searched.best()
    if route is None:
        chain = replace(table, exchange=None)  # what fits does not depend on transfers
        raise why_infeasible(chain, prepare(chain))
    plan = evaluate(table, [blocks.cuts[stage.start] for stage in route] + [table.n_layers])
    return BoundedPlan(plan, plan.cost_cycles if coarse is table else bound)


def anywhere(table: CostTable) -> CostTable:
    """The costs of one device that may stand anywhere in a line, of a table of two or more like devices.

    It receives from a neighbour, or from the host if its stage starts at layer 0; likewise it sends. Raises BadInput if
    the devices differ.
    """
    receive, send = table.receive_cycles, table.send_cycles
    alike = len({_own_key(table, device) for device in range(table.n_devices)}) == 1
    # The first device receives from the host, and the last one sends to it; those between have two neighbours.
    if not alike or (receive[1:-1] != receive[1:2]).any() or (send[1:-1] != send[:1]).any():
        raise BadInput("stage replicas and devices in any order need like devices with like links; plan them in a line")
    second, before_last = min(1, table.n_devices - 1), max(0, table.n_devices - 2)
    return replace(
        table.part(second, second + 1),
        receive_cycles=np.concatenate((receive[:1, :1], receive[second : second + 1, 1:]), axis=1),
        send_cycles=np.concatenate((send[before_last : before_last + 1, :-1], send[-1:, -1:]), axis=1),
    )


def best_with_stage_replicas(table: CostTable) -> BoundedPlan:
    """The best plan on at most all devices of a table, which must be alike; several of them may run one stage in turn.

    Raises:
        BadInput: the devices differ.
        Infeasible: no plan fits; the error says what is missing.
    """
    return best_in_any_order([anywhere(table)], [table.n_devices], table.n_devices)


def evaluate_stage_replicas(table: CostTable, plan: Plan) -> Plan:
    """A plan of `best_with_stage_replicas` with the costs of another table of as many like devices."""
    single = anywhere(table)
    stages = []
    for stage in plan.stages:
        evaluated = stage_of(single, 0, *stage.layers)
        stages.append(replace(evaluated, device=stage.device, n_replicas=stage.n_replicas))
    return Plan(tuple(stages), table.period, table.host_cycles)


def best_in_any_order(
    tables: Sequence[CostTable],
    n_devices: Sequence[int],
    max_replicas: int = 1,
    gradient_cycles: GradientCycles = no_cycles,
    n_in_use: int | None = None,
    below_cycles: int = UNBOUNDED,
) -> BoundedPlan:
    """The best plan on at most so many devices of every kind, in any order.

    It is exact for up to `MAX_BLOCKS` legal cuts and up to `MAX_STATES` ways to use so many devices.

    Args:
        tables: of the same layers, each with one device, of one kind: where a stage starts at layer 0, it receives, and
            where it stops after the last layer, it sends over the link to the host.
        n_devices: how many devices there are of each kind; in a plan, those of the first kind are counted first.
        max_replicas: the largest number of devices of a kind that may run one stage in turn.
        gradient_cycles: cycles of the reference clock in which a device moves a number of bytes, or each of an array,
            of the gradients that replicas exchange after every micro-batch of training. Each of m replicas moves
            4 (m - 1) / m times the bytes of its weights [pipedream].
        n_in_use: how many devices of all kinds together the plan uses, at most as many as there are; None is any
            number.
        below_cycles: the plan must cost less.

    Raises:
        BadInput: there are too many kinds of devices.
        Infeasible: no plan fits; the error says what is missing. Beyond `MAX_STATES`, none of those that were tried.
    """
    n_total = sum(n_devices) if n_in_use is None else n_in_use
    ways = []
    for kind, n in enumerate(n_devices):
        ways += [(kind, m) for m in range(1, min(n, max_replicas) + 1)]
    spread = even_spread(n_devices, n_total)
    usage = list(usages(n_devices, n_total, spread))  # fewest devices first: plans use no more than they need
    steps, totals = tuple(steps_between(usage, ways)), np.array([sum(used) for used in usage])
    last_states = np.flatnonzero(totals > 0 if n_in_use is None else totals == n_in_use).tolist()
    bound = _lower_bound(tables, n_total, max_replicas)
    coarse = _with_fewer_cuts(tables)
    blocks = [contract(table) for table in coarse]
    if n_in_use is not None and max_replicas == 1 and (failure := too_few_cuts(blocks[0].cuts, n_in_use)):
        raise failure
    stages = _KindStages(tables, coarse, n_devices, ways, gradient_cycles, blocks)

    def problem_with(allowance_bytes: int) -> RangeProblem:
        choices = tuple(stages.choices(allowance_bytes))
        return RangeProblem(choices, steps, totals, tuple(last_states), tables[0].period, bound)

    route = problem_with(0).best(below_cycles)
    if route is None and below_cycles < UNBOUNDED:
        raise Infeasible(f"no plan costs less than {below_cycles:,} cycles; try a larger bound", 0)
    if route is None:
        raise _why_in_any_order(stages, problem_with, n_total)
    plan = stages.plan_of(route)
    if coarse is not tables:
        return BoundedPlan(plan, bound)
    if spread >= max(n_devices):
        return BoundedPlan(plan, plan.cost_cycles)
    # Some ways to use the devices were left out: a line of devices of any kinds leaves none out, and costs no more.
    relaxed = problem_with(0).of_any_kinds()
    route = relaxed.best()
    assert route is not None  # that of the plan, for one
    return BoundedPlan(plan, relaxed.cost_cycles(route))


def _why_in_any_order(stages: _KindStages, problem_with: Callable[[int], RangeProblem], n_total: int) -> Infeasible:
    """Why there is no plan: what a plan lacks that would fit with the fewest more bytes on every device."""

    def attempt(allowance_bytes: int) -> Plan | None:
        route = problem_with(allowance_bytes).probe(UNBOUNDED, UNBOUNDED)
        return None if route is None else stages.plan_of(route)

    most = max(sum(table.memory_bytes(0, table.n_layers).values()) for table in stages.tables)
    nearest = search_smallest_bound(attempt, excess_bytes, 1, most, most // 64)
    if nearest is None:  # a device with so many more bytes holds all layers
        return Infeasible(f"no stages use {n_total} devices in turn; try fewer devices", 0)
    return out_of_memory(nearest)


@dataclass(frozen=True)
class _KindStages:
    """The stages of devices of several kinds, of which several may run one in turn.

    Attributes:
        tables, n_devices, gradient_cycles: as in `best_in_any_order`.
        coarse: the tables, perhaps with fewer cuts, and `blocks` their blocks.
        ways: in which a stage may run: the kind of its devices, and how many take turns.
    """

    tables: Sequence[CostTable]
    coarse: Sequence[CostTable]
    n_devices: Sequence[int]
    ways: Sequence[tuple[int, int]]
    gradient_cycles: GradientCycles
    blocks: Sequence[Blocks]

    @cached_property
    def _weight_bytes(self) -> IntArray:
        prefix = self.tables[0].memory.exclusive(PARAMETER).stop_bytes[self.blocks[0].cuts]
        n_bytes: IntArray = np.maximum(np.subtract.outer(-prefix, -prefix), 0)
        return n_bytes

    def choices(self, allowance_bytes: int) -> Iterator[StageChoice]:
        """The costs of all ranges in every way, with so many bytes more than the limit of a device."""
        fits = []
        for table in self.coarse:
            fits.append(range_bytes(table, 0) <= int(table.memory_limit_bytes[0]) + allowance_bytes)
        for (kind, m), costs in zip(self.ways, self._costs, strict=True):
            yield StageChoice(kind, m, replace(costs, fits=fits[kind]))

    @cached_property
    def _costs(self) -> list[RangeCosts]:
        moved = moved_bytes(self.coarse[0], self.blocks[0])
        alone = []
        for table, blocks in zip(self.coarse, self.blocks, strict=True):
            alone.append(range_costs(table, 0, blocks, moved, range_bytes(table, 0) < _NO_RANGE))
        costs = []
        for kind, m in self.ways:
            if m == 1:
                costs.append(alone[kind])
            else:
                costs.append(alone[kind].in_turn(m, self._exchanged(m, self._weight_bytes)))
        return costs

    def _exchanged(self, m: int, n_bytes: Amount) -> Amount:
        return self.gradient_cycles(n_bytes * 4 * (m - 1) // m)

    def plan_of(self, route: Route) -> Plan:
        """The plan of a route; in it the devices of the first kind are counted first."""
        free = [sum(self.n_devices[:kind]) for kind in range(len(self.tables))]  # the next free device of every kind
        cuts, stages = self.blocks[0].cuts, []
        for way, start, stop in route:
            kind, m = self.ways[way]
            stage = stage_of(self.tables[kind], 0, cuts[start], cuts[stop])
            backward = stage.backward_cycles
            if m > 1:
                backward += self._exchanged(m, int(self._weight_bytes[start, stop]))
            stages.append(replace(stage, device=free[kind], n_replicas=m, backward_cycles=backward))
            free[kind] += m
        return Plan(tuple(stages), self.tables[0].period, self.tables[0].host_cycles)


def moved_bytes(table: CostTable, blocks: Blocks) -> tuple[IntArray, IntArray] | None:
    """`Exchange.range_bytes`, equal on all devices; None where tensors pass on from neighbour to neighbour."""
    return None if table.exchange is None else table.exchange.range_bytes(blocks.cuts)


def range_costs(
    table: CostTable, device: int, blocks: Blocks, moved: tuple[IntArray, IntArray] | None, fits: BoolArray
) -> RangeCosts:
    """The costs of all ranges on one device, of which some fit."""
    speed = table.speeds[device]
    own = blocks.costs[device]
    own_cycles = own.prefix[None, :] - own.offsets[:, None]
    receive = np.broadcast_to(blocks.receive_rows[device][:, None], own_cycles.shape)
    send = np.broadcast_to(blocks.send_rows[device][None, :], own_cycles.shape)
    if table.exchange is not None and moved is not None:
        received, sent = moved
        receive = receive + table.exchange.receive_links[device].load_cycles(received, table.exchange.clock_hz)
        send = send + table.exchange.send_links[device].load_cycles(sent, table.exchange.clock_hz)
    compute = -(-own_cycles * speed.denominator // speed.numerator)  # as `reference_cycles`, rounded up
    return RangeCosts(compute, receive, send, fits)


def range_bytes(table: CostTable, device: int) -> IntArray:
    """The bytes of every range of blocks on a device, by start and stop.

    Those of its smallest program; more than any limit for what is no range.
    """
    return _range_bytes(table.on(device).memory, table.cut_allowed.tobytes(), table.stash_entries[device])


@lru_cache(maxsize=4)
def _range_bytes(memory: RangeMemory, cut_allowed: bytes, stash_entries: int) -> IntArray:
    """`range_bytes` of a table with these parts: tables with other links, or of fewer devices, have the same."""
    forms = block_forms(memory, cut_allowed)
    n_blocks = len(forms[0].shared_keys)
    n_bytes = np.full((n_blocks + 1, n_blocks + 1), _NO_RANGE)
    ends = RangeEnds(range(1, n_blocks + 1), range(n_blocks))
    for form in forms:
        unshared = form.one_in_flight.plus(stash_entries, form.stash_entry)
        by_ends = bytes_by_ends(unshared, ends) + SharedUses.of(form.shared_keys, form.shared_bytes).by_ends(ends)
        of_form = np.where(ends.are_ranges, by_ends, _NO_RANGE).T
        n_bytes[:-1, 1:] = np.minimum(n_bytes[:-1, 1:], of_form)
    return n_bytes


def _own_key(table: CostTable, device: int) -> tuple[int, Fraction, int, int]:
    """A key that is equal for devices on which every range computes and fits equally."""
    limit_bytes = int(table.memory_limit_bytes[device])
    return id(table.on(device)), table.speeds[device], limit_bytes, table.stash_entries[device]


def _lower_bound(tables: Sequence[CostTable], n_devices: int, max_replicas: int = 1) -> int:
    """A lower bound of any plan's compute: its longest layer, or an equal share of all, on the fastest devices."""
    cycles = []
    for table in tables:
        speed = max(table.speeds)
        for own in table.of_devices or (table,):
            cycles.append(np.diff(own.compute_prefix_cycles) * speed.denominator // speed.numerator)
    fastest = np.min(cycles, axis=0)  # of every layer
    return max(-(-int(fastest.max()) // max_replicas), -(-int(fastest.sum()) // n_devices))


def _with_fewer_cuts(tables: Sequence[CostTable]) -> Sequence[CostTable]:
    """The tables themselves, or with at most `MAX_BLOCKS` legal cuts, at nearly equal shares of all compute."""
    cuts = np.flatnonzero(tables[0].cut_allowed)
    if len(cuts) <= MAX_BLOCKS:
        return tables
    prefix = tables[0].compute_prefix_cycles[cuts]
    some = cuts[np.unique(np.searchsorted(prefix, np.linspace(0, prefix[-1], MAX_BLOCKS)))]
    allowed = np.isin(np.arange(tables[0].n_layers + 1), [0, *some.tolist(), tables[0].n_layers])
    return [replace(table, cut_allowed=allowed) for table in tables]
