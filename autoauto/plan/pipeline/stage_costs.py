"""The costs of stages by their first and last cuts, for many plans at once, and what fits together: `StageCosts`.

Plans from which a search for the shortest step begins: `starting_partitions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, pairwise
from typing import NamedTuple

import numpy as np

from autoauto.plan.pipeline.optimal import best_or_reason
from autoauto.plan.pipeline.problem import CutProblem, prepare
from autoauto.plan.pipeline.stage_table import StageTable
from autoauto.records.costs.cost import CostTable
from autoauto.records.costs.memory import StageBytes, device_bytes
from autoauto.records.hardware import Link
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.units import BoolArray, FloatArray, IntArray

MAX_CHOSEN = 4  # stages of a device all of whose subsets are tried; of more only some


class Choice(NamedTuple):
    """The stages of a plan that recompute.

    Attributes:
        recomputes: for every stage whether it does.
        is_certain: whether no other choice could make the step shorter.
    """

    recomputes: tuple[bool, ...]
    is_certain: bool


@dataclass(frozen=True)
class StageCosts:
    """The costs of a `StageTable`.

    Attributes:
        stages: the table.
        problem: its rows, prepared; every row has the ranges that its memory allows if it is alone on its device, and
            recomputes where it must. No range costs less as any stage.
        plain_latest: (S, B + 1) by start the latest stop of stages that do not recompute.
    """

    stages: StageTable
    problem: CutProblem
    plain_latest: IntArray
    _columns: dict[bool, _Columns]
    _memories: dict[tuple[int, int, int, bool], StageBytes[int]] = field(default_factory=dict)
    _choices: dict[tuple[int, ...], Choice | None] = field(default_factory=dict)
    _excess: dict[tuple[int, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, stages: StageTable) -> StageCosts:
        """Prepare a table; what fits does not depend on transfers."""
        problem = prepare(replace(stages.last_costs_of(stages.recompute), exchange=None))
        plain = _latest_stops(problem)
        flags = (False, True) if stages.recomputing is not None else (stages.recompute,)
        columns = {flag: _Columns.of(stages, flag, problem.blocks.cuts) for flag in flags}
        if stages.recomputing is not None:
            again = prepare(replace(stages.recomputing, exchange=None))
            either = zip(problem.fitting, again.fitting, strict=True)
            problem = replace(problem, fitting=[stashing.or_in(computing) for stashing, computing in either])
        return cls(stages, problem, plain, columns)

    def cuts(self, partition: Sequence[int]) -> IntArray:
        """(S + 1,) the cuts of a partition."""
        cuts: IntArray = np.searchsorted(self.problem.blocks.cuts, partition)
        return cuts

    @cached_property
    def of_device(self) -> list[list[int]]:
        """The stages of every device."""
        return self.stages.stages

    @cached_property
    def latest(self) -> IntArray:
        """(S, B + 1) by start the latest stop of a stage by itself."""
        return _latest_stops(self.problem)

    def stage(self, stage: int | IntArray, starts: IntArray, stops: IntArray) -> FloatArray:
        """(..., 5) costs of `[start, stop)` as a stage, which recomputes where it must; arrays are broadcast."""
        if self.stages.recomputing is None:
            return self._of(stage, starts, stops, self.stages.recompute)
        must = (stops > self.plain_latest[stage, starts])[..., None]
        both = (self._of(stage, starts, stops, flag) for flag in (not self.stages.recompute, self.stages.recompute))
        return np.where(must, *both)

    def _of(self, stage: int | IntArray, starts: IntArray, stops: IntArray, recomputes: bool) -> FloatArray:
        columns, (numerators, denominators, receive_rows, send_rows) = self._columns[recomputes], self._rows
        cycles = columns.between(stage, starts, stops)
        compute, backward, weight = -(-cycles * denominators[stage] // numerators[stage])
        receive, send = receive_rows[stage, starts], send_rows[stage, stops]
        exchange = self.stages.rows.exchange
        if columns.exchanged is not None and exchange is not None:
            received, sent = (n_bytes[starts, stops] for n_bytes in columns.exchanged)
            receive = receive + _load_cycles(exchange.receive_links, exchange.clock_hz, stage, received)
            send = send + _load_cycles(exchange.send_links, exchange.clock_hz, stage, sent)
        costs = np.broadcast_arrays(compute - backward, backward, weight, receive, send)
        return np.stack(costs, axis=-1).astype(np.float64)

    @cached_property
    def _rows(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(S,) numerators and denominators of the speeds, and (S, cuts) cycles to receive and to send there."""
        problem = self.problem
        numerators, denominators = zip(*(speed.as_integer_ratio() for speed in problem.speeds), strict=True)
        blocks = problem.blocks
        rows = np.array(blocks.receive_rows), np.array(blocks.send_rows)
        return np.array(numerators), np.array(denominators), *rows

    def plans(self, cuts: IntArray) -> FloatArray:
        """(K, S, 5) costs of the stages of plans, from their (K, S + 1) cuts; each recomputes where it must."""
        return self.stage(np.arange(cuts.shape[1] - 1), cuts[:, :-1], cuts[:, 1:])

    def chosen(self, cuts: IntArray, recomputes: Sequence[bool]) -> FloatArray:
        """(1, S, 5) costs of the stages of one plan, some of which recompute."""
        stages, starts, stops = np.arange(len(cuts) - 1), cuts[:-1], cuts[1:]
        kinds = {flag: self._of(stages, starts, stops, flag) for flag in set(recomputes)}
        return np.stack([kinds[flag][s] for s, flag in enumerate(recomputes)])[None]

    def must_recompute(self, cuts: IntArray) -> list[bool]:
        """For every stage of a plan, true if it fits its device only with recomputation."""
        if self.stages.recomputing is None:
            return [self.stages.recompute] * (len(cuts) - 1)
        return [bool(stop > self.plain_latest[s][start]) for s, (start, stop) in enumerate(pairwise(cuts.tolist()))]

    def fits(self, stage: int, starts: IntArray, stops: IntArray) -> BoolArray:
        """Whether ranges fit as a stage that is alone on its device."""
        fits: BoolArray = (starts < stops) & (stops <= self.latest[stage][starts])
        return fits

    def resolve(self, cuts: IntArray) -> Choice | None:
        """Choose stages that recompute so that every device fits; None if some device cannot.

        A stage recomputes if it must. Where several share a device, more may have to: then those whose second forward
        passes take least in total.
        """
        recomputes, is_certain = self.must_recompute(cuts), True
        if self.stages.one_each:
            return Choice(tuple(recomputes), is_certain)
        for device, own in enumerate(self.of_device):
            key = self._cuts_of(device, cuts)
            if key not in self._choices:
                self._choices[key] = self._on_device(device, [(s, *cuts[s : s + 2].tolist()) for s in own], recomputes)
            choice = self._choices[key]
            if choice is None:
                return None
            for s, flag in zip(own, choice.recomputes, strict=True):
                recomputes[s] = flag
            is_certain &= choice.is_certain
        return Choice(tuple(recomputes), is_certain)

    def _on_device(self, device: int, ranges: list[tuple[int, int, int]], must: Sequence[bool]) -> Choice | None:
        limit = int(self.stages.rows.memory_limit_bytes[ranges[0][0]])
        forced = tuple(must[s] for s, *_ in ranges)
        free = [] if self.stages.recomputing is None else [i for i, flag in enumerate(forced) if not flag]
        again = {i: self._again_cycles(*ranges[i]) for i in free}
        few = len(free) if len(free) <= MAX_CHOSEN else 1
        some = chain.from_iterable(combinations(free, n) for n in range(few + 1))
        for subset in sorted({*some, tuple(free)}, key=lambda subset: (sum(again[i] for i in subset), subset)):
            flags = tuple(flag or i in subset for i, flag in enumerate(forced))
            if self.device_bytes(device, [ends for _, *ends in ranges], flags) <= limit:
                return Choice(flags, is_certain=not subset)
        return None

    def _again_cycles(self, stage: int, start: int, stop: int) -> float:
        stashing, computing = (self._of(stage, np.array(start), np.array(stop), flag)[1] for flag in (False, True))
        return float(computing - stashing)

    def excess_bytes(self, device: int, cuts: IntArray) -> int:
        """Bytes by which the stages of a device exceed it if all that may recompute do; negative if bytes are free."""
        key = self._cuts_of(device, cuts)
        if key not in self._excess:
            self._excess[key] = self._excess_bytes(device, cuts)
        return self._excess[key]

    def _cuts_of(self, device: int, cuts: IntArray) -> tuple[int, ...]:
        """The key of the caches: the device, and the start and stop of each of its stages."""
        return device, *(int(cut) for s in self.of_device[device] for cut in cuts[s : s + 2])

    def _excess_bytes(self, device: int, cuts: IntArray) -> int:
        own = self.of_device[device]
        flags = [self.stages.recompute or self.stages.recomputing is not None] * len(own)
        n_bytes = self.device_bytes(device, [cuts[s : s + 2].tolist() for s in own], flags)
        return n_bytes - int(self.stages.rows.memory_limit_bytes[own[0]])

    def device_bytes(self, device: int, ranges: Sequence[Sequence[int]], recomputes: Sequence[bool]) -> int:
        """Bytes that the stages of a device need together (`device_memory`)."""
        stage = self.of_device[device][0] if self.stages.rows.of_devices else 0
        parts = [self._memory(stage, start, stop, flag) for (start, stop), flag in zip(ranges, recomputes, strict=True)]
        return device_bytes(parts, self.stages.in_flight[device])

    def _memory(self, stage: int, start: int, stop: int, recomputes: bool) -> StageBytes[int]:
        key = (stage, start, stop, recomputes)
        if key not in self._memories:
            first, last = (self.problem.blocks.cuts[cut] for cut in (start, stop))
            self._memories[key] = self.stages.stage_memory(stage, first, last, recomputes)
        return self._memories[key]

    def evaluate(self, cuts: IntArray, recomputes: Sequence[bool]) -> Plan:
        """The plan of these cuts."""
        return self.stages.evaluate(self.problem.partition(cuts.tolist()), recomputes)


def _latest_stops(problem: CutProblem) -> IntArray:
    return np.array([fitting.latest for fitting in problem.fitting])


def _load_cycles(links: Sequence[Link], clock_hz: float, stage: int | IntArray, n_bytes: IntArray) -> IntArray:
    """Cycles to load so many bytes over the link of a stage, or of one stage after the other along the last axis."""
    if isinstance(stage, int):
        return links[stage].load_cycles(n_bytes, clock_hz)
    return np.stack([links[s].load_cycles(n_bytes[..., s], clock_hz) for s in stage.tolist()], axis=-1)


class _Columns(NamedTuple):
    """Running sums of cycles by cut, for all stages whose ranges cost the same, and what ranges exchange.

    Attributes:
        prefixes: (3, K, B + 1) of compute, backward and weight cycles, for K kinds of stages.
        offsets: (3, K, B + 1) to be subtracted at starts.
        kind_of: (S,) the kind of every stage.
        exchanged: `Exchange.range_bytes`.
    """

    prefixes: IntArray
    offsets: IntArray
    kind_of: IntArray
    exchanged: tuple[IntArray, IntArray] | None

    @classmethod
    def of(cls, stages: StageTable, recomputes: bool, boundaries: Sequence[int]) -> _Columns:
        table, last, cuts = stages.costs_of(recomputes), stages.last_costs_of(recomputes), np.array(boundaries)
        tables = [*map(table.on, range(stages.n_stages - 1)), last.on(stages.n_stages - 1)]
        kinds = list({id(own): own for own in tables}.values())
        prefixes = np.array([_running_sums(own)[:, cuts] for own in kinds]).swapaxes(0, 1)
        offsets = prefixes.copy()
        offsets[0] = [own.start_offset_cycles[cuts] for own in kinds]
        numbers = {id(own): number for number, own in enumerate(kinds)}
        exchanged = None if table.exchange is None else table.exchange.range_bytes(boundaries)
        return cls(prefixes, offsets, np.array([numbers[id(own)] for own in tables]), exchanged)

    def between(self, stage: int | IntArray, starts: IntArray, stops: IntArray) -> IntArray:
        """(3, ...) compute, backward and weight cycles of `[start, stop)` as a stage, by a device's own clock."""
        if isinstance(stage, int) or len(self.prefixes[0]) == 1:
            kind = self.kind_of[stage] if isinstance(stage, int) else 0
            between: IntArray = self.prefixes[:, kind][:, stops] - self.offsets[:, kind][:, starts]
        else:
            kinds = self.kind_of[stage]
            between = self.prefixes[:, kinds, stops] - self.offsets[:, kinds, starts]
        return between


def _running_sums(table: CostTable) -> IntArray:
    """(3, n + 1) of compute, backward and weight cycles."""
    return np.stack((table.compute_prefix_cycles, table.backward_prefix_cycles, table.weight_prefix_cycles))


SHARES = (0.8, 0.6, 0.45)
"""Of a device's memory: what a stage may fill in plans that leave room for the other stages of its device."""
MAX_REPAIRS = 40
MOVES = (1, -1, 4, -4, 16, -16, 64, -64)


def shortest_periods(stages: StageTable) -> list[BoundedPlan]:
    """The plans of least period if every stage had a device of its own: with and without recomputation, if both fit.

    Raises:
        Infeasible: neither fits, so no plan does.
    """
    tried = [best_or_reason(table) for table in (stages.rows, stages.recomputing) if table is not None]
    if plans := [bounded for bounded in tried if isinstance(bounded, BoundedPlan)]:
        return plans
    failures = [reason() for reason in tried if not isinstance(reason, BoundedPlan)]
    raise min(failures, key=lambda failure: (not failure.excess_bytes, failure.excess_bytes))


def mixed_partition(costs: StageCosts) -> tuple[int, ...] | None:
    """Cuts between which every stage fits, alone on its device, if it recomputes where it must; None without any.

    Back from the end, a stage may start where one of its stops lets the next stage start.
    """
    n_blocks, n_stages = len(costs.problem.blocks), costs.stages.n_stages
    positions = np.arange(n_blocks + 1)
    starts = [positions == n_blocks]
    for stage in reversed(range(n_stages)):
        n_before = np.concatenate(([0], np.cumsum(starts[0])))
        starts.insert(0, n_before[costs.latest[stage] + 1] > n_before[positions + 1])
    if not starts[0][0]:
        return None
    cuts = [0]
    for stage, may_start in enumerate(starts[1:]):
        stops = np.flatnonzero(may_start[: costs.latest[stage][cuts[-1]] + 1])
        cuts.append(int(stops[-1]))
    return tuple(costs.problem.partition(cuts))


def starting_partitions(costs: StageCosts, periods: list[BoundedPlan]) -> list[tuple[int, ...]]:
    """The cuts of least period, and where several stages share a device, others that are likely to fit."""
    partitions = [bounded.plan.partition for bounded in periods]
    if costs.stages.one_each or any(costs.resolve(costs.cuts(partition)) for partition in partitions):
        return partitions
    loosest = costs.stages.recomputing or costs.stages.rows
    for partition in (*partitions, *_with_room(loosest)):
        cuts = _repaired(costs, costs.cuts(partition))
        if costs.resolve(cuts) is not None:
            return [*partitions, tuple(costs.problem.partition(cuts.tolist()))]
    return partitions


def _with_room(rows: CostTable) -> Iterator[tuple[int, ...]]:
    for share in SHARES:
        limits = (rows.memory_limit_bytes * share).astype(np.int64)
        best = best_or_reason(replace(rows, memory_limit_bytes=limits))
        if not isinstance(best, BoundedPlan):
            return
        yield best.plan.partition


def _repaired(costs: StageCosts, cuts: IntArray) -> IntArray:
    """Cuts after moves of one cut at a time, which go on while the sum of the devices' missing bytes falls."""
    n_devices = len(costs.stages.in_flight)

    def lacks(cuts: IntArray) -> list[int]:
        return [max(0, costs.excess_bytes(device, cuts)) for device in range(n_devices)]

    lacking = lacks(cuts)
    for _ in range(MAX_REPAIRS):
        if not any(lacking):
            break
        own = costs.of_device[int(np.argmax(lacking))]
        tries = []
        for cut in {s + end for s in own for end in (0, 1)} - {0, len(cuts) - 1}:
            for move in MOVES:
                if cuts[cut - 1] < cuts[cut] + move < cuts[cut + 1]:
                    moved = cuts.copy()
                    moved[cut] += move
                    tries.append((lacks(moved), moved.tolist()))
        best = min(tries, key=lambda pair: (sum(pair[0]), pair[1]), default=None)
        if best is None or sum(best[0]) >= sum(lacking):
            break
        lacking, cuts = best[0], np.array(best[1])
    return cuts
