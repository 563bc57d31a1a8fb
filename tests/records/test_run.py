from dataclasses import replace

import numpy as np
import pytest

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.run import Run
from autoauto.records.schedule import FORWARD, Codes, Order, Schedule
from autoauto.records.timeline import Timeline


def steady(period: int) -> Timeline:
    """One device that finishes a micro-batch every `period` cycles."""
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * period
    return Timeline(schedule, (starts,), (starts + period,), (np.zeros((0, 2), np.int64),), 8 * period)


def test_the_period_of_pipelines_side_by_side_counts_what_all_of_them_finish() -> None:
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (steady(100),)).period_cycles == pytest.approx(100)
    assert Run(plan, (steady(100), steady(100))).period_cycles == pytest.approx(50)
    assert Run(plan, (steady(100), steady(50))).period_cycles == pytest.approx(100 / 3)


def test_latency_is_the_median_of_what_was_measured() -> None:
    """A first micro-batch that takes 900, seven that take 100: the first tells of a cold start."""
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * 1000
    stops = starts + np.array([900, *[100] * 7])
    measured = Timeline(schedule, (starts,), (stops,), (np.zeros((0, 2), np.int64),), 8000, source="measured")
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (measured,)).latency_cycles == 100
    assert Run(plan, (replace(measured, source="simulated"),)).latency_cycles == 900


def test_a_run_is_quiet_when_its_stages_had_their_cores() -> None:
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (steady(100),), 0.96).quiet
    assert not Run(plan, (steady(100),), 0.9).quiet
