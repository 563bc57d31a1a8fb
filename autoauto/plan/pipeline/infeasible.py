"""The error for a table without a plan that respects the limits, with the reason: `why_infeasible`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from autoauto.plan.pipeline.fitting import NEVER, RangeEnds, SharedUses, bytes_by_ends, earliest_starts, parts
from autoauto.plan.pipeline.problem import CutProblem, evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import IntArray, format_bytes

Made = TypeVar("Made")


def feasible(attempts: Iterable[Callable[[], Made]]) -> list[Made]:
    """What the attempts make that do not raise Infeasible; if none does, the failure that lacks least is raised."""
    made: list[Made] = []
    failures: list[Infeasible] = []
    for attempt in attempts:
        try:
            made.append(attempt())
        except Infeasible as failure:
            failures.append(failure)
    if not made:
        raise min(failures, key=lambda failure: (not failure.excess_bytes, failure.excess_bytes))
    return made


def why_infeasible(table: CostTable, problem: CutProblem) -> Infeasible:
    """The error that says what rules out every plan: too few layers, too few legal cuts, or too little memory.

    Where memory is the reason, `excess_bytes` is the smallest allowance that, added to every limit, lets some plan fit,
    and `layers` is the stage of that plan which needs it. Otherwise `excess_bytes` is 0. `problem` is made of `table`.
    """
    failure = too_few_cuts(problem.blocks.cuts, table.n_devices)
    if failure is not None:
        return failure
    return out_of_memory(_minimum_excess_plan(table, problem))


def too_few_cuts(cuts: Sequence[int], n_devices: int) -> Infeasible | None:
    """The error where stages between some of these cuts, 0 and the number of layers among them, are too few."""
    n_layers, n_blocks = cuts[-1], len(cuts) - 1
    if n_layers < n_devices:
        return Infeasible(
            f"{n_devices} devices need a layer each, got {n_layers}; try at most {n_layers} devices",
            excess_bytes=0,
        )
    if n_blocks < n_devices:
        longest = max((LayerRange(*ends) for ends in pairwise(cuts)), key=lambda layers: layers[1] - layers[0])
        return Infeasible(
            f"{n_devices} devices need {n_devices - 1} cuts between layers that share no "
            f"variable, got {n_blocks - 1}; layers {longest} must stay together, as an embedding and a head that share "
            f"a table; try at most {n_blocks} devices a pipeline with --replicas, or a file where each has its own",
            excess_bytes=0,
            layers=longest,
        )
    return None


def out_of_memory(plan: Plan) -> Infeasible:
    """The error for the plan that exceeds its devices least: what is missing, and where."""
    stage, excess = _tightest(plan), excess_bytes(plan)
    return Infeasible(
        f"every stage must fit its device, but at best one exceeds it by {format_bytes(excess)}: layers {stage.layers} "
        f"need {format_bytes(stage.total_bytes)} of {format_bytes(stage.limit_bytes)} on device {stage.device}; "
        "try a smaller batch size, more devices or a larger planning proportion",
        excess_bytes=excess,
        layers=stage.layers,
        memory_bytes=stage.memory_bytes,
    )


def _minimum_excess_plan(table: CostTable, problem: CutProblem) -> Plan:
    """The plan whose tightest stage lacks least: a shortest path over cuts that is as long as its longest edge.

        lacking(stage, stop) = min over start of  max(lacking(stage - 1, start), excess of [start, stop))

    The first stage starts at 0 only, and the last one stops at the end only. What another plan lacks bounds the
    smallest, so the stages between them are looked at only where they do not lack more.
    """
    n_blocks, n_stages = len(problem.blocks), problem.n_stages
    excess = _Excess(table, problem)
    lacking = np.full((n_stages + 1, n_blocks + 1), NEVER)  # by the number of stages, and the stop of the last
    starts = np.zeros((n_stages + 1, n_blocks + 1), dtype=np.int64)  # of this last stage
    from_first = excess.by_ends(RangeEnds(range(1, n_blocks + 1), range(1)))
    lacking[1, 1:] = from_first[excess.key_of[0], :, 0]
    if n_stages > 2:
        _between_ends(table, problem, excess, lacking, starts)
    if n_stages > 1:
        to_end = excess.by_ends(RangeEnds(range(n_blocks, n_blocks + 1), range(n_blocks)))[excess.key_of[-1], 0]
        starts[-1, -1] = np.maximum(lacking[-2, :-1], to_end).argmin()
    cuts = [n_blocks]
    for stage in range(n_stages, 0, -1):
        cuts.append(int(starts[stage, cuts[-1]]))
    return evaluate(table, problem.partition(cuts[::-1]))


def _between_ends(table: CostTable, problem: CutProblem, excess: _Excess, lacking: IntArray, starts: IntArray) -> None:
    """Fill in `lacking` and `starts` for all stages but the first and the last."""
    allowance = excess_bytes(evaluate(table, problem.partition(_even_cuts(problem))))
    earliest = excess.earliest_starts(allowance)
    of_stage = excess.key_of[1:-1]
    for ends in parts(earliest, range(1, len(problem.blocks))):
        all_bytes = excess.by_ends(ends)
        for row, stop in enumerate(ends.stops):
            start = earliest[stop]
            by_start = all_bytes[:, row, start - ends.starts.start : stop - ends.starts.start]
            tightest = np.maximum(lacking[1:-2, start:stop], by_start[of_stage])
            if start < stop:
                starts[2:-1, stop] = start + tightest.argmin(axis=1)
                lacking[2:-1, stop] = tightest.min(axis=1)


def _even_cuts(problem: CutProblem) -> list[int]:
    sums, n_stages = problem.blocks.costs[0].forms[0].one_in_flight.stop_bytes, problem.n_stages
    wanted = np.linspace(sums[0], sums[-1], n_stages + 1)
    first, last = np.array(problem.cut_limits).T
    cuts = np.clip(np.searchsorted(sums, wanted), first, last)
    # Less their numbers, cuts only need to ascend: then every stage has a block or more.
    numbers = np.arange(n_stages + 1)
    cuts = np.maximum.accumulate(cuts - numbers) + numbers
    even: list[int] = np.minimum(cuts, last).tolist()
    return even


class _Excess:
    """By how much ranges exceed the limit of a device, for all devices that differ in it, their stash or their costs.

    `key_of` says by device which of the different ones it is.
    """

    def __init__(self, table: CostTable, problem: CutProblem) -> None:
        blocks = problem.blocks
        self._costs = {id(costs): costs for costs in blocks.costs}
        keys = list(zip(map(id, blocks.costs), table.memory_limit_bytes.tolist(), blocks.stash_entries, strict=True))
        self._keys = list(dict.fromkeys(keys))
        self.key_of = np.array([self._keys.index(key) for key in keys])
        self._shared: dict[int, list[SharedUses]] = {}
        for number, costs in self._costs.items():
            self._shared[number] = [SharedUses.of(form.shared_keys, form.shared_bytes) for form in costs.forms]

    def earliest_starts(self, allowance: int) -> list[int]:
        """By stop a start before which every device lacks more than `allowance`."""
        known = [earliest_starts(self._costs[own], limit + allowance, entries) for own, limit, entries in self._keys]
        return list(map(min, zip(*known, strict=True)))

    def by_ends(self, ends: RangeEnds) -> IntArray:
        """(keys, stops, starts) bytes; every range is the program that needs least."""
        forms = {number: list(self._forms(number, ends)) for number in self._costs}
        excess = []
        for own, limit, entries in self._keys:
            n_bytes = [first + entries * entry for first, entry in forms[own]]
            excess.append(np.minimum.reduce(n_bytes) - limit)
        return np.stack(excess)

    def _forms(self, number: int, ends: RangeEnds) -> Iterator[tuple[IntArray, IntArray | int]]:
        """By program form: bytes with one micro-batch in flight, and bytes of each more; 0 if no device has more."""
        has_stash = any(entries for *_, entries in self._keys)
        for form, shared in zip(self._costs[number].forms, self._shared[number], strict=True):
            entry: IntArray | int = 0
            if has_stash:
                entry = bytes_by_ends(form.stash_entry, ends)
            yield bytes_by_ends(form.one_in_flight, ends) + shared.by_ends(ends), entry


def excess_bytes(plan: Plan) -> int:
    """Bytes by which the tightest stage exceeds its limit; negative if all fit."""
    return _excess_bytes(_tightest(plan))


def _tightest(plan: Plan) -> Stage:
    return max(plan.stages, key=_excess_bytes)


def _excess_bytes(stage: Stage) -> int:
    return stage.total_bytes - stage.limit_bytes
