"""Plan -> Schedule -> Timeline: one file an order, check, simulate, bubble checks, PopART's program."""

from autoauto.schedule.in_flight import in_flight
from autoauto.schedule.of_plan import timeline_of
from autoauto.schedule.orders import make_schedule
from autoauto.schedule.simulate import simulate
from autoauto.schedule.times import plan_times

__all__ = ["in_flight", "make_schedule", "plan_times", "simulate", "timeline_of"]
