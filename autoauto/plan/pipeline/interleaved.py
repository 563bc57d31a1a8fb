"""Interleaved chunks: every device runs several stages, dealt out in turn, as interleaved schedules want it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from random import Random
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.optimal import anytime, incumbents
from autoauto.plan.pipeline.problem import Problem, check_one_in_flight, least_compute, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.plan import Certified, Plan
from autoauto.records.units import format_bytes, reference_cycles


def chunk_table(table: CostTable, n_chunks: int) -> CostTable:
    """A table with a device for every chunk: the devices' rows, repeated `n_chunks` times.

    The first chunk receives from the host and the last sends to it, as the table's first and last device do. After the
    last device comes the first again, over a link like those that enter the last and leave the first device. A device
    waits for the host once a period, so the host's constants count for its first chunk only: the first device's row of
    `receive_cycles` and the last one's of `send_cycles` must hold nothing else, as `estimate/transfer.py` makes them.

    Raises:
        BadInput: `n_chunks` is below 1, or above 1 where devices keep activations of several micro-batches.
    """
    if n_chunks < 1:
        raise BadInput(f"chunks a device must be at least 1, got {n_chunks}")
    if n_chunks > 1:
        check_one_in_flight(table, "several chunks a device")
    receive, send = table.receive_cycles, table.send_cycles
    host_in, host_out = receive[0, 0], send[-1, -1]
    from_ring = np.concatenate((receive[-1:], receive[1:])) - host_in
    to_ring = np.concatenate((send[:-1], send[:1]))
    send_rounds = [*[to_ring] * (n_chunks - 1), send]
    return replace(
        table,
        receive_cycles=np.concatenate((receive, *[from_ring] * (n_chunks - 1))),
        send_cycles=np.concatenate((send_rounds[0], *[rows - host_out for rows in send_rounds[1:]])),
        memory_limit_bytes=np.tile(table.memory_limit_bytes, n_chunks),
        speeds=table.speeds * n_chunks,
        stash_entries=table.stash_entries * n_chunks,
    )


def evaluate_chunks(table: CostTable, n_devices: int, partition: Sequence[int]) -> Plan:
    """The plan that cuts at `partition` and runs stage s of a `chunk_table` on device s mod `n_devices`."""
    stages = evaluate(table, partition).stages
    stages = tuple(replace(stage, device=stage.device % n_devices) for stage in stages)
    return Plan(stages, table.overlap, table.host_cycles)


def device_bytes(table: CostTable, chunks: Sequence[tuple[int, int]]) -> int:
    """What the ranges of layers `chunks` need together on one device.

    Shared keys are stored once for all of them and exclusive bytes add up. One chunk runs at a time, while what the
    others keep for the backward pass stays.
    """
    keys = {key for start, stop in chunks for keys in table.shared_keys[start:stop] for key in keys}
    shared = sum(table.shared_bytes[key] for key in keys)
    exclusive = sum(
        int(sums[stop] - sums[start]) for sums in table.exclusive_prefix_bytes.values() for start, stop in chunks
    )
    kept = [table.entry_bytes(*chunk) for chunk in chunks]
    more = [table.temporary_bytes(*chunk) - own for chunk, own in zip(chunks, kept, strict=True)]
    return shared + exclusive + sum(kept) + max(more)


Cuts = tuple[int, ...]
MAX_LOADS = 100_000  # wandering ends when so many loads are known, a few seconds on large models


def interleaved(table: CostTable, n_chunks: int, max_nodes: int = 1_000) -> Certified:
    """The plan of least cost with `n_chunks` stages a device, stage s on device s mod n_devices.

    A device spends the sum over its chunks. Chunks of one device are far apart, so no programme over the layers sees
    what a device has spent: descents over single cuts find a good plan, then branch and bound looks at up to
    `max_nodes` beginnings of plans. If these were all, the plan is optimal and its gap 0; if not, the bound is the
    least of those of the beginnings left. The same table always gives the same plan. One chunk a device is the
    ordinary plan, and optimal.

    Raises:
        BadInput: `n_chunks` is below 1, or above 1 where devices keep activations of several micro-batches.
        Infeasible: no plan was found within the limits; the error says whether all were tried. `excess_bytes` and
            `layers` are those of the best plan tried: with several chunks another may lack less.
    """
    if n_chunks == 1:
        return anytime(table)
    rows = chunk_table(table, n_chunks)
    search = _search(rows, table.n_devices)
    n_blocks, n_stages = len(search.problem.blocks), rows.n_devices
    if n_blocks < n_stages:
        raise Infeasible(
            f"{n_chunks} chunks on {table.n_devices} devices need {n_stages - 1} places to cut between layers that "
            f"share no variable, got {n_blocks - 1}; try fewer chunks",
            excess_bytes=0,
        )
    best = search.wander(min(map(search.descend, search.starts())), Random(0))
    found = search.branch(*best, max_nodes)
    plan = evaluate_chunks(rows, table.n_devices, search.problem.partition(list(found.cuts)))
    if found.value.excess_bytes > 0:
        device = max(range(table.n_devices), key=lambda device: search.load(device, found.cuts).excess_bytes)
        raise _out_of_memory(plan, device, found)
    return Certified(plan, min([plan.cost_cycles, *map(search.bound, found.untried)]))


def _out_of_memory(plan: Plan, device: int, found: _Found) -> Infeasible:
    chunks = [stage for stage in plan.stages if stage.device == device]
    largest, excess = max(chunks, key=lambda stage: stage.total_bytes), found.value.excess_bytes
    tried = "no plan found fits" if found.untried else "no plan fits"
    return Infeasible(
        f"every device must hold its {len(chunks)} chunks, but {tried}: the best plan tried exceeds device {device} by "
        f"{format_bytes(excess)}, with layers {largest.layers} as its largest chunk; "
        "try fewer chunks, a smaller batch size or more devices",
        excess_bytes=excess,
        layers=largest.layers,
        memory_bytes=largest.memory_bytes,
    )


class _Load(NamedTuple):
    """What the chunks of one device take."""

    compute_cycles: int
    transfer_cycles: int
    excess_bytes: int


class _Value(NamedTuple):
    """How good a plan is, the smaller the better: first it must fit, and equal costs are better when even."""

    excess_bytes: int
    cost_cycles: int
    unevenness: int


class _Found(NamedTuple):
    """The best plan, and the beginnings of all that may be better."""

    value: _Value
    cuts: Cuts
    untried: list[Cuts]


@dataclass(frozen=True, slots=True)
class _Search:
    """What a search knows.

    Attributes:
        table: the `chunk_table`.
        problem: the same, prepared.
        n_devices: how many devices there are, each with several of the table's rows.
        least_compute_cycles: no plan computes in less.
        least_rest_cycles: (n_stages + 1, n_devices) by chunks dealt out and device: no chunks that the device has still
            to get transfer in less.
        known: the loads that were asked for, by device and the cuts of its chunks.
    """

    table: CostTable
    problem: Problem
    n_devices: int
    least_compute_cycles: int
    least_rest_cycles: list[list[int]]
    known: dict[tuple[int, ...], _Load] = field(default_factory=dict)

    def starts(self) -> Iterator[Cuts]:
        """Plans to descend from: equal compute in every chunk, and good plans if each had a device to itself."""
        prefix, n_stages = self.problem.blocks.compute_prefix_cycles, self.problem.n_stages
        cuts = [0]
        for i, (first, last) in enumerate(self.problem.within[1:], start=1):
            even = bisect_left(prefix, prefix[-1] * i // n_stages)
            cuts.append(max(first, cuts[-1] + 1, min(even, last)))
        yield tuple(cuts)
        yield from (tuple(found.cuts) for found in incumbents(self.problem))

    def descend(self, cuts: Cuts) -> tuple[_Value, Cuts]:
        """Move single cuts by 64, 16, 4 or 1 blocks either way for as long as any move makes the plan better."""
        value, before = self.value(cuts), None
        while value != before:
            before = value
            for i, step in product(range(1, len(cuts) - 1), (64, -64, 16, -16, 4, -4, 1, -1)):
                if cuts[i - 1] < cuts[i] + step < cuts[i + 1]:
                    moved = (*cuts[:i], cuts[i] + step, *cuts[i + 1 :])
                    value, cuts = min((value, cuts), (self.value(moved), moved))
        return value, cuts

    def wander(self, best: tuple[_Value, Cuts], random: Random) -> tuple[_Value, Cuts]:
        """Draw four cuts of the best plan anew and descend, again and again: single moves stop at the first valley."""
        n_blocks, n_kept = len(self.problem.blocks), max(0, self.problem.n_stages - 1 - 4)
        for _ in range(4 * n_blocks):
            if len(self.known) > MAX_LOADS:
                break
            kept = random.sample(best[1][1:-1], n_kept)
            others = sorted(set(range(1, n_blocks)) - set(kept))
            drawn = random.sample(others, self.problem.n_stages - 1 - n_kept)
            best = min(best, self.descend((0, *sorted(kept + drawn), n_blocks)))
        return best

    def branch(self, value: _Value, cuts: Cuts, max_nodes: int) -> _Found:
        """Try all beginnings of plans, depth first, that may lead to less than the best plan so far costs."""
        stack: list[Cuts] = [(0,)]
        for _ in range(max_nodes):
            while stack and self.is_hopeless(stack[-1], value):
                stack.pop()
            if not stack:
                return _Found(value, cuts, untried=[])
            beginning = stack.pop()
            if len(beginning) > self.problem.n_stages:
                value, cuts = self.value(beginning), beginning
            else:
                stack += self.longer(beginning)
        return _Found(value, cuts, stack)

    def longer(self, cuts: Cuts) -> Iterator[Cuts]:
        """A beginning with one chunk more, as long as that fits; the one nearest to an equal share comes last."""
        first, last = self.problem.within[len(cuts)]
        stops = range(max(first, cuts[-1] + 1), last + 1)
        prefix, n_stages = self.problem.blocks.compute_prefix_cycles, self.problem.n_stages
        share = prefix[-1] * len(cuts) // n_stages
        device = (len(cuts) - 1) % self.n_devices
        fitting = takewhile(lambda stop: self.load(device, (*cuts, stop)).excess_bytes <= 0, stops)
        yield from ((*cuts, stop) for stop in sorted(fitting, key=lambda stop: -abs(prefix[stop] - share)))

    def is_hopeless(self, cuts: Cuts, best: _Value) -> bool:
        """Whether no plan that begins so can cost less than the best, if that fits."""
        return best.excess_bytes <= 0 and self.bound(cuts) >= best.cost_cycles

    def bound(self, cuts: Cuts) -> int:
        """No plan that begins so costs less."""
        loads = [self.load(device, cuts) for device in range(self.n_devices)]
        compute = max(self.least_compute_cycles, *(load.compute_cycles for load in loads))
        rest = self.least_rest_cycles[len(cuts) - 1]
        transfer = max(load.transfer_cycles + least for load, least in zip(loads, rest, strict=True))
        return max(compute, transfer) if self.problem.overlap else compute + transfer

    def value(self, cuts: Cuts) -> _Value:
        """How good a plan is."""
        loads = [self.load(device, cuts) for device in range(self.n_devices)]
        parts = max(load.compute_cycles for load in loads), max(load.transfer_cycles for load in loads)
        cost = max(parts) if self.problem.overlap else sum(parts)
        excess = max(0, *(load.excess_bytes for load in loads))
        return _Value(excess, cost, sum(load.compute_cycles**2 for load in loads))

    def load(self, device: int, cuts: Cuts) -> _Load:
        """What the device's chunks among these take."""
        stages = range(device, len(cuts) - 1, self.n_devices)
        key = (device, *(cut for stage in stages for cut in cuts[stage : stage + 2]))
        if key not in self.known:
            self.known[key] = self._load(device, [(stage, cuts[stage], cuts[stage + 1]) for stage in stages])
        return self.known[key]

    def _load(self, device: int, chunks: list[tuple[int, int, int]]) -> _Load:
        blocks, limit = self.problem.blocks, int(self.table.memory_limit_bytes[device])
        prefix, begun, speed = blocks.compute_prefix_cycles, blocks.start_cycles, self.problem.speeds[device]
        layers = [(blocks.cuts[start], blocks.cuts[stop]) for _, start, stop in chunks]
        return _Load(
            sum(reference_cycles(prefix[stop] - begun[start], speed) for _, start, stop in chunks),
            sum(blocks.receive_cycles[stage][start] + blocks.send_cycles[stage][stop] for stage, start, stop in chunks),
            device_bytes(self.table, layers) - limit if chunks else -limit,
        )


def _search(rows: CostTable, n_devices: int) -> _Search:
    problem = prepare(rows)
    blocks, rest = problem.blocks, [[0] * n_devices]
    for stage in reversed(range(problem.n_stages)):
        least = rest[-1].copy()
        least[stage % n_devices] += blocks.least_receive_cycles[stage] + blocks.least_send_cycles[stage]
        rest.append(least)
    return _Search(rows, problem, n_devices, least_compute(problem.part(0, n_devices)), rest[::-1])
