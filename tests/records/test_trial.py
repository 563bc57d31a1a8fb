"""The status of an outcome."""

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
from autoauto.records.trial import FinishedTrial, Outcome, Phase, Status, held_to, latency_s, run_latency_s, status_of
from autoauto.schedule.times import timeline_of

PLAN = Plan((Stage(LayerRange(0, 1), 0, 10, 0, 0, 0, {}, 100),))
FITS = Outcome(Knobs(1, 0.6, 1), PLAN, PLAN, 10.0, 10.0, 0, 100, "")


def test_what_was_planned_and_not_measured_is_out_of_memory_without_a_plan_it_is_infeasible() -> None:
    assert status_of(FITS) is Status.OK
    assert status_of(replace(FITS, measured=None, excess_bytes=7)) is Status.OUT_OF_MEMORY
    assert status_of(replace(FITS, measured=None, estimate=None, excess_bytes=7)) is Status.INFEASIBLE


def test_what_runs_but_breaks_a_constraint_is_constrained() -> None:
    assert status_of(replace(FITS, miss=-0.1)) is Status.OK
    assert status_of(replace(FITS, miss=0.1, reason="latency_s <= 1 does not hold")) is Status.CONSTRAINED


PLAN_results = Plan((Stage(LayerRange(0, 2), 0, 100, 0, 4, 6, {"parameter": 70}, 100),))
KNOBS = Knobs(1, 0.6, 2)
OUTCOME = Outcome(KNOBS, PLAN_results, PLAN_results, 20.0, 19.0, 0, 100, "", latency_s=0.11)


def test_inference_takes_its_way_through_the_pipeline() -> None:
    assert latency_s(KNOBS, PLAN_results, 1000.0) == 0.11


def test_a_step_of_training_takes_its_makespan() -> None:
    knobs = Knobs(1, 0.6, 2, Order.GPIPE, n_micro_batches=3)
    timeline = timeline_of(knobs, PLAN_results)
    assert latency_s(knobs, PLAN_results, 1000.0, timeline) == timeline.makespan_cycles / 1000.0 > 0.3
    slow = replace(PLAN_results, host_cycles=500)
    assert latency_s(knobs, slow, 1000.0, timeline) == 1.5


def test_devices_tell_their_own() -> None:
    simulated = timeline_of(KNOBS, PLAN_results)
    assert run_latency_s(KNOBS, Run(PLAN_results, (simulated,)), 1000.0) == 0.11
    measured = replace(simulated, source="measured", stops=tuple(stops + 900 for stops in simulated.stops))
    assert run_latency_s(KNOBS, Run(PLAN_results, (measured,)), 1000.0) == 1.0


def test_what_breaks_a_constraint_keeps_its_numbers_but_does_not_fit() -> None:
    loose, tight = Constraint("latency_s <= 0.2"), Constraint("latency_s * n_ipu <= 0.1")
    assert held_to(OUTCOME, ()) is OUTCOME
    held = held_to(OUTCOME, (loose,))
    assert held.fits
    assert held.miss == pytest.approx(-9 / 11)
    broken = held_to(OUTCOME, (loose, tight))
    assert (broken.fits, broken.measured, broken.samples_per_s) == (False, PLAN_results, 20.0)
    assert broken.miss == pytest.approx(0.1)
    assert broken.reason == "latency_s * n_ipu <= 0.1 does not hold: latency_s is 0.11, n_ipu is 1"


def test_every_result_may_be_named() -> None:
    names = "samples_per_s == 20 and compute_cycles == 100 and transfer_cycles == 10"
    more = "cost_cycles == 110 and peak_memory_bytes == 70 and n_samples == 2 and n_devices == 1"
    assert held_to(OUTCOME, (Constraint(f"{names} and {more}"),)).fits


def test_what_does_not_fit_is_held_to_nothing() -> None:
    unfit = Outcome(KNOBS, None, None, 0.0, 0.0, 5, 100, "too large")
    assert held_to(unfit, (Constraint("latency_s <= 0.2"),)) is unfit


def test_a_trial_travels() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    trial = FinishedTrial(3, Knobs(1, 0.6, 8), "COMPLETE", 2.0, 2.0, "", True, moment, moment)
    assert pickle.loads(pickle.dumps(trial)) == trial
    told = json.loads(json.dumps(asdict(trial), default=datetime.isoformat))
    assert (told["knobs"]["batch_size"], told["started"]) == (8, "2024-01-02T03:04:05+00:00")


def test_phases_are_words() -> None:
    assert list(Phase) == ["predicting", "measuring", "verifying"]
