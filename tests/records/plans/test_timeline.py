"""Timelines and runs, on schedules that are drawn beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.plans.timeline import Run, Span, Timeline
from autoauto.records.schedule import FORWARD, Action, ActionKind, Codes, Order, Schedule
from autoauto.records.target import Origin

Row = tuple[str, int, int]


def timeline(*devices: Sequence[Row], stop: int, m: int = 2, scale: int = 1, exchanges: object = None) -> Timeline:
    """A timeline from the actions of every device with their starts and stops; stage s is on device s."""
    codes = Codes(len(devices), m)
    programs = tuple(codes.encode([Action.parse(text) for text, _, _ in rows]) for rows in devices)
    schedule = Schedule(Order.ONE_F_ONE_B, tuple(range(len(devices))), m, programs)
    starts, stops = (tuple(np.array([row[i] for row in rows]) for rows in devices) for i in (1, 2))
    pairs = exchanges or [[] for _ in devices]
    assert isinstance(pairs, list)
    spans = tuple(np.array(rows, dtype=np.int64).reshape(-1, 2) for rows in pairs)
    return Timeline(schedule, starts, stops, spans, stop, scale)


# 0     2     4     6     8     10    12
# 0F0   0F1               0B0   0B1        with tf = 2 on both, tb = 2 and 1
#       1F0   1B0 1F1   1B1
TRAINING = timeline(
    [("0F0", 0, 2), ("0F1", 2, 4), ("0B0", 5, 7), ("0B1", 8, 10)],
    [("1F0", 2, 4), ("1B0", 4, 5), ("1F1", 5, 7), ("1B1", 7, 8)],
    stop=10,
)


def test_spans_are_actions_with_their_times() -> None:
    assert list(TRAINING.spans(1))[1] == Span(Action(1, ActionKind.BACKWARD, 0), 4, 5)
    assert [span.stop_cycle for span in TRAINING.spans(0)] == [2, 4, 7, 10]


def test_bubbles_are_the_time_without_compute() -> None:
    assert TRAINING.makespan_cycles == 10
    assert TRAINING.busy_cycles == (8, 6)
    assert TRAINING.ideal_cycles == 8
    assert TRAINING.bubble_cycles == (2, 4)
    assert TRAINING.bubble_fraction == pytest.approx(6 / 20)
    assert TRAINING.gaps(0).tolist() == [[4, 5], [7, 8]]
    assert TRAINING.gaps(1).tolist() == [[0, 2], [8, 10]]


def test_micro_batches_leave_with_their_gradients() -> None:
    assert TRAINING.latency_cycles == 7  # until 0B0 stops
    assert TRAINING.period_cycles == 3  # between 0B0 and 0B1


def test_exchanges_are_neither_work_nor_bubble() -> None:
    # 0     2     4     6     8
    # 0F0   x     0F1   x            1F0 waits for the exchange, both wait at its end
    #       x x   1F0   x x
    drawn = timeline(
        [("0F0", 0, 2), ("0F1", 4, 6)],
        [("1F0", 4, 6)],
        stop=8,
        exchanges=[[[2, 3], [6, 7]], [[2, 4], [6, 8]]],
    )
    assert drawn.exchange_cycles == (2, 4)
    assert drawn.busy_cycles == (4, 2)
    assert drawn.bubble_cycles == (2, 2)
    assert drawn.gaps(0).tolist() == [[3, 4], [7, 8]]
    assert drawn.gaps(1).tolist() == [[0, 2]]


def test_checks_are_idle() -> None:
    drawn = timeline([("0C0", 0, 1), ("0F0", 1, 3), ("0C1", 3, 5), ("0B0", 5, 6)], stop=6, m=1)
    assert drawn.busy_cycles == (3,)
    assert drawn.bubble_cycles == (3,)
    assert drawn.gaps(0).tolist() == [[0, 1], [3, 5]]
    assert [str(span.action) for span in drawn.spans(0)] == ["0C0", "0F0", "0C1", "0B0"]


def test_ticks_become_cycles_whole_where_they_are() -> None:
    drawn = timeline([("0F0", 0, 3), ("0F1", 3, 8)], stop=9, scale=2)
    assert [(span.start_cycle, span.stop_cycle) for span in drawn.spans(0)] == [(0, 1.5), (1.5, 4)]
    assert (drawn.makespan_cycles, drawn.busy_cycles) == (4.5, (4,))
    assert isinstance(drawn.busy_cycles[0], int)
    assert drawn.gaps(0).tolist() == [[8, 9]]  # in ticks
    assert drawn.period_cycles == 2.5


def test_the_period_leaves_filling_and_draining_out() -> None:
    # Eight micro-batches: the first and last two are finished irregularly, the four between every 10 cycles.
    stops = [100, 150, 160, 170, 180, 190, 197, 198]
    rows = [(f"0F{i}", stop - 1, stop) for i, stop in enumerate(stops)]
    drawn = timeline(rows, stop=200, m=8)
    assert drawn.period_cycles == 10
    assert drawn.latency_cycles == 100 - 99


def test_a_single_micro_batch_takes_the_whole_time() -> None:
    assert timeline([("0F0", 0, 5)], stop=7, m=1).period_cycles == 7


def test_nothing_takes_no_time() -> None:
    drawn = timeline([("0F0", 0, 0)], stop=0, m=1)
    assert (drawn.makespan_cycles, drawn.bubble_fraction, drawn.gaps(0).tolist()) == (0, 0.0, [])


def steady(period: int) -> Timeline:
    """One device that finishes a micro-batch every `period` cycles."""
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * period
    return Timeline(schedule, (starts,), (starts + period,), (np.zeros((0, 2), np.int64),), 8 * period)


def test_the_period_of_devices_that_take_turns_counts_whole_turns() -> None:
    """Two devices finish a micro-batch each every 10 cycles, at once; between the middle four are three periods."""
    stops = np.array([10, 20, 30])
    nothing = (np.zeros((0, 2), np.int64),) * 2
    timeline = Timeline(Schedule.of_inference((2,), 6), (stops - 10,) * 2, (stops, stops), nothing, 30)
    assert timeline.period_cycles == 5
    assert timeline.latencies.tolist() == [10] * 6


def test_the_period_of_parallel_pipelines_counts_the_micro_batches_of_all() -> None:
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (steady(100),)).period_cycles == pytest.approx(100)
    assert Run(plan, (steady(100), steady(100))).period_cycles == pytest.approx(50)
    assert Run(plan, (steady(100), steady(50))).period_cycles == pytest.approx(100 / 3)


def test_measured_latency_is_the_median() -> None:
    """A first micro-batch that takes 900, seven that take 100: the first was a cold start."""
    codes = Codes(1, 8)
    schedule = Schedule(Order.INFERENCE, (0,), 8, (codes.of(FORWARD, 0, range(8)),))
    starts = np.arange(8) * 1000
    stops = starts + np.array([900, *[100] * 7])
    measured = Timeline(schedule, (starts,), (stops,), (np.zeros((0, 2), np.int64),), 8000, origin=Origin.MEASURED)
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (measured,)).latency_cycles == 100
    assert Run(plan, (replace(measured, origin=Origin.SIMULATED),)).latency_cycles == 900


def test_a_run_is_undisturbed_when_its_stages_had_their_cores() -> None:
    plan = Plan((Stage(LayerRange(0, 1), 0, 1, 0, 0, 0, {}, 1),))
    assert Run(plan, (steady(100),), 0.96).undisturbed
    assert not Run(plan, (steady(100),), 0.9).undisturbed
