"""The status of an outcome."""

from dataclasses import replace

from autoauto.records.attempt import Status, status_of
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.trial import Knobs, Outcome

PLAN = Plan((Stage(LayerRange(0, 1), 0, 10, 0, 0, 0, {}, 100),))
FITS = Outcome(Knobs(1, 0.6, 1), PLAN, PLAN, 10.0, 10.0, 0, 100, "")


def test_what_was_planned_and_not_measured_is_out_of_memory_without_a_plan_it_is_infeasible() -> None:
    assert status_of(FITS) is Status.OK
    assert status_of(replace(FITS, measured=None, excess_bytes=7)) is Status.OUT_OF_MEMORY
    assert status_of(replace(FITS, measured=None, estimate=None, excess_bytes=7)) is Status.INFEASIBLE


def test_what_runs_but_breaks_a_constraint_is_constrained() -> None:
    assert status_of(replace(FITS, miss=-0.1)) is Status.OK
    assert status_of(replace(FITS, miss=0.1, reason="latency_s <= 1 does not hold")) is Status.CONSTRAINED
