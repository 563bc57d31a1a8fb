"""Plans from which a search for the shortest step begins: `starting_partitions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from autoauto.plan.pipeline.optimal import best_or_reason
from autoauto.plan.pipeline.stage_costs import StageCosts
from autoauto.plan.pipeline.stage_table import StageTable
from autoauto.records.arrays import IntArray
from autoauto.records.cost import CostTable
from autoauto.records.plan import BoundedPlan

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
    """Cuts moved one by one, as long as that makes the sum of what the devices lack smaller."""
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
