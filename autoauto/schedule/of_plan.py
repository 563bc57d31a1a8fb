"""A plan in the order of its knobs: `timeline_of`."""

from __future__ import annotations

from autoauto.records.plan import Plan
from autoauto.records.schedule import SPLIT_ORDERS, Transfers
from autoauto.records.timeline import Timeline
from autoauto.records.trial import Knobs
from autoauto.schedule.orders import make_schedule
from autoauto.schedule.simulate import simulate
from autoauto.schedule.times import plan_times


def timeline_of(knobs: Knobs, plan: Plan) -> Timeline:
    """The stages of `plan` in the order of the schedule: a step of training, or enough inference to be steady."""
    n_micro_batches = knobs.n_micro_batches if knobs.training else 2 * knobs.n_ipu + 2
    times = plan_times(plan, knobs.training, split_backward=knobs.schedule in SPLIT_ORDERS)
    schedule = make_schedule(knobs.schedule, knobs.n_ipu, n_micro_batches, times=times)
    return simulate(schedule, times, Transfers.OVERLAP if plan.overlap else Transfers.BARRIER)
