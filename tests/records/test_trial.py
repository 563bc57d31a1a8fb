"""Outcomes: whether they fit, their status, latency and constraints; and stored trials."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

from autoauto.records.constraint import Constraint
from autoauto.records.knobs import Knobs
from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.timeline import Run
from autoauto.records.trial import (
    FinishedTrial,
    Outcome,
    SearchActivity,
    Status,
    apply_constraints,
    latency_s,
    run_latency_s,
    status_of,
)
from autoauto.schedule.times import timeline_of

PLAN = Plan((Stage(LayerRange(0, 2), 0, 100, 0, 4, 6, {"parameter": 70}, 100),))
KNOBS = Knobs(1, 0.6, 2)
OUTCOME = Outcome(KNOBS, PLAN, PLAN, 20.0, 19.0, 0, 100, "", latency_s=0.11)
UNFIT = Outcome(KNOBS, None, None, 0.0, 0.0, 5, 100, "too large")


def test_an_outcome_fits_when_it_was_measured_and_violates_nothing() -> None:
    assert OUTCOME.fits
    assert not replace(OUTCOME, violation=0.5).fits
    assert not UNFIT.fits
    assert not replace(UNFIT, violation=-0.5).fits


def test_a_planned_outcome_without_a_measurement_is_out_of_memory_and_without_a_plan_infeasible() -> None:
    assert status_of(OUTCOME) is Status.OK
    assert status_of(replace(OUTCOME, measured=None, excess_bytes=7)) is Status.OUT_OF_MEMORY
    assert status_of(replace(OUTCOME, measured=None, estimate=None, excess_bytes=7)) is Status.INFEASIBLE


def test_an_outcome_that_runs_but_violates_a_constraint_is_constrained() -> None:
    assert status_of(replace(OUTCOME, violation=-0.1)) is Status.OK
    assert status_of(replace(OUTCOME, violation=0.1, reason="latency_s <= 1 does not hold")) is Status.CONSTRAINED


def test_latency_of_inference_is_that_of_the_plan() -> None:
    assert latency_s(KNOBS, PLAN, 1000.0) == 0.11


def test_latency_of_a_training_step_is_its_makespan() -> None:
    knobs = Knobs(1, 0.6, 2, Order.GPIPE, n_micro_batches=3)
    timeline = timeline_of(knobs, PLAN)
    assert latency_s(knobs, PLAN, 1000.0, timeline) == timeline.makespan_cycles / 1000.0 > 0.3
    slow = replace(PLAN, host_cycles=500)
    assert latency_s(knobs, slow, 1000.0, timeline) == 1.5


def test_measured_latency_is_that_of_the_timeline() -> None:
    simulated = timeline_of(KNOBS, PLAN)
    assert run_latency_s(KNOBS, Run(PLAN, (simulated,)), 1000.0) == 0.11
    measured = replace(simulated, source="measured", stops=tuple(stops + 900 for stops in simulated.stops))
    assert run_latency_s(KNOBS, Run(PLAN, (measured,)), 1000.0) == 1.0


def test_an_outcome_that_violates_a_constraint_does_not_fit_but_has_its_results() -> None:
    loose, tight = Constraint("latency_s <= 0.2"), Constraint("latency_s * n_ipu <= 0.1")
    assert apply_constraints(OUTCOME, ()) is OUTCOME
    fitting = apply_constraints(OUTCOME, (loose,))
    assert fitting.fits
    assert fitting.violation == pytest.approx(-9 / 11)
    violating = apply_constraints(OUTCOME, (loose, tight))
    assert (violating.fits, violating.measured, violating.samples_per_s) == (False, PLAN, 20.0)
    assert violating.violation == pytest.approx(0.1)
    assert violating.reason == "latency_s * n_ipu <= 0.1 does not hold: latency_s is 0.11, n_ipu is 1"


def test_every_result_can_be_constrained() -> None:
    names = "samples_per_s == 20 and compute_cycles == 100 and transfer_cycles == 10"
    more = "cost_cycles == 110 and peak_memory_bytes == 70 and n_samples == 2 and n_devices == 1"
    assert apply_constraints(OUTCOME, (Constraint(f"{names} and {more}"),)).fits


def test_an_outcome_that_was_not_measured_has_no_violations() -> None:
    assert apply_constraints(UNFIT, (Constraint("latency_s <= 0.2"),)) is UNFIT


def test_a_finished_trial_can_be_pickled_and_written_as_json() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    trial = FinishedTrial(3, Knobs(1, 0.6, 8), "COMPLETE", 2.0, 2.0, "", True, moment, moment)
    assert pickle.loads(pickle.dumps(trial)) == trial
    record = json.loads(json.dumps(asdict(trial), default=datetime.isoformat))
    assert (record["knobs"]["batch_size"], record["started"]) == (8, "2024-01-02T03:04:05+00:00")


def test_activities_are_words_of_the_json_log() -> None:
    assert list(SearchActivity) == ["predicting", "measuring", "verifying"]
