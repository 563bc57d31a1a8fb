"""Steps of training: the plan with the shortest, `best_by_simulated_step`, and how long one takes."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from autoauto.plan.pipeline.by_step import best_by_step, best_nearby, no_step_below
from autoauto.plan.pipeline.ends_together import fitting_cuts, have_ends_together
from autoauto.plan.pipeline.stage_costs import StageCosts, mixed_partition, shortest_periods, starting_partitions
from autoauto.plan.pipeline.stage_table import StageTable
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import BoundedPlan, Plan
from autoauto.records.schedule import Order, Transfers
from autoauto.records.units import FloatArray, format_bytes
from autoauto.schedule.orders.registry import devices_of, spec_of
from autoauto.schedule.simulate.simulate import order_step
from autoauto.schedule.simulate.step import StepFunction, step_function
from autoauto.schedule.stash import in_flight_by_stage
from autoauto.schedule.times import PlanStep, cost_columns, timeline_of, transfers_of
from autoauto.schedule.zero_bubble.problem import zero_bubble_bound
from autoauto.space.knobs import Knobs

WORTH_SIMULATING = 1e-3  # the share of a step that other cuts must promise before a zero bubble order is made for them
LONG_STEP = 512  # micro-batches: zero bubble orders of more are not made to forecast their step
PLANNING_EFFORT = 0.03  # the share of a search for a zero bubble order that tells which cuts are better
MAX_MOVED_ACTIONS = 6_000  # of a zero bubble order: for more of them no other cuts are looked for in the same order


def best_by_simulated_step(stages: StageTable, knobs: Knobs) -> BoundedPlan:
    """The plan with the shortest step of training, and a lower bound of every plan's step.

    The search begins with the cuts of least period and never returns worse ones. Where transfers overlap, zero bubble
    orders are made for the times of a plan. For them two plans compete with these cuts: the one with the smallest lower
    bound of all orders, and the one to which moves of cuts lead in the order which the first cuts have; all three
    orders are made with little effort. Raises Infeasible if no plan respects the limits, or none that was tried where
    several stages share a device.
    """
    costs = StageCosts.of(stages)
    if stages.n_stages == 1:  # there is no cut to choose
        whole_plans = (each.plan for each in shortest_periods(stages))
        plans = [stages.evaluate(plan.partition, [plan.stages[0].recomputes]) for plan in whole_plans]
        whole = min(plans, key=lambda plan: plan.cost_cycles)
        return BoundedPlan(whole, whole.cost_cycles)
    starts, step = _starts(costs), _bound_of_steps(stages, knobs)
    plain: BoundedPlan | None = None
    if stages.recomputing is not None:  # where stages may recompute, they need not
        without = replace(stages, recomputing=None)
        holds = StageCosts.of(without).resolve(costs.cuts(starts[0])) is not None
        if holds and not any(costs.must_recompute(costs.cuts(starts[0]))):
            plain = best_by_simulated_step(without, knobs)
            starts.append(plain.plan.partition)
    # Starts ignore that several stages share the memory of a device; then cuts are looked for by memory alone.
    if not any(costs.resolve(costs.cuts(partition)) for partition in starts):
        cuts = fitting_cuts(costs) if have_ends_together(stages.devices) else None
        if cuts is None:
            raise _no_plan_found(costs, starts[-1])
        starts.append(tuple(costs.problem.partition(cuts.tolist())))
    best = best_by_step(costs, step, starts)
    if _is_made_for_times(knobs, stages.rows.period):
        best = _best_zero_bubble(costs, starts, knobs, best)
    if plain is not None and plain.cost_cycles < best.cost_cycles:
        return replace(plain, bound_cycles=min(best.bound_cycles, plain.cost_cycles))
    return best


def _starts(costs: StageCosts) -> list[tuple[int, ...]]:
    """Partitions to begin with; raises as `shortest_periods`, if no plan fits either in which some stages recompute."""
    try:
        return starting_partitions(costs, shortest_periods(costs.stages))
    except Infeasible:
        mixed = mixed_partition(costs) if costs.stages.one_each else None
        if mixed is None:
            raise
        return [mixed]


def no_simulated_step_below(stages: StageTable, knobs: Knobs, cycles: float) -> bool:
    """True if it is certain that no plan of training has a step below `cycles`; told sooner than the best plan."""
    costs = StageCosts.of(stages)
    if not 1 < stages.n_stages <= len(costs.problem.blocks):
        return False
    return no_step_below(costs, _bound_of_steps(stages, knobs), cycles)


def _bound_of_steps(stages: StageTable, knobs: Knobs) -> PlanStep:
    """The exact step as a function of stage times; for zero bubble orders a lower bound of it."""
    period = stages.rows.period
    return _zero_bubble_step(knobs, period) if _is_made_for_times(knobs, period) else _fixed_step(knobs, period)


def _is_made_for_times(knobs: Knobs, period: Period) -> bool:
    """True if the order depends on the times of a plan; it does not where all devices wait for the slowest."""
    return spec_of(knobs.mode.order).splits_backward and period is not Period.BARRIER


def _fixed_step(knobs: Knobs, period: Period) -> PlanStep:
    """The step of an order that is the same for all times."""
    function = _order_step(*knobs.step, period)
    return PlanStep(function, period, spec_of(knobs.mode.order).splits_backward)


def _zero_bubble_step(knobs: Knobs, period: Period) -> PlanStep:
    """A lower bound of the step of a zero bubble order where transfers overlap."""
    limit = int(max(moments.max() for moments in in_flight_by_stage(*knobs.step)))
    bound = zero_bubble_bound(devices_of(knobs.step), knobs.mode.n_micro_batches, limit)
    return PlanStep(bound, period, split_backward=True)


def _best_zero_bubble(
    costs: StageCosts, starts: list[tuple[int, ...]], knobs: Knobs, lowest: BoundedPlan
) -> BoundedPlan:
    period = costs.stages.rows.period
    for partition in starts:
        cuts = costs.cuts(partition)
        choice = costs.resolve(cuts)
        if choice is not None:
            break
    assert choice is not None  # one of the starts fits, as the caller made sure
    first = costs.evaluate(cuts, choice.recomputes)
    assert lowest.step_cycles is not None
    best = pipeline_step_cycles(knobs, first), first
    promising = [(lowest.step_cycles, lowest.plan)]
    if 3 * knobs.mode.n_micro_batches * costs.stages.n_stages <= MAX_MOVED_ACTIONS:
        same_order = step_function(timeline_of(knobs.step, first, PLANNING_EFFORT).schedule, Transfers.OVERLAP)
        promising.append(best_nearby(costs, PlanStep(same_order, period, split_backward=True), first.partition))
    # Making an order takes long, so it is made only for cuts whose bound promises enough.
    for promised_cycles, plan in promising:
        if promised_cycles < (1 - WORTH_SIMULATING) * best[0] and plan != first:
            best = min(best, (pipeline_step_cycles(knobs, plan), plan), key=lambda pair: pair[0])
    return BoundedPlan(best[1], min(lowest.bound_cycles, best[0]), best[0])


def pipeline_step_cycles(knobs: Knobs, plan: Plan) -> float:
    """Cycles of the forward and backward passes of a step of training, until the pipeline is empty.

    Where all devices exchange at once, an order is not simulated action by action. One that is made for the times of a
    plan is made with `PLANNING_EFFORT`, for `LONG_STEP` micro-batches at most; more of them are assumed to exceed their
    lower bound by the same share.
    """
    if plan.period is Period.BARRIER:
        return float(_fixed_step(knobs, plan.period).cycles(_costs_of(plan))[0])
    n = knobs.mode.n_micro_batches
    if not _is_made_for_times(knobs, plan.period) or n <= LONG_STEP:
        return timeline_of(knobs.step, plan, PLANNING_EFFORT).makespan_cycles
    short, costs = knobs.with_values(n_micro_batches=LONG_STEP), _costs_of(plan)
    bound, of_short = (_zero_bubble_step(each, plan.period).cycles(costs)[0] for each in (knobs, short))
    return float(timeline_of(short.step, plan, PLANNING_EFFORT).makespan_cycles * bound / of_short)


@lru_cache(maxsize=256)
def _order_step(order: Order, n_devices: int, n_micro_batches: int, n_chunks: int, period: Period) -> StepFunction:
    return order_step(order, n_devices, n_micro_batches, n_chunks, transfers_of(period))


def _costs_of(plan: Plan) -> FloatArray:
    """(1, S, 5) the costs of a plan's stages."""
    return np.array(cost_columns(plan), dtype=np.float64).T[None]


def _no_plan_found(costs: StageCosts, partition: tuple[int, ...]) -> Infeasible:
    """The error where several stages share a device, and no plan was found whose devices hold theirs."""
    cuts = costs.cuts(partition)
    lacking = [costs.excess_bytes(device, cuts) for device in range(len(costs.stages.in_flight))]
    device = int(np.argmax(lacking))
    return Infeasible(
        f"every device must hold its {len(costs.of_device[device])} stages, but no plan that was tried fits: "
        f"device {device} lacks {format_bytes(lacking[device])}; try fewer stages a device, a smaller batch size or "
        "more devices",
        excess_bytes=max(1, lacking[device]),
    )
