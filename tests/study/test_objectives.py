"""Directions, names and values of the objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from autoauto.records.hardware import Device
from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.schedule.orders.gpipe import gpipe
from autoauto.space.knobs import Knobs
from autoauto.space.numbers import Result
from autoauto.space.objectives import Objective, scores_of, values_of
from autoauto.space.trial import measured_trial

if TYPE_CHECKING:
    from tests.study.conftest import Fake

KNOBS = Knobs(n_ipu=4, memory_proportion=0.6, batch_size=16)


def test_throughput_is_maximised(fake: Fake) -> None:
    assert Objective.THROUGHPUT.direction == "maximize"
    assert Objective.THROUGHPUT.metric_name == "throughput (samples/s)"
    assert Objective.THROUGHPUT.of(fake(KNOBS).with_values(samples_per_s=123.5)) == 123.5


def test_per_device_is_the_cost_of_auto_pipeline_and_is_minimised(fake: Fake) -> None:
    assert Objective.PER_DEVICE.direction == "minimize"
    trial = fake(KNOBS)
    assert trial.measured is not None
    assert trial.measured.cost_cycles == 18_000 // 4 + 100
    assert Objective.PER_DEVICE.of(trial) == 4600 * 4 / 16


def test_a_step_of_training_costs_its_makespan(fake: Fake) -> None:
    schedule = gpipe(1, 1)
    ticks = (np.array([0, 10]), np.array([10, 30]))
    timeline = Timeline(schedule, ticks[:1], ticks[1:], (np.zeros((0, 2), dtype=np.int64),), stop_tick=30)
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=5, schedule=Order.GPIPE, n_micro_batches=2)
    plan, device = fake(knobs).plan, Device("bow", 1e9, 1000, 1, 1)
    result = Result(samples_per_s=1.0, latency_s=1.0)
    trial = measured_trial(knobs, None, plan, result, device=device, timeline=timeline)
    assert trial.step.makespan_cycles == 30
    assert Objective.PER_DEVICE.of(trial) == 30 / (5 * 2)


def test_latency_is_minimised_in_seconds(fake: Fake) -> None:
    assert Objective.LATENCY.direction == "minimize"
    assert Objective.LATENCY.metric_name == "latency (s)"
    assert Objective.LATENCY.of(fake(KNOBS)) == fake(KNOBS).latency_s > 0


def test_several_objectives_have_a_value_and_a_score_each(fake: Fake) -> None:
    trial, objectives = fake(KNOBS), (Objective.LATENCY, Objective.THROUGHPUT)
    values = values_of(objectives, trial)
    assert values == (trial.latency_s, trial.samples_per_s)
    assert scores_of(objectives, values) == (1 / trial.latency_s, trial.samples_per_s)
