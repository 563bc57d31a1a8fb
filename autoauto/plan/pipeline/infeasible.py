"""The error for a table without a plan that respects the limits, with the reason: `why_infeasible`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from autoauto.plan.pipeline.blocks import EarliestStarts, earliest_starts
from autoauto.plan.pipeline.evaluate import evaluate
from autoauto.plan.pipeline.probe import UNBOUNDED, probe, search_smallest_bound
from autoauto.plan.pipeline.problem import Problem
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.units import format_bytes


def why_infeasible(table: CostTable, problem: Problem) -> Infeasible:
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


def _minimum_excess_plan(table: CostTable, problem: Problem) -> Plan:
    """The plan that fits with the smallest allowance on top of every limit."""
    if table.n_devices == 1:
        return evaluate(table, (0, table.n_layers))
    devices = list(zip(table.memory_limit_bytes.tolist(), problem.blocks.stash_entries, strict=True))
    by_device: dict[tuple[int, int], EarliestStarts] = {}  # keys: the device's limit and its stash entries

    def fit(allowance: int) -> Plan | None:
        by_device.update(
            {(limit, n): earliest_starts(problem.blocks, limit + allowance, n) for limit, n in set(devices)}
        )
        earliest = [by_device[device].starts for device in devices]
        cuts = probe(replace(problem, earliest=earliest), UNBOUNDED, UNBOUNDED)
        return None if cuts is None else evaluate(table, problem.partition(cuts))

    def snap(_: int) -> int:
        """The next allowance that lets any stage start earlier than at the last attempt, which failed."""
        return min(
            starts.next_bytes - limit for (limit, _), starts in by_device.items() if starts.next_bytes is not None
        )

    largest_stash = max(range(table.n_devices), key=problem.blocks.stash_entries.__getitem__)
    whole = sum(table.memory_bytes(0, table.n_layers, largest_stash).values())
    plan = search_smallest_bound(fit, excess_bytes, 1, whole, first=whole // 64, snap=snap)
    assert plan is not None  # `whole` more bytes hold any range
    return plan


def excess_bytes(plan: Plan) -> int:
    """By how much the tightest stage exceeds its limit; negative when all fit."""
    return _excess_bytes(_tightest(plan))


def _tightest(plan: Plan) -> Stage:
    return max(plan.stages, key=_excess_bytes)


def _excess_bytes(stage: Stage) -> int:
    return stage.total_bytes - stage.limit_bytes
