"""The best plan there is: the least max compute + max transfer, exactly."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from autoauto.plan.blocks import contract
from autoauto.plan.evaluate import evaluate
from autoauto.plan.explain import why_infeasible
from autoauto.plan.least import least
from autoauto.plan.probe import UNBOUNDED, Problem, probe
from autoauto.plan.reach import earliest_starts_by_device
from autoauto.records.cost import CostTable
from autoauto.records.plan import Plan


def optimal(table: CostTable) -> Plan:
    """The plan of least cost over exactly n_devices non-empty stages, within memory limits and legal cuts.

    The seed's objective (seed 001, "Considering data transfer time"): the largest compute of a stage plus the largest
    transfer of a stage. No other plan costs less; several may cost the same.

    Raises:
        Infeasible: no plan respects the limits; the error says which limit and what is missing.
    """
    blocks = contract(table)
    earliest = earliest_starts_by_device(blocks, table.memory_limit_bytes.tolist())
    problem = Problem(blocks, earliest)
    cuts = _cheapest(problem, _lowest_transfer(table)) if len(blocks) >= table.n_devices else None
    if cuts is None:
        raise why_infeasible(table)
    return evaluate(table, [blocks.cuts[cut] for cut in cuts])


def _cheapest(problem: Problem, lowest_transfer: int) -> list[int] | None:
    """Walk over the trade between compute and transfer, from the least compute upwards (PLANNER.md, "Search").

    No plan with compute below `low` costs less than `cost`. One that costs less must then transfer in at most
    `cost - low - 1`; the least compute at which that can be had is the next stop, and there the least transfer is
    found. Compute rises and `cost` falls until they leave no room between them.
    """
    best, cost = None, UNBOUNDED
    prefix = problem.blocks.compute_prefix_cycles
    largest_block = max(stop - start for start, stop in pairwise(prefix))
    low = max(largest_block, -(-prefix[-1] // problem.n_stages))
    while low + lowest_transfer < cost:
        within_transfer = partial(probe, problem, transfer_cycles=cost - low - 1)
        high = min(prefix[-1], cost - lowest_transfer - 1)
        cuts = least(within_transfer, problem.compute_cycles, low, high, low + largest_block // 8)
        if cuts is None:
            break
        compute = problem.compute_cycles(cuts)
        if problem.cost_cycles(cuts) < cost:
            best, cost = cuts, problem.cost_cycles(cuts)
        within_compute = partial(probe, problem, compute)
        high = cost - compute - 1
        cuts = least(within_compute, problem.transfer_cycles, lowest_transfer, high, high)
        if cuts is not None:
            best, cost = cuts, problem.cost_cycles(cuts)
        low = compute + 1
    return best


def _lowest_transfer(table: CostTable) -> int:
    """No plan transfers in less: some device receives and sends at least this."""
    return int((table.receive_cycles.min(axis=1) + table.send_cycles[:, 1:].min(axis=1)).max())
