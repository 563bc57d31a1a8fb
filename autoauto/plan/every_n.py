"""The plan for every number of devices, from one to all."""

from __future__ import annotations

from autoauto.plan.optimal import solve
from autoauto.plan.problem import check_one_in_flight, prepare
from autoauto.records.cost import CostTable
from autoauto.records.errors import Infeasible
from autoauto.records.plan import Plan


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
