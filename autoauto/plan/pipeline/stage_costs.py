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
    """The stages of a plan that recompute."""

    recomputes: tuple[bool, ...]  # for every stage whether it does
    is_certain: bool  # no other choice could make the step shorter


@dataclass(frozen=True)
class StageCosts:
    """The costs of a `StageTable`.

    Attributes:
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
        columns = {stages.recompute: _Columns.of(stages, stages.recompute, problem.blocks.cuts)}
        if stages.recomputing is not None:
            columns[not stages.recompute] = _Columns.of(stages, not stages.recompute, problem.blocks.cuts)
            # A range may be a stage if it fits in either way; `stage` decides which of them it takes.
            recomputing = prepare(replace(stages.recomputing, exchange=None)).fitting
            pairs = zip(problem.fitting, recomputing, strict=True)
            problem = replace(problem, fitting=[stashed.or_in(recomputed) for stashed, recomputed in pairs])
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
        plain = self._of(stage, starts, stops, self.stages.recompute)
        if self.stages.recomputing is None:
            return plain
        must = (stops > self.plain_latest[stage, starts])[..., None]
        return np.where(must, self._of(stage, starts, stops, not self.stages.recompute), plain)

    def _of(self, stage: int | IntArray, starts: IntArray, stops: IntArray, recomputes: bool) -> FloatArray:
        """(..., 5) forward, backward, weight, receive and send cycles of the reference clock."""
        columns = self._columns[recomputes]
        numerators, denominators, receive_rows, send_rows = self._rows
        cycles = columns.between(stage, starts, stops)
        # As `reference_cycles`: divided by the speed and rounded up, for all stages at once.
        compute, backward, weight = -(-cycles * denominators[stage] // numerators[stage])
        receive = receive_rows[stage, starts]
        send = send_rows[stage, stops]
        exchange = self.stages.rows.exchange
        if columns.exchanged is not None and exchange is not None:
            received, sent = columns.exchanged
            receive = receive + _load_cycles(exchange.receive_links, exchange.clock_hz, stage, received[starts, stops])
            send = send + _load_cycles(exchange.send_links, exchange.clock_hz, stage, sent[starts, stops])
        costs = np.broadcast_arrays(compute - backward, backward, weight, receive, send)
        return np.stack(costs, axis=-1).astype(np.float64)

    @cached_property
    def _rows(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """(S,) numerators and denominators of the speeds, and (S, cuts) cycles to receive and to send there."""
        speeds, blocks = self.problem.speeds, self.problem.blocks
        return (
            np.array([speed.numerator for speed in speeds]),
            np.array([speed.denominator for speed in speeds]),
            np.array(blocks.receive_rows),
            np.array(blocks.send_rows),
        )

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

        A stage recomputes if it must. Where several share a device, more may have to: then the stages whose second
        forward passes take the fewest cycles in total.
        """
        recomputes = self.must_recompute(cuts)
        if self.stages.one_each:
            return Choice(tuple(recomputes), is_certain=True)
        is_certain = True
        for device, own in enumerate(self.of_device):
            key = self._cuts_of(device, cuts)
            if key not in self._choices:
                self._choices[key] = self._on_device(device, cuts, [recomputes[s] for s in own])
            choice = self._choices[key]
            if choice is None:
                return None
            for s, flag in zip(own, choice.recomputes, strict=True):
                recomputes[s] = flag
            is_certain &= choice.is_certain
        return Choice(tuple(recomputes), is_certain)

    def _on_device(self, device: int, cuts: IntArray, must: Sequence[bool]) -> Choice | None:
        """Do as `resolve` for one device; `must` says which of its stages recompute in any case."""
        extra_cycles: dict[int, float] = {}  # of recomputation, for the stages that have a choice
        if self.stages.recomputing is not None:
            for i, s in enumerate(self.of_device[device]):
                if not must[i]:
                    backward = [self._of(s, cuts[s], cuts[s + 1], flag)[1] for flag in (True, False)]
                    extra_cycles[i] = float(backward[0] - backward[1])
        free = tuple(extra_cycles)
        # Many stages have too many subsets: then the empty one, those of one stage, and the whole are tried.
        largest = len(free) if len(free) <= MAX_CHOSEN else 1
        subsets = {free}
        for size in range(largest + 1):
            subsets.update(combinations(free, size))
        for subset in sorted(subsets, key=lambda subset: (sum(extra_cycles[i] for i in subset), subset)):
            flags = tuple(flag or i in subset for i, flag in enumerate(must))
            if self._excess_bytes(device, cuts, flags) <= 0:
                # Another subset with more extra cycles may still make a shorter step, if they are off its longest path.
                return Choice(flags, is_certain=not subset)
        return None

    def excess_bytes(self, device: int, cuts: IntArray) -> int:
        """Bytes by which the stages of a device exceed it if all that may recompute do; negative if bytes are free."""
        key = self._cuts_of(device, cuts)
        if key not in self._excess:
            recompute = self.stages.recompute or self.stages.recomputing is not None
            self._excess[key] = self._excess_bytes(device, cuts, [recompute] * len(self.of_device[device]))
        return self._excess[key]

    def _cuts_of(self, device: int, cuts: IntArray) -> tuple[int, ...]:
        """The key of the caches: the device, and the start and stop of each of its stages."""
        key = [device]
        for s in self.of_device[device]:
            key += cuts[s : s + 2].tolist()
        return tuple(key)

    def _excess_bytes(self, device: int, cuts: IntArray, recomputes: Sequence[bool]) -> int:
        """Bytes by which the stages of a device exceed it together (`device_memory`)."""
        own = self.of_device[device]
        # Where devices cost the same, so do all rows: the cache then needs the entries of one row only.
        row = own[0] if self.stages.rows.of_devices else 0
        parts = []
        for s, flag in zip(own, recomputes, strict=True):
            parts.append(self._memory(row, int(cuts[s]), int(cuts[s + 1]), flag))
        n_bytes = device_bytes(parts, self.stages.in_flight[device])
        return n_bytes - int(self.stages.rows.memory_limit_bytes[own[0]])

    def _memory(self, stage: int, start: int, stop: int, recomputes: bool) -> StageBytes[int]:
        key = (stage, start, stop, recomputes)
        if key not in self._memories:
            layers = self.problem.blocks.cuts
            self._memories[key] = self.stages.stage_memory(stage, layers[start], layers[stop], recomputes)
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
        table = stages.costs_of(recomputes)
        tables = [table.on(stage) for stage in range(stages.n_stages - 1)]
        tables.append(stages.last_costs_of(recomputes).on(stages.n_stages - 1))
        kinds = {id(own): own for own in tables}
        numbers = {identity: number for number, identity in enumerate(kinds)}
        cuts = np.array(boundaries)
        prefixes = np.stack(
            (
                [own.compute_prefix_cycles[cuts] for own in kinds.values()],
                [own.backward_prefix_cycles[cuts] for own in kinds.values()],
                [own.weight_prefix_cycles[cuts] for own in kinds.values()],
            )
        )
        offsets = prefixes.copy()
        offsets[0] = [own.start_offset_cycles[cuts] for own in kinds.values()]  # to enter a range takes compute, too
        exchanged = None
        if table.exchange is not None:
            exchanged = table.exchange.range_bytes(boundaries)
        return cls(prefixes, offsets, np.array([numbers[id(own)] for own in tables]), exchanged)

    def between(self, stage: int | IntArray, starts: IntArray, stops: IntArray) -> IntArray:
        """(3, ...) compute, backward and weight cycles of `[start, stop)` as a stage, by a device's own clock."""
        kinds = self.kind_of[stage]
        if isinstance(stage, int) or len(self.prefixes[0]) == 1:
            kind = kinds if isinstance(stage, int) else 0  # one kind for all: columns of one row are indexed sooner
            between: IntArray = self.prefixes[:, kind][:, stops] - self.offsets[:, kind][:, starts]
        else:
            between = self.prefixes[:, kinds, stops] - self.offsets[:, kinds, starts]
        return between


SHARES = (0.8, 0.6, 0.45)
"""Of a device's memory: what a stage may fill in plans that leave room for the other stages of its device."""
MAX_REPAIRS = 40
MOVES = (1, -1, 4, -4, 16, -16, 64, -64)


def shortest_periods(stages: StageTable) -> list[BoundedPlan]:
    """The plans of least period if every stage had a device of its own: with and without recomputation, if both fit.

    Raises Infeasible if neither fits, so no plan does.
    """
    plans, reasons = [], []
    for table in (stages.rows, stages.recomputing):
        if table is None:
            continue
        best = best_or_reason(table)
        if isinstance(best, BoundedPlan):
            plans.append(best)
        else:
            reasons.append(best)
    if not plans:
        # An error without missing bytes comes last: no memory would help against it.
        raise min((reason() for reason in reasons), key=lambda error: (not error.excess_bytes, error.excess_bytes))
    return plans


def mixed_partition(costs: StageCosts) -> tuple[int, ...] | None:
    """Cuts between which every stage fits, alone on its device, if it recomputes where it must; None without any.

    Back from the end, a stage may start where one of its stops lets the next stage start:

        cut               0 1 2 3 4 5 6
        end                           x
        stage 2 starts          x x x        from cut 3 on it fits up to the end
        stage 1 starts    x x x x            from cut 0 it fits up to cut 3

    """
    n_blocks, n_stages = len(costs.problem.blocks), costs.stages.n_stages
    positions = np.arange(n_blocks + 1)
    may_start = [positions == n_blocks]  # of every stage, from the end back; after the last one comes the end
    for stage in reversed(range(n_stages)):
        # Its stops are start + 1 up to the latest one that fits: does the next stage start at any of them?
        n_before = np.concatenate(([0], np.cumsum(may_start[-1])))
        may_start.append(n_before[costs.latest[stage] + 1] > n_before[positions + 1])
    may_start.reverse()
    if not may_start[0][0]:
        return None
    cuts = [0]
    for stage in range(n_stages):
        stops = np.flatnonzero(may_start[stage + 1][: costs.latest[stage][cuts[-1]] + 1])
        cuts.append(int(stops[-1]))
    return tuple(costs.problem.partition(cuts))


def starting_partitions(costs: StageCosts, periods: list[BoundedPlan]) -> list[tuple[int, ...]]:
    """The cuts of least period; if none of them fits and stages share devices, also cuts that are likely to fit."""
    partitions = [bounded.plan.partition for bounded in periods]
    if costs.stages.one_each or any(costs.resolve(costs.cuts(partition)) for partition in partitions):
        return partitions
    for partition in chain(partitions, _with_room(costs.stages.recomputing or costs.stages.rows)):
        cuts = _repaired(costs, costs.cuts(partition))
        if costs.resolve(cuts) is not None:
            return [*partitions, tuple(costs.problem.partition(cuts.tolist()))]
    return partitions


def _with_room(rows: CostTable) -> Iterator[tuple[int, ...]]:
    """Cuts of least period with stages that fill a share of their device each, for ever smaller shares."""
    for share in SHARES:
        limits = (rows.memory_limit_bytes * share).astype(np.int64)
        best = best_or_reason(replace(rows, memory_limit_bytes=limits))
        if not isinstance(best, BoundedPlan):
            return
        yield best.plan.partition


def _repaired(costs: StageCosts, cuts: IntArray) -> IntArray:
    """Cuts after moves of one cut at a time, which go on while the sum of the devices' missing bytes falls."""
    n_devices = len(costs.stages.in_flight)

    def missing_bytes(cuts: IntArray) -> list[int]:
        return [max(0, costs.excess_bytes(device, cuts)) for device in range(n_devices)]

    missing = missing_bytes(cuts)
    for _ in range(MAX_REPAIRS):
        if not any(missing):
            break
        # Only the cuts at both ends of its stages change the bytes of the device that lacks most.
        own = costs.of_device[int(np.argmax(missing))]
        movable = {*own, *(s + 1 for s in own)} - {0, len(cuts) - 1}
        tries = []
        for cut in movable:
            for move in MOVES:
                if cuts[cut - 1] < cuts[cut] + move < cuts[cut + 1]:
                    moved = cuts.copy()
                    moved[cut] += move
                    tries.append((missing_bytes(moved), moved.tolist()))
        best = min(tries, key=lambda pair: (sum(pair[0]), pair[1]), default=None)
        if best is None or sum(best[0]) >= sum(missing):
            break
        missing, cuts = best[0], np.array(best[1])
    return cuts
