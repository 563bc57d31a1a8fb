"""The plan of training: the cuts with the shortest simulated step, `best_by_simulated_step`."""

from __future__ import annotations

from functools import lru_cache

from autoauto.plan.pipeline.by_step import best_by_step
from autoauto.plan.pipeline.optimal import anytime
from autoauto.records.cost import CostTable
from autoauto.records.hardware import Period
from autoauto.records.knobs.knobs import Knobs
from autoauto.records.plan import BoundedPlan, Plan
from autoauto.records.schedule import Order, Transfers
from autoauto.schedule.orders.registry import make_schedule, spec_of
from autoauto.schedule.plan_step import PlanStep
from autoauto.schedule.simulate.step import StepFunction, step_function
from autoauto.schedule.stash import in_flight
from autoauto.schedule.times import timeline_of
from autoauto.schedule.zero_bubble.forms import zero_bubble_bound

WORTH_SIMULATING = 1e-3  # the share of a step that other cuts must promise before a zero bubble order is made for them


def best_by_simulated_step(table: CostTable, knobs: Knobs) -> BoundedPlan:
    """The plan with the shortest step of training, one stage a device, and a lower bound of every plan's step.

    The search begins with the cuts of least period and never returns worse ones. Zero bubble orders are made for the
    times of a plan. For them two plans compete with these cuts: the one with the smallest lower bound of all orders,
    and the one that is shortest in the order which the first cuts have.

    Raises:
        Infeasible: no plan respects the limits.
    """
    shortest_period = anytime(table)
    start = shortest_period.plan
    if len(start.stages) == 1:
        return shortest_period  # there is no cut to choose
    transfers = Transfers.BARRIER if table.period is Period.BARRIER else Transfers.OVERLAP
    if not spec_of(knobs.schedule).splits_backward:
        function = _fixed_step(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches, transfers)
        return best_by_step(table, PlanStep(function, table.period, split_backward=False), start.partition)
    timeline = timeline_of(knobs, start)
    limit = in_flight(knobs.schedule, knobs.n_ipu, knobs.n_micro_batches)[0]
    bound = zero_bubble_bound(knobs.n_ipu, knobs.n_micro_batches, limit, host=transfers is Transfers.OVERLAP)
    functions = (bound, step_function(timeline.schedule, transfers))
    lowest, moved = (
        best_by_step(table, PlanStep(function, table.period, split_backward=True), start.partition)
        for function in functions
    )
    best: tuple[float, Plan] = timeline.makespan_cycles, start
    for promising in (lowest, moved):
        assert promising.step_cycles is not None
        if promising.step_cycles < (1 - WORTH_SIMULATING) * best[0] and promising.plan != start:
            plan = promising.plan
            best = min(best, (timeline_of(knobs, plan).makespan_cycles, plan), key=lambda pair: pair[0])
    return BoundedPlan(best[1], min(lowest.bound_cycles, best[0]), best[0])


@lru_cache(maxsize=64)
def _fixed_step(order: Order, n_devices: int, n_micro_batches: int, transfers: Transfers) -> StepFunction:
    """The step of an order that is the same for all times; searches ask for few of them, again and again."""
    return step_function(make_schedule(order, n_devices, n_micro_batches), transfers)
