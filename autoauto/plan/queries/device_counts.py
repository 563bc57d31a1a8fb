"""The plan for every number of devices, from one to all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from autoauto.plan.pipeline.optimal import solve
from autoauto.plan.pipeline.problem import Problem, check_one_in_flight, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan, Replicas


def every_n(table: CostTable) -> dict[int, Plan | Infeasible]:
    """The best plan on the first n devices, or why there is none, for every n from 1 to n_devices.

    The layers are prepared once for all of them.

    Raises:
        BadInput: devices keep activations of several micro-batches.
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
    """As many pipelines of equal length as the devices allow: those that finish the most micro-batches together.

    Every length n from 1 to n_devices is tried: replica r runs on the devices [r n, (r + 1) n) by the best plan for
    these, and one that does not fit there is left out. Every replica has the host at both ends for itself.

    Raises:
        BadInput: devices keep activations of several micro-batches.
        Infeasible: not one pipeline of any length fits; of all the errors, the one with the fewest bytes missing.
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
    """The outcome on every group of `n_ipu` neighbours; groups of equal devices and links are planned once."""
    known: list[tuple[Problem, Plan | Infeasible]] = []
    for first in range(0, table.n_devices - n_ipu + 1, n_ipu):
        part = problem.part(first, first + n_ipu)
        outcome = next((outcome for group, outcome in known if group == part), None)
        if outcome is None:
            try:
                outcome = solve(table.part(first, first + n_ipu), part).plan
            except Infeasible as failure:
                outcome = failure
            known.append((part, outcome))
        yield _moved(outcome, first) if isinstance(outcome, Plan) else outcome


def _moved(plan: Plan, first: int) -> Plan:
    """The plan on devices counted from `first`."""
    return replace(plan, stages=tuple(replace(stage, device=stage.device + first) for stage in plan.stages))
