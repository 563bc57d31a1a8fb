"""Stages that several devices run in turn: a drawing, the period of the plan, and plain pipelines."""

from random import Random

import numpy as np
import pytest

from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order, Schedule
from autoauto.report.text import timeline_picture
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.times import in_turn, plan_times, timeline_of
from autoauto.space.knobs import Knobs

DRAWN = """\
inference, 4 micro-batches, simulated
device 0  0F0 0F1 0F2 0F3 .   .   .
device 1  .   1F0---- 1F2---- .   .
device 2  .   .   1F1---- 1F3---- .
device 3  .   .   .   2F0 2F1 2F2 2F3
cycles    0   1   2   3   4   5   6
F forward  . idle"""


def plan_of(stages: list[tuple[int, int, int, int]], period: Period = Period.SERIAL) -> Plan:
    """A plan of stages with so many replicas, cycles of compute, and cycles in which they receive and send."""
    made, device = [], 0
    for s, (m, *cycles) in enumerate(stages):
        compute, receive, send = cycles
        made.append(Stage(LayerRange(s, s + 1), device, compute, 0, receive, send, {}, 1, n_replicas=m))
        device += m
    return Plan(tuple(made), period)


def drawn_plan(random: Random, max_replicas: int, period: Period = Period.SERIAL) -> Plan:
    def number() -> int:
        return random.randint(0, 60)

    n_stages = random.randint(1, 4)
    return plan_of([(random.randint(1, max_replicas), number(), number(), number()) for _ in range(n_stages)], period)


def test_the_timeline_in_the_docstring() -> None:
    plan = plan_of([(1, 1, 0, 0), (2, 2, 0, 0), (1, 1, 0, 0)])
    timeline = in_turn(Schedule.of_inference((1, 2, 1), 4), plan_times(plan, training=False))
    picture = "\n".join(line.rstrip() for line in timeline_picture(timeline, 60).plain.splitlines())
    assert picture == DRAWN
    assert timeline.makespan_cycles == 7
    assert timeline.busy_cycles == (4, 4, 4, 4)


def test_the_period_is_that_of_the_plan() -> None:
    """The plan rounds each of three parts of a stage up."""
    for seed in range(300):
        plan = drawn_plan(Random(seed), 4)
        timeline = timeline_of(
            Knobs(n_ipu=plan.n_devices, memory_proportion=1.0, batch_size=1, stage_replicas=True).step, plan
        )
        assert timeline.period_cycles <= plan.cost_cycles < timeline.period_cycles + 3, seed
        if plan.cost_cycles > 3:
            assert timeline.latency_cycles == plan.latency_cycles, seed


@pytest.mark.parametrize("period", [Period.SERIAL, Period.OVERLAP])
def test_with_one_device_a_stage_it_is_a_plain_pipeline(period: Period) -> None:
    for seed in range(100):
        plan = drawn_plan(Random(seed), 1, period)
        times, n = plan_times(plan, training=False), len(plan.stages)
        plain = simulate(make_schedule(Order.INFERENCE, n, 9, times=times), times)
        timeline = in_turn(Schedule.of_inference((1,) * n, 9), times)
        assert timeline.stop_tick == plain.stop_tick, seed
        for ours, others in zip((timeline.starts, timeline.stops), (plain.starts, plain.stops), strict=True):
            np.testing.assert_array_equal(ours, others, str(seed))


def test_a_device_sends_and_receives_one_message_after_the_other() -> None:
    """Messages of 5 cycles: from one device to two every 5, to the host from each of two every 10."""
    plan = plan_of([(1, 1, 0, 5), (2, 2, 5, 20)], Period.OVERLAP)
    timeline = in_turn(Schedule.of_inference((1, 2), 4), plan_times(plan, training=False))
    assert [starts.tolist() for starts in timeline.starts[1:]] == [[6, 16], [11, 21]]
    assert timeline.makespan_cycles == 13 + 2 * 20


def test_a_plan_on_fewer_devices_than_the_configuration_has_a_timeline() -> None:
    plan = plan_of([(1, 10, 1, 1), (1, 10, 1, 1)])
    timeline = timeline_of(Knobs(n_ipu=4, memory_proportion=1.0, batch_size=1, stage_replicas=True).step, plan)
    assert (timeline.schedule.n_devices, timeline.period_cycles) == (2, 12)
