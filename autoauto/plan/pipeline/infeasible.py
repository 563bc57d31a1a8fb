"""The error for a table without a plan that respects the limits, with the reason: `why_infeasible`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from autoauto.plan.pipeline.blocks import BlockBytes, BlockMemory
from autoauto.plan.pipeline.problem import CutProblem, evaluate
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.units import IntArray, format_bytes

NEVER = 2**62  # more bytes than any range can lack


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
            f"variable, got {n_blocks - 1}; layers {longest} must stay together, try at most {n_blocks} devices",
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

    The memory of the stages that stop at a block follows from that of those which stop one block before, for all
    starts at once, so it takes O(B^2) operations a device.
    """
    blocks, n_stages = problem.blocks, problem.n_stages
    keys = list(zip(table.memory_limit_bytes.tolist(), blocks.stash_entries, strict=True))
    different = list(dict.fromkeys(keys))
    of_stage = np.array([different.index(key) for key in keys])
    limits, entries = np.array(different, dtype=np.int64).T[:, :, None]
    forms = [_Stops(form, len(blocks)) for form in blocks.forms]
    lacking = np.full((n_stages + 1, len(blocks) + 1), NEVER)
    lacking[0, 0] = -NEVER
    starts = np.zeros((n_stages + 1, len(blocks) + 1), dtype=np.int64)
    for stop in range(1, len(blocks) + 1):
        excess = np.minimum.reduce([form.bytes_until(stop, entries) for form in forms]) - limits
        tightest = np.maximum(lacking[:-1, :stop], excess[of_stage])
        starts[1:, stop] = tightest.argmin(axis=1)
        lacking[1:, stop] = tightest.min(axis=1)
    cuts = [len(blocks)]
    for stage in range(n_stages, 0, -1):
        cuts.append(int(starts[stage, cuts[-1]]))
    return evaluate(table, problem.partition(cuts[::-1]))


class _Stops:
    """`BlockMemory` of the ranges from every start to one stop after the other."""

    def __init__(self, form: BlockMemory, n_blocks: int) -> None:
        self._form, self._shared, self._last_use = form, np.zeros(n_blocks, dtype=np.int64), dict[int, int]()
        self._first, self._entry = (
            _RangeStops(form.one_in_flight, n_blocks),
            _RangeStops(form.stash_entry, n_blocks),
        )

    def bytes_until(self, stop: int, entries: IntArray) -> IntArray:
        """(E, stop) bytes from every start to `stop`, one larger than before, by (E, 1) entries in the stash."""
        for key in self._form.shared_keys[stop - 1]:
            self._shared[self._last_use.get(key, -1) + 1 : stop] += self._form.shared_bytes[key]
            self._last_use[key] = stop - 1
        n_bytes: IntArray = (
            self._first.bytes_until(stop) + self._shared[:stop] + entries * self._entry.bytes_until(stop)
        )
        return n_bytes


class _RangeStops:
    """`BlockBytes` of the ranges from every start to one stop after the other."""

    def __init__(self, n_bytes: BlockBytes, n_blocks: int) -> None:
        self._stop, self._start = np.array(n_bytes.stop_bytes), np.array(n_bytes.start_bytes)
        self._columns = [np.array(column) for column in n_bytes.maxima_bytes]
        self._largest = np.full((len(self._columns), n_blocks), -NEVER)

    def bytes_until(self, stop: int) -> IntArray:
        """(stop,) bytes from every start to `stop`, which is one larger than before."""
        for largest, column in zip(self._largest, self._columns, strict=True):
            np.maximum(largest[:stop], column[stop - 1], out=largest[:stop])
        n_bytes: IntArray = self._stop[stop] - self._start[:stop] + self._largest[:, :stop].sum(axis=0)
        return n_bytes


def excess_bytes(plan: Plan) -> int:
    """By how much the tightest stage exceeds its limit; negative when all fit."""
    return _excess_bytes(_tightest(plan))


def _tightest(plan: Plan) -> Stage:
    return max(plan.stages, key=_excess_bytes)


def _excess_bytes(stage: Stage) -> int:
    return stage.total_bytes - stage.limit_bytes
