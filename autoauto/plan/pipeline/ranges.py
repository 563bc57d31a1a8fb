"""The best plan by the costs of all ranges, `RangeProblem`, where a line of unlike devices cannot say what they are.

Three things make a stage cost more than its place in the line and its two ends say:

- any device reaches any other, so what a stage sends depends on where it starts, too (`Exchange`);
- devices of several kinds may stand in any order;
- several like devices may run one stage, each every so many micro-batches.

**Probe.** A state is how many devices of every kind are in use. Which blocks can stages within two bounds reach that
use so many? A stage leads from a state to one with more devices, and from a start to a stop:

    fast, slow devices in use    (0, 0) ----> (1, 0) ----> (1, 1)         a stage on a fast one, then on a slow one
    blocks reached                  0       2, 3, 4        7, 8

    reached(state) = the union over the last stage's kind of    reached(state before) x stages within the bounds

The stages within the bounds are a matrix by start and stop, so all states with equally many devices are one product of
matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, repeat
from typing import NamedTuple, Protocol

import numpy as np

from autoauto.plan.pipeline.blocks import Blocks, contract, earliest_starts
from autoauto.plan.pipeline.evaluate import evaluate, stage_of
from autoauto.plan.pipeline.infeasible import excess_bytes, out_of_memory, why_infeasible
from autoauto.plan.pipeline.probe import UNBOUNDED, search_smallest_bound
from autoauto.plan.pipeline.problem import prepare
from autoauto.records.arrays import Amount, BoolArray, IntArray
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.plan import BoundedPlan, Plan
from autoauto.records.profile import PARAMETER

MAX_BLOCKS = 2_000
"""With more of them, only so many cuts are tried, and the plan has a lower bound (`BoundedPlan`)."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeCosts:
    """The cycles of every range of B blocks as a stage on one device; arrays (B + 1, B + 1) by start and stop.

    Attributes:
        compute, receive, send: cycles of the reference clock.
        fits: whether the range is a stage at all, and within the memory of the device.
    """

    compute: IntArray
    receive: IntArray
    send: IntArray
    fits: BoolArray

    def in_turn(self, n_replicas: int, gradient_cycles: IntArray) -> RangeCosts:
        """The cycles of one of several devices a micro-batch, if they take micro-batches in turn; rounded up."""
        if n_replicas == 1:
            return self
        whole = self.compute + gradient_cycles, self.receive, self.send
        compute, receive, send = (-(-part // n_replicas) for part in whole)
        return RangeCosts(compute, receive, send, self.fits)


class StageChoice(NamedTuple):
    """A way to run a stage: on so many devices of a kind, with the costs of each of them."""

    kind: int
    n_replicas: int
    costs: RangeCosts


class RangeStage(NamedTuple):
    """A stage of a plan: which choice it is, and its first and last block."""

    choice: int
    start: int
    stop: int


Route = list[RangeStage]


class GradientCycles(Protocol):
    """Cycles in which a device moves a number of bytes, or each of an array."""

    def __call__(self, n_bytes: Amount, /) -> Amount:
        """The cycles."""


def no_cycles(n_bytes: Amount, /) -> Amount:
    """Nothing is moved, as in inference."""
    return n_bytes * 0


@dataclass(frozen=True, slots=True, eq=False)
class RangeProblem:
    """Blocks to divide among devices whose costs are given for every range.

    Attributes:
        choices: the ways to run a stage.
        steps: the stages that may follow each other: (choice, states before, states after), so that all steps into a
            state come before those out of it. State 0 uses no device.
        n_states: how many states there are.
        last_states: those in which all blocks may be done, the preferred one first.
        period: what the devices do at the same time.
        bound_cycles: a lower bound of any plan's compute.
    """

    choices: tuple[StageChoice, ...]
    steps: tuple[tuple[int, IntArray, IntArray], ...]
    n_states: int
    last_states: tuple[int, ...]
    period: Period
    bound_cycles: int

    @property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return len(self.choices[0].costs.fits) - 1

    def probe(self, compute_cycles: int, transfer_cycles: int) -> Route | None:
        """The stages of a plan within both bounds; None when there is none.

        Without a barrier both are one bound of the cost.
        """
        allowed = [self._within(choice.costs, compute_cycles, transfer_cycles) for choice in self.choices]
        factors = [matrix.astype(np.float32) for matrix in allowed]
        reached = np.zeros((self.n_states, self.n_blocks + 1), dtype=np.bool_)
        reached[0, 0] = True
        for choice, before, after in self.steps:
            rows = reached[before]
            starts = np.flatnonzero(rows.any(axis=0))
            if len(before) == 1:  # one row: the union of matrix rows is quicker than a product
                reached[after[0]] |= allowed[choice][starts].any(axis=0)
            else:
                reached[after] |= rows[:, starts].astype(np.float32) @ factors[choice][starts] > 0
        ends = [state for state in self.last_states if reached[state, -1]]
        return self._trace(reached, allowed, ends[0]) if ends else None

    def _within(self, costs: RangeCosts, compute_cycles: int, transfer_cycles: int) -> BoolArray:
        """Which ranges are stages within both bounds."""
        compute, receive, send = costs.compute, costs.receive, costs.send
        within = costs.fits & (compute <= compute_cycles)
        if self.period is Period.SERIAL:
            return within & (compute + receive + send <= transfer_cycles)
        if self.period is Period.DUPLEX:
            return within & (receive <= transfer_cycles) & (send <= transfer_cycles)
        return within & (receive + send <= transfer_cycles)

    def _trace(self, reached: BoolArray, allowed: Sequence[BoolArray], state: int) -> Route:
        """Walk back from the last state: every block that is reached has a stage that leads to it."""
        into: dict[int, list[tuple[int, int]]] = {}
        for choice, before, after in self.steps:
            for first, second in zip(before.tolist(), after.tolist(), strict=True):
                into.setdefault(second, []).append((choice, first))
        stop, route = self.n_blocks, Route()
        while stop:
            choice, state, start = next(
                (choice, before, int(starts[0]))
                for choice, before in into[state]
                if len(starts := np.flatnonzero(reached[before] & allowed[choice][:, stop]))
            )
            route.append(RangeStage(choice, start, stop))
            stop = start
        return route[::-1]

    def cycles(self, route: Route) -> tuple[list[int], list[int], list[int]]:
        """What every stage computes, receives and sends."""
        costs = [(self.choices[choice].costs, start, stop) for choice, start, stop in route]
        return (
            [int(cost.compute[start, stop]) for cost, start, stop in costs],
            [int(cost.receive[start, stop]) for cost, start, stop in costs],
            [int(cost.send[start, stop]) for cost, start, stop in costs],
        )

    def compute_cycles(self, route: Route) -> int:
        """The largest compute of a stage."""
        return max(self.cycles(route)[0])

    def transfer_cycles(self, route: Route) -> int:
        """The largest transfer of a stage."""
        _, receive, send = self.cycles(route)
        return max(map(sum, zip(receive, send, strict=True)))

    def cost_cycles(self, route: Route) -> int:
        """The cost of a plan."""
        return self.period.cycles(*self.cycles(route))

    def best(self) -> Route | None:
        """The cheapest plan; None when none fits."""
        low = self.bound_cycles
        if self.period is Period.BARRIER:
            return self._best_with_barrier(low)
        return search_smallest_bound(
            lambda cost: self.probe(cost, cost), self.cost_cycles, low, UNBOUNDED, low + low // 8
        )

    def _best_with_barrier(self, low: int) -> Route | None:
        """Walk over compute from the smallest upwards, each with the smallest transfer (`optimal.py` draws it).

        No plan with less compute than `low` costs less than the best so far, so a better one has less transfer than the
        rest of its cost.
        """
        best, cost = None, UNBOUNDED
        while low < cost:
            attempt = partial(self.probe, transfer_cycles=cost - low - 1)
            route = search_smallest_bound(attempt, self.compute_cycles, low, cost - 1, low + low // 8)
            if route is None:
                break
            low = self.compute_cycles(route)
            transfer = partial(self.probe, low)
            high = min(self.transfer_cycles(route), cost - low - 1)
            nearest = search_smallest_bound(transfer, self.transfer_cycles, 0, high, high)
            if nearest is not None:
                best, cost = nearest, self.cost_cycles(nearest)
            low += 1
        return best


def best_in_line(table: CostTable) -> BoundedPlan:
    """The best plan on all devices in their order; exact for up to `MAX_BLOCKS` legal cuts.

    Raises:
        Infeasible: no plan fits; the error says what is missing.
    """
    devices = range(table.n_devices)
    keys = [_device_key(table, device) for device in devices]
    kinds = [keys.index(key) for key in keys]  # the first device like each
    rows = list(dict.fromkeys(kinds))
    steps = [(rows.index(kinds[d]), np.array([d]), np.array([d + 1])) for d in devices]

    coarse = _with_fewer_cuts([table])[0]
    blocks = contract(coarse)
    moved = moved_bytes(coarse, blocks)
    choices = tuple(StageChoice(device, 1, range_costs(coarse, device, blocks, moved)) for device in rows)
    bound, n_states = _lower_bound([table], table.n_devices), table.n_devices + 1
    searched = RangeProblem(choices, tuple(steps), n_states, (table.n_devices,), table.period, bound)
    route = searched.best()
    if route is None:
        chain = replace(table, exchange=None)  # what fits does not depend on transfers
        raise why_infeasible(chain, prepare(chain))
    plan = evaluate(table, [blocks.cuts[stage.start] for stage in route] + [table.n_layers])
    return BoundedPlan(plan, plan.cost_cycles if coarse is table else bound)


def anywhere(table: CostTable) -> CostTable:
    """The costs of one device that may stand anywhere in a line, of a table of two or more like devices.

    It receives from a neighbour, or from the host if its stage starts at layer 0; likewise it sends.

    Raises:
        BadInput: the devices differ.
    """
    inner = range(1, table.n_devices - 1)
    if len({_device_key(table, device)[:3] for device in range(table.n_devices)}) > 1 or any(
        not np.array_equal(table.receive_cycles[1], table.receive_cycles[device])
        or not np.array_equal(table.send_cycles[0], table.send_cycles[device])
        for device in inner
    ):
        raise BadInput("stage replicas and devices in any order need like devices with like links; plan them in a line")
    second, receive, send = min(1, table.n_devices - 1), table.receive_cycles, table.send_cycles
    return replace(
        table.part(0, 1),
        receive_cycles=np.concatenate((receive[:1, :1], receive[second : second + 1, 1:]), axis=1),
        send_cycles=np.concatenate((send[:1, :-1], send[-1:, -1:]), axis=1),
    )


def best_in_any_order(
    tables: Sequence[CostTable],
    n_devices: Sequence[int],
    max_replicas: int = 1,
    gradient_cycles: GradientCycles = no_cycles,
) -> BoundedPlan:
    """The best plan on at most so many devices of every kind, in any order; exact for up to `MAX_BLOCKS` legal cuts.

    Args:
        tables: of the same layers, each with one device, of one kind: where a stage starts at layer 0, it receives, and
            where it stops after the last layer, it sends over the link to the host.
        n_devices: how many devices there are of each kind; in a plan, those of the first kind are counted first.
        max_replicas: the largest number of devices of a kind that may run one stage in turn.
        gradient_cycles: cycles of the reference clock in which a device moves a number of bytes, or each of an array,
            of the gradients that replicas exchange after every micro-batch of training. Each of m replicas moves
            4 (m - 1) / m times the bytes of its weights [pipedream].

    Raises:
        Infeasible: no plan fits; the error says what is missing.
    """
    ways = [(kind, m) for kind, n in enumerate(n_devices) for m in range(1, min(n, max_replicas) + 1)]
    usage = list(product(*(range(n + 1) for n in n_devices)))
    steps = list(_steps(usage, n_devices, ways))
    fewest_first = tuple(sorted(range(1, len(usage)), key=lambda state: sum(usage[state])))
    bound = _lower_bound(tables, sum(n_devices), max_replicas)
    coarse = _with_fewer_cuts(tables)
    blocks = [contract(table) for table in coarse]
    moved = moved_bytes(coarse[0], blocks[0])

    weight_prefix = tables[0].memory.exclusive(PARAMETER).stop_bytes
    weight_bytes = np.maximum(np.subtract.outer(-weight_prefix[blocks[0].cuts], -weight_prefix[blocks[0].cuts]), 0)

    def exchanged(m: int, n_bytes: Amount) -> Amount:
        """Cycles in which one of m replicas exchanges the gradients of its weights."""
        return gradient_cycles(n_bytes * 4 * (m - 1) // m)

    def best(allowance_bytes: int) -> Plan | None:
        costs = [range_costs(*kind, moved, allowance_bytes) for kind in zip(coarse, repeat(0), blocks)]
        choices = tuple(StageChoice(kind, m, costs[kind].in_turn(m, exchanged(m, weight_bytes))) for kind, m in ways)
        problem = RangeProblem(choices, tuple(steps), len(usage), fewest_first, tables[0].period, bound)
        route = problem.probe(UNBOUNDED, UNBOUNDED) if allowance_bytes else problem.best()
        return None if route is None else plan_of(route)

    def plan_of(route: Route) -> Plan:
        free = [sum(n_devices[:kind]) for kind in range(len(tables))]
        stages = []
        for way, start, stop in route:
            kind, m = ways[way]
            stage = stage_of(tables[kind], 0, blocks[0].cuts[start], blocks[0].cuts[stop])
            backward = stage.backward_cycles + exchanged(m, int(weight_bytes[start, stop]))
            stages.append(replace(stage, device=free[kind], n_replicas=m, backward_cycles=backward))
            free[kind] += m
        return Plan(tuple(stages), tables[0].period, tables[0].host_cycles)

    plan = best(0)
    if plan is None:
        most = max(sum(table.memory_bytes(0, table.n_layers).values()) for table in tables)
        nearest = search_smallest_bound(best, excess_bytes, 1, most, most // 64)
        assert nearest is not None  # a device with so many more bytes holds all layers
        raise out_of_memory(nearest)
    return BoundedPlan(plan, plan.cost_cycles if coarse is tables else bound)


def _steps(
    usage: Sequence[tuple[int, ...]], n_devices: Sequence[int], ways: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, IntArray, IntArray]]:
    """`RangeProblem.steps`: every way from every state that leaves enough devices, by how many are in use."""
    state_of = {used: state for state, used in enumerate(usage)}
    by_total: dict[int, list[tuple[int, ...]]] = {}
    for used in usage:
        by_total.setdefault(sum(used), []).append(used)
    for total, (way, (kind, m)) in product(range(sum(n_devices)), enumerate(ways)):
        before = [used for used in by_total[total] if used[kind] + m <= n_devices[kind]]
        after = [(*used[:kind], used[kind] + m, *used[kind + 1 :]) for used in before]
        if before:
            yield way, np.array([state_of[used] for used in before]), np.array([state_of[used] for used in after])


MovedBytes = tuple[IntArray, IntArray] | None
"""`Exchange.range_bytes`; None where tensors pass on from neighbour to neighbour."""


def moved_bytes(table: CostTable, blocks: Blocks) -> MovedBytes:
    """What all ranges exchange, which is the same on every device."""
    return None if table.exchange is None else table.exchange.range_bytes(blocks.cuts)


def range_costs(
    table: CostTable, device: int, blocks: Blocks, moved: MovedBytes, allowance_bytes: int = 0
) -> RangeCosts:
    """The costs of all ranges on one device, with so many bytes more than its limit."""
    speed = table.speeds[device]
    own_cycles = np.subtract.outer(blocks.start_offset_cycles, blocks.compute_prefix_cycles) * -speed.denominator
    receive = np.broadcast_to(blocks.receive_rows[device][:, None], own_cycles.shape)
    send = np.broadcast_to(blocks.send_rows[device][None, :], own_cycles.shape)
    if table.exchange is not None and moved is not None:
        received, sent = moved
        receive = receive + table.exchange.receive_links[device].load_cycles(received, table.exchange.clock_hz)
        send = send + table.exchange.send_links[device].load_cycles(sent, table.exchange.clock_hz)
    limit = int(table.memory_limit_bytes[device]) + allowance_bytes
    earliest = np.array(earliest_starts(blocks, limit, table.stash_entries[device]).starts)
    start, stop = np.arange(len(blocks) + 1)[:, None], np.arange(len(blocks) + 1)[None, :]
    return RangeCosts(-(-own_cycles // speed.numerator), receive, send, (start < stop) & (start >= earliest))


def _device_key(table: CostTable, device: int) -> tuple[object, ...]:
    """What the costs of a device depend on."""
    links = table.exchange and (table.exchange.receive_links[device], table.exchange.send_links[device])
    cycles = table.receive_cycles[device].tobytes(), table.send_cycles[device].tobytes()
    return table.speeds[device], int(table.memory_limit_bytes[device]), table.stash_entries[device], cycles, links


def _lower_bound(tables: Sequence[CostTable], n_devices: int, max_replicas: int = 1) -> int:
    """A lower bound of any plan's compute: its longest layer, or an equal share of all, on the fastest devices."""
    by_speed = [(table.compute_prefix_cycles, max(table.speeds)) for table in tables]
    fastest = np.min([np.diff(prefix) * speed.denominator // speed.numerator for prefix, speed in by_speed], axis=0)
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
