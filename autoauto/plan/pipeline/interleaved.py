"""Interleaved chunks, `interleaved`: every device runs several stages, dealt out in turn, for interleaved schedules."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.optimal import anytime, incumbents
from autoauto.plan.pipeline.problem import CutProblem, check_one_in_flight, compute_lower_bound, evaluate, prepare
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.units import format_bytes, reference_cycles

MAX_LOADS = 100_000  # local search ends when so many loads are cached, after a few seconds on large models
MAX_DRAWN_CUTS = 4  # cuts of the best plan that local search draws anew at a time
MOVES = (64, -64, 16, -16, 4, -4, 1, -1)  # blocks by which descent moves a cut
Cuts = tuple[int, ...]


def chunk_table(table: CostTable, n_chunks: int) -> CostTable:
    """A table with a row for every chunk, as if it were a device: the rows of all devices, `n_chunks` times.

        row       0     1     2     3     4     5         2 chunks on each of 3 devices
        device    0 --> 1 --> 2 --> 0 --> 1 --> 2
             host                ^                host

    The first chunk receives from the host and the last sends to it. The link from the last device back to the first (^)
    is like the one that leaves the first device and the one that enters the last. All devices wait for the host once a
    period, so its constants count in the first chunk of a device only. They are subtracted from the others:
    `receive_cycles[0]` and `send_cycles[-1]` must hold nothing else, as `estimate/table.py` makes them. Raises BadInput
    if `n_chunks` is below 1, or above 1 where devices stash activations or exchange by themselves.
    """
    if n_chunks < 1:
        raise BadInput(f"chunks a device must be at least 1, got {n_chunks}")
    if n_chunks > 1:
        check_one_in_flight(table, "several chunks a device")
        if table.period in (Period.SERIAL, Period.DUPLEX):
            raise BadInput(f"several chunks a device need the period barrier or overlap, got {table.period}")
    receive, send = table.receive_cycles, table.send_cycles
    host_in, host_out = receive[0, 0], send[-1, -1]
    # In all rounds but the first, the first device receives from the last one, as that receives from its neighbour.
    receive_rounds = [receive]
    for _ in range(1, n_chunks):
        receive_rounds.append(np.concatenate((receive[-1:], receive[1:])) - host_in)
    # In all rounds but the last, the last device sends to the first one, as that sends to its neighbour.
    send_rounds = [np.concatenate((send[:-1], send[:1]))] * (n_chunks - 1) + [send]
    for later in range(1, n_chunks):
        send_rounds[later] = send_rounds[later] - host_out
    return replace(
        table,
        receive_cycles=np.concatenate(receive_rounds),
        send_cycles=np.concatenate(send_rounds),
        memory_limit_bytes=np.tile(table.memory_limit_bytes, n_chunks),
        speeds=table.speeds * n_chunks,
        stash_entries=table.stash_entries * n_chunks,
        of_devices=table.of_devices * n_chunks,
    )


def evaluate_chunks(table: CostTable, n_devices: int, partition: Sequence[int]) -> Plan:
    """The plan that cuts at `partition` and runs stage s of a `chunk_table` on device s mod `n_devices`."""
    plan = evaluate(table, partition)
    stages = [replace(stage, device=stage.device % n_devices) for stage in plan.stages]
    return replace(plan, stages=tuple(stages))


def interleaved(table: CostTable, n_chunks: int, max_nodes: int = 1_000) -> BoundedPlan:
    """The cheapest plan that is found with `n_chunks` stages a device, stage s on device s mod n_devices.

    The load of a device is the sum over its chunks. Their layers are not neighbours, so dynamic programming along the
    layers would need the loads of all devices in its state. Instead, there are three steps:

    1. *Descent* from a few plans, by moves of single cuts.
    2. *Iterated local search*: draw some cuts of the best plan at random and descend again.
    3. *Branch and bound* over partial plans, at most `max_nodes` of them:

        (0)                           a partial plan is the first cuts of a plan; its lower bound is the cost of its
        (0, 3)      (0, 5)            chunks, with the minimum transfer of the missing ones
        (0, 3, 7)   pruned: its bound is no lower than the best plan's cost

    If no partial plan is left, the plan is optimal and its gap is 0; otherwise the lower bound of every plan is the
    smallest bound of a partial plan that is left. Equal tables give equal plans. One chunk a device is `optimal`.

    Raises:
        BadInput: `n_chunks` is below 1, or above 1 where devices stash activations or exchange by themselves.
        Infeasible: the search has no plan within the limits; the message says whether it was exhaustive. `excess_bytes`
            and `layers` are those of the best plan tried: with several chunks another may lack less.
    """
    if n_chunks == 1:
        return anytime(table)
    rows = chunk_table(table, n_chunks)
    search = _make_search(rows, table.n_devices)
    n_blocks, n_stages = len(search.problem.blocks), rows.n_devices
    if n_blocks < n_stages:
        raise Infeasible(
            f"{n_chunks} chunks on {table.n_devices} devices need {n_stages - 1} cuts between layers that "
            f"share no variable, got {n_blocks - 1}; try fewer chunks",
            excess_bytes=0,
        )
    best = search.perturb(min(map(search.descend, search.starts())), Random(0))
    value, cuts, open_nodes = search.branch(*best, max_nodes)
    plan = evaluate_chunks(rows, table.n_devices, search.problem.partition(list(cuts)))
    if value.excess_bytes > 0:
        device = max(range(table.n_devices), key=lambda device: search.load(device, cuts).excess_bytes)
        raise _out_of_memory(plan, device, value.excess_bytes, "no plan found fits" if open_nodes else "no plan fits")
    return BoundedPlan(plan, min([plan.cost_cycles, *map(search.bound, open_nodes)]))


def _out_of_memory(plan: Plan, device: int, excess: int, outcome: str) -> Infeasible:
    chunks = [stage for stage in plan.stages if stage.device == device]
    largest = max(chunks, key=lambda stage: stage.total_bytes)
    return Infeasible(
        f"every device must hold its {len(chunks)} chunks, but {outcome}: the best plan tried exceeds device {device} "
        f"by {format_bytes(excess)}, with layers {largest.layers} as its largest chunk; "
        "try fewer chunks, a smaller batch size or more devices",
        excess_bytes=excess,
        layers=largest.layers,
        memory_bytes=largest.memory_bytes,
    )


class _Load(NamedTuple):
    """Compute, transfer and excess memory of the chunks of one device."""

    compute_cycles: int
    transfer_cycles: int
    excess_bytes: int


class _Value(NamedTuple):
    """The rank of a plan, smaller is better: by excess memory, then cost, then `unevenness`.

    `unevenness` is the sum of squares of the devices' compute: it ranks plans of equal cost, so that descent continues.
    """

    excess_bytes: int
    cost_cycles: int
    unevenness: int


@dataclass(frozen=True, slots=True)
class _ChunkSearch:
    """A search, with the loads that it has computed.

    Attributes:
        table: the `chunk_table`.
        min_rest_transfer_cycles: (n_stages + 1, n_devices) by the number of chunks in a partial plan and by device: a
            lower bound of the transfer of the device's chunks that are missing in the partial plan.
        loads: a cache of loads, by device and the cuts of its chunks.
    """

    table: CostTable
    problem: CutProblem
    n_devices: int  # each with several of the table's rows
    min_compute_cycles: int
    min_rest_transfer_cycles: list[list[int]]
    loads: dict[tuple[int, ...], _Load] = field(default_factory=dict)

    def starts(self) -> Iterator[Cuts]:
        """Plans to descend from: equal compute in every chunk, and the good plans if every row were a device."""
        prefix, n_stages = self.problem.blocks.costs[0].compute_prefix_cycles, self.problem.n_stages
        cuts = [0]
        for i, (first, last) in enumerate(self.problem.cut_limits[1:], start=1):
            even = bisect_left(prefix, prefix[-1] * i // n_stages)
            cuts.append(max(first, cuts[-1] + 1, min(even, last)))
        yield tuple(cuts)
        yield from (tuple(incumbent.cuts) for incumbent in incumbents(self.problem))

    def descend(self, cuts: Cuts) -> tuple[_Value, Cuts]:
        """Move single cuts by 64, 16, 4 or 1 blocks either way for as long as any move improves the plan."""
        value, before = self.value(cuts), None
        while value != before:
            before = value
            for i, step in product(range(1, len(cuts) - 1), MOVES):
                if cuts[i - 1] < cuts[i] + step < cuts[i + 1]:
                    moved = (*cuts[:i], cuts[i] + step, *cuts[i + 1 :])
                    value, cuts = min((value, cuts), (self.value(moved), moved))
        return value, cuts

    def perturb(self, best: tuple[_Value, Cuts], random: Random) -> tuple[_Value, Cuts]:
        """Iterated local search: draw `MAX_DRAWN_CUTS` cuts of the best plan at random, descend, and repeat."""
        n_blocks, n_cuts = len(self.problem.blocks), self.problem.n_stages - 1
        n_same = max(0, n_cuts - MAX_DRAWN_CUTS)
        for _ in range(4 * n_blocks):
            if len(self.loads) > MAX_LOADS:
                break
            same = random.sample(best[1][1:-1], n_same)
            others = sorted(set(range(1, n_blocks)) - set(same))
            drawn = random.sample(others, n_cuts - n_same)
            best = min(best, self.descend((0, *sorted(same + drawn), n_blocks)))
        return best

    def branch(self, value: _Value, cuts: Cuts, max_nodes: int) -> tuple[_Value, Cuts, list[Cuts]]:
        """Branch and bound, depth first, from the plan `cuts`: the best plan, and the partial plans that are left."""
        stack: list[Cuts] = [(0,)]
        for _ in range(max_nodes):
            # Pruned when they come up and not when they are pushed: by then the best plan may be better.
            while stack and value.excess_bytes <= 0 and self.bound(stack[-1]) >= value.cost_cycles:
                stack.pop()
            if not stack:
                break
            partial = stack.pop()
            if len(partial) > self.problem.n_stages:
                value, cuts = self.value(partial), partial  # complete, and not pruned: better than the best so far
            else:
                stack += self.extensions(partial)
        return value, cuts, stack

    def extensions(self, cuts: Cuts) -> Iterator[Cuts]:
        """The partial plans with one more chunk that fits; the nearest to equal compute is last, so visited first."""
        first, last = self.problem.cut_limits[len(cuts)]
        device = (len(cuts) - 1) % self.n_devices
        longer = []
        for stop in range(max(first, cuts[-1] + 1), last + 1):
            extension = (*cuts, stop)
            if self.load(device, extension).excess_bytes > 0:
                break  # a longer chunk needs no less memory
            longer.append(extension)
        prefix, n_stages = self.problem.blocks.costs[0].compute_prefix_cycles, self.problem.n_stages
        share = prefix[-1] * len(cuts) // n_stages
        yield from sorted(longer, key=lambda extension: -abs(prefix[extension[-1]] - share))

    def bound(self, cuts: Cuts) -> int:
        """A lower bound of the cost of every completion of this partial plan."""
        loads = [self.load(device, cuts) for device in range(self.n_devices)]
        compute = max(load.compute_cycles for load in loads)
        rest = self.min_rest_transfer_cycles[len(cuts) - 1]
        transfer = max(load.transfer_cycles + more for load, more in zip(loads, rest, strict=True))
        return self.cost(max(self.min_compute_cycles, compute), transfer)

    def value(self, cuts: Cuts) -> _Value:
        loads = [self.load(device, cuts) for device in range(self.n_devices)]
        compute = max(load.compute_cycles for load in loads)
        transfer = max(load.transfer_cycles for load in loads)
        excess = max(load.excess_bytes for load in loads)
        unevenness = sum(load.compute_cycles**2 for load in loads)
        return _Value(max(0, excess), self.cost(compute, transfer), unevenness)

    def cost(self, compute_cycles: int, transfer_cycles: int) -> int:
        if self.problem.period is Period.BARRIER:
            return compute_cycles + transfer_cycles
        return max(compute_cycles, transfer_cycles)

    def load(self, device: int, cuts: Cuts) -> _Load:
        """The load of a device by its chunks in `cuts`, a plan or a partial plan."""
        key = [device]
        for stage in range(device, len(cuts) - 1, self.n_devices):
            key += cuts[stage : stage + 2]
        known = self.loads.get(tuple(key))
        if known is None:
            known = self.loads[tuple(key)] = self._load(device, cuts)
        return known

    def _load(self, device: int, cuts: Cuts) -> _Load:
        blocks, speed = self.problem.blocks, self.problem.speeds[device]
        own = blocks.costs[device]
        compute, transfer, layers = 0, 0, []
        for stage in range(device, len(cuts) - 1, self.n_devices):
            start, stop = cuts[stage], cuts[stage + 1]
            compute += reference_cycles(own.compute_prefix_cycles[stop] - own.start_offset_cycles[start], speed)
            transfer += blocks.receive_cycles[stage][start] + blocks.send_cycles[stage][stop]
            layers.append((blocks.cuts[start], blocks.cuts[stop]))
        n_bytes = self.table.on(device).memory.together(layers) if layers else 0
        return _Load(compute, transfer, n_bytes - int(self.table.memory_limit_bytes[device]))


def _make_search(rows: CostTable, n_devices: int) -> _ChunkSearch:
    """The search for a `chunk_table`; the minimum transfer is summed up from the last chunk to the first."""
    problem = prepare(rows)
    blocks = problem.blocks
    rest = [[0] * n_devices]
    for stage in reversed(range(problem.n_stages)):
        transfer = rest[-1].copy()
        transfer[stage % n_devices] += blocks.min_receive_cycles[stage] + blocks.min_send_cycles[stage]
        rest.append(transfer)
    rest.reverse()
    # Chunks of a device compute its share of all blocks, and one of them the largest block, as one stage would.
    min_compute = compute_lower_bound(problem.part(0, n_devices))
    return _ChunkSearch(rows, problem, n_devices, min_compute, rest)
