"""The oracle of the planner's tests: every partition in turn, for models of up to about 20 layers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import combinations, pairwise

from autoauto.plan.pipeline.problem import stage_of
from autoauto.records.costs.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plans.plan import Plan


def exhaustive(table: CostTable) -> Plan:
    """The cheapest of all partitions that respect the limits, the first in order among equals.

    Raises:
        Infeasible: there is none; `excess_bytes` is the smallest amount by which all limits must grow.
    """
    fitting = list(all_fitting(table))
    if not fitting:
        excess = [_excess_bytes(plan) for plan in _plans(table)]
        smallest = min(excess, default=0)
        raise Infeasible(f"none of {len(excess)} partitions fits, at least {smallest} bytes are missing", smallest)
    return min(fitting, key=lambda plan: plan.cost_cycles)


def all_fitting(table: CostTable) -> Iterator[Plan]:
    """Every plan that respects the limits, in the order of their partitions."""
    return (plan for plan in _plans(table) if _excess_bytes(plan) <= 0)


def _excess_bytes(plan: Plan) -> int:
    """By how much the tightest stage exceeds its limit; negative when all fit."""
    return max(stage.total_bytes - stage.limit_bytes for stage in plan.stages)


def _plans(table: CostTable) -> Iterator[Plan]:
    """Every plan, as `evaluate` makes it; a stage is made once for all partitions that have it."""
    stage = cache(partial(stage_of, table))
    allowed = [cut for cut in range(1, table.n_layers) if table.cut_allowed[cut]]
    for cuts in combinations(allowed, table.n_devices - 1):
        stages = (stage(device, *layers) for device, layers in enumerate(pairwise((0, *cuts, table.n_layers))))
        yield Plan(tuple(stages), table.period, table.host_cycles)
