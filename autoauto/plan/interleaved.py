"""The best plan with several chunks a device: exact when small, else with the gap that is left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product, takewhile
from typing import NamedTuple

from autoauto.plan.chunks import chunk_table, device_bytes, evaluate_chunks
from autoauto.plan.optimal import incumbents
from autoauto.plan.problem import Problem, least_compute, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Certified
from autoauto.records.units import format_bytes, reference_cycles

Cuts = tuple[int, ...]


def interleaved(table: CostTable, n_chunks: int, max_nodes: int = 20_000) -> Certified:
    """The plan of least cost with `n_chunks` stages a device, stage s on device s mod n_devices.

    A device spends the sum over its chunks. Chunks of one device are far apart, so no programme over the layers sees
    what a device has spent: a descent over single cuts finds a good plan, then branch and bound looks at up to
    `max_nodes` beginnings of plans. If these were all, the plan is optimal and its gap 0; if not, the bound is what
    the loads of all devices together allow.

    Raises:
        BadInput: `n_chunks` is below 1.
        Infeasible: no plan was found within the limits; the error says whether all were tried.
    """
    rows = chunk_table(table, n_chunks)
    problem = prepare(rows)
    search = _Search(rows, problem, table.n_devices, least_compute(problem.part(0, table.n_devices)))
    n_blocks, n_stages = len(problem.blocks), rows.n_devices
    if n_blocks < n_stages:
        raise Infeasible(
            f"{n_chunks} chunks on {table.n_devices} devices need {n_stages - 1} places to cut between layers that "
            f"share no variable, got {n_blocks - 1}; try fewer chunks",
            excess_bytes=0,
        )
    value, cuts = min(search.descend(start) for start in search.starts())
    found = search.branch(value, cuts, max_nodes)
    if found.value.excess_bytes > 0:
        tried = "no plan fits" if found.is_complete else f"no plan found among {max_nodes} beginnings fits"
        missing = format_bytes(found.value.excess_bytes)
        raise Infeasible(
            f"every device must hold its {n_chunks} chunks, but {tried}: the nearest exceeds a limit by {missing}; "
            "try fewer chunks, a smaller batch size or more devices",
            found.value.excess_bytes,
        )
    plan = evaluate_chunks(rows, table.n_devices, problem.partition(list(found.cuts)))
    return Certified(plan, plan.cost_cycles if found.is_complete else min(search.bound(()), plan.cost_cycles))


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
    value: _Value
    cuts: Cuts
    is_complete: bool


@dataclass(frozen=True, slots=True)
class _Search:
    table: CostTable
    problem: Problem
    n_devices: int
    least_compute_cycles: int
    known: dict[tuple[int, ...], _Load] = field(default_factory=dict)

    def starts(self) -> Iterator[Cuts]:
        """Plans to descend from: equal compute in every chunk, and a good plan if each had a device to itself."""
        prefix, n_stages = self.problem.blocks.compute_prefix_cycles, self.problem.n_stages
        cuts = [0]
        for i, (first, last) in enumerate(self.problem.within[1:], start=1):
            even = bisect_left(prefix, prefix[-1] * i // n_stages)
            cuts.append(max(first, cuts[-1] + 1, min(even, last)))
        yield tuple(cuts)
        yield from (tuple(found.cuts) for found in islice(incumbents(self.problem), 1))

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

    def branch(self, value: _Value, cuts: Cuts, max_nodes: int) -> _Found:
        """Try all beginnings of plans, depth first, that may lead to less than the best plan so far costs."""
        stack: list[Cuts] = [(0,)]
        for _ in range(max_nodes):
            while stack and self.is_hopeless(stack[-1], value):
                stack.pop()
            if not stack:
                return _Found(value, cuts, is_complete=True)
            beginning = stack.pop()
            if len(beginning) > self.problem.n_stages:
                value, cuts = self.value(beginning), beginning
            else:
                stack += self.longer(beginning)
        return _Found(value, cuts, is_complete=False)

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
        rest = [self.least_rest(device, len(cuts) - 1) for device in range(self.n_devices)]
        transfer = max(load.transfer_cycles + least for load, least in zip(loads, rest, strict=True))
        return max(compute, transfer) if self.problem.overlap else compute + transfer

    def least_rest(self, device: int, n_dealt: int) -> int:
        """No chunks that the device has still to get after the first `n_dealt` of all transfer in less."""
        blocks = self.problem.blocks
        rest = [s for s in range(device, self.problem.n_stages, self.n_devices) if s >= n_dealt]
        return sum(blocks.least_receive_cycles[s] + blocks.least_send_cycles[s] for s in rest)

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
        prefix, speed = blocks.compute_prefix_cycles, self.problem.speeds[device]
        layers = [(blocks.cuts[start], blocks.cuts[stop]) for _, start, stop in chunks]
        return _Load(
            sum(reference_cycles(prefix[stop] - prefix[start], speed) for _, start, stop in chunks),
            sum(blocks.receive_cycles[stage][start] + blocks.send_cycles[stage][stop] for stage, start, stop in chunks),
            device_bytes(self.table, layers) - limit if chunks else -limit,
        )
