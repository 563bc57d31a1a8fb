"""Plans for fewer devices: `best_per_device_count`, and `replicas` of a shorter pipeline side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from autoauto.plan.pipeline.optimal import solve
from autoauto.plan.pipeline.problem import Problem, check_one_in_flight, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan, Replicas


def best_per_device_count(table: CostTable) -> dict[int, Plan | Infeasible]:
    """The best plan on the first n devices, or why there is none, for every n from 1 to n_devices.

    The layers are prepared once for all of them.

    Raises:
        BadInput: devices stash activations of several micro-batches.
    """
    check_one_in_flight(table, "every number of devices")
    problem = prepare(table)
    outcomes: dict[int, Plan | Infeasible] = {}
    for n_ipu in range(1, table.n_devices + 1):
        try:
            outcomes[n_ipu] = solve(table.part(0, n_ipu), problem.part(0, n_ipu)).plan
        except Infeasible as failure:
            outcomes[n_ipu] = failure
    return outcomes


def replicas(table: CostTable) -> Replicas:
    """Pipelines of equal length, side by side, with the highest throughput together.

    Every length n from 1 to n_devices is tried, with as many replicas as the devices allow: replica r runs the best
    plan of the devices [r n, (r + 1) n) and is left out if none fits. Replicas do not share the links to the host.

    Raises:
        BadInput: devices stash activations of several micro-batches.
        Infeasible: no pipeline of any length fits; of all the errors, the one with the fewest missing bytes.
    """
    check_one_in_flight(table, "replicas")
    problem, failures = prepare(table), []
    best: tuple[Fraction, Replicas] | None = None
    for n_ipu in range(1, table.n_devices + 1):
        outcomes = list(_pipelines(table, problem, n_ipu))
        failures += [outcome for outcome in outcomes if isinstance(outcome, Infeasible)]
        plans = tuple(outcome for outcome in outcomes if isinstance(outcome, Plan))
        rate = sum((Fraction(1, max(plan.cost_cycles, 1)) for plan in plans), Fraction(0))
        if plans and (best is None or rate > best[0]):
            best = rate, Replicas(plans)
    if best is None:
        raise min(failures, key=lambda failure: (failure.excess_bytes == 0, failure.excess_bytes))
    return best[1]


def _pipelines(table: CostTable, problem: Problem, n_ipu: int) -> Iterator[Plan | Infeasible]:
    """The best plan, or why there is none, for every group of `n_ipu` neighbours; equal groups are planned once."""
    planned: list[tuple[Problem, Plan | Infeasible]] = []
    for first in range(0, table.n_devices - n_ipu + 1, n_ipu):
        part = problem.part(first, first + n_ipu)
        outcome = next((outcome for group, outcome in planned if group == part), None)
        if outcome is None:
            try:
                outcome = solve(table.part(first, first + n_ipu), part).plan
            except Infeasible as failure:
                outcome = failure
            planned.append((part, outcome))
        yield _shifted(outcome, first) if isinstance(outcome, Plan) else outcome


def _shifted(plan: Plan, first: int) -> Plan:
    """The plan on devices counted from `first`."""
    return replace(plan, stages=tuple(replace(stage, device=stage.device + first) for stage in plan.stages))
