"""How long a configuration takes to answer, and what constraints make of its outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.records.constraint import Constraint
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.results import held_to, latency_s, run_latency_s
from autoauto.records.run import Run
from autoauto.records.schedule import Order
from autoauto.records.trial import Knobs, Outcome
from autoauto.schedule.of_plan import timeline_of

PLAN = Plan((Stage(LayerRange(0, 2), 0, 100, 0, 4, 6, {"parameter": 70}, 100),))
KNOBS = Knobs(1, 0.6, 2)
OUTCOME = Outcome(KNOBS, PLAN, PLAN, 20.0, 19.0, 0, 100, "", latency_s=0.11)


def test_inference_takes_its_way_through_the_pipeline() -> None:
    assert latency_s(KNOBS, PLAN, 1000.0) == 0.11


def test_a_step_of_training_takes_its_makespan() -> None:
    knobs = Knobs(1, 0.6, 2, Order.GPIPE, n_micro_batches=3)
    timeline = timeline_of(knobs, PLAN)
    assert latency_s(knobs, PLAN, 1000.0, timeline) == timeline.makespan_cycles / 1000.0 > 0.3
    slow = replace(PLAN, host_cycles=500)
    assert latency_s(knobs, slow, 1000.0, timeline) == 1.5


def test_devices_tell_their_own() -> None:
    simulated = timeline_of(KNOBS, PLAN)
    assert run_latency_s(KNOBS, Run(PLAN, (simulated,)), 1000.0) == 0.11
    measured = replace(simulated, source="measured", stops=tuple(stops + 900 for stops in simulated.stops))
    assert run_latency_s(KNOBS, Run(PLAN, (measured,)), 1000.0) == 1.0


def test_what_breaks_a_constraint_keeps_its_numbers_but_does_not_fit() -> None:
    loose, tight = Constraint("latency_s <= 0.2"), Constraint("latency_s * n_ipu <= 0.1")
    assert held_to(OUTCOME, ()) is OUTCOME
    held = held_to(OUTCOME, (loose,))
    assert held.fits
    assert held.miss == pytest.approx(-9 / 11)
    broken = held_to(OUTCOME, (loose, tight))
    assert (broken.fits, broken.measured, broken.samples_per_s) == (False, PLAN, 20.0)
    assert broken.miss == pytest.approx(0.1)
    assert broken.reason == "latency_s * n_ipu <= 0.1 does not hold: latency_s is 0.11, n_ipu is 1"


def test_every_result_may_be_named() -> None:
    names = "samples_per_s == 20 and compute_cycles == 100 and transfer_cycles == 10"
    more = "cost_cycles == 110 and peak_memory_bytes == 70 and n_samples == 2 and n_devices == 1"
    assert held_to(OUTCOME, (Constraint(f"{names} and {more}"),)).fits


def test_what_does_not_fit_is_held_to_nothing() -> None:
    unfit = Outcome(KNOBS, None, None, 0.0, 0.0, 5, 100, "too large")
    assert held_to(unfit, (Constraint("latency_s <= 0.2"),)) is unfit
