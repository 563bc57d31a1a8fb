from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order, StageTimes, Transfers
from autoauto.schedule.orders.inference import inference
from autoauto.schedule.orders.popart import popart
from autoauto.schedule.orders.registry import make_schedule
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.simulate.step import step_function
from autoauto.schedule.times import PlanStep, cost_columns, plan_times, stage_times, timeline_of
from autoauto.space.knobs import Knobs


def numbers(*texts: str) -> list[Fraction]:
    return [Fraction(text) for text in texts]


def split(devices: tuple[int, ...], comm: list[Fraction]) -> StageTimes:
    none = [Fraction(0)] * len(comm)
    return stage_times(devices, none, none, none, comm, split_backward=True)


def test_chunks_share_the_cycles_of_their_device() -> None:
    times = stage_times(
        (0, 1, 0), numbers("3", "2"), numbers("1", "5"), numbers("0", "0.5"), numbers("1", "1"), split_backward=True
    )
    assert times.ticks_per_cycle == 2
    assert times.forward.tolist() == [3, 4, 3]
    assert times.backward.tolist() == [1, 10, 1]
    assert times.weight.tolist() == [0, 1, 0]


def test_without_split_backward_it_includes_the_weight_gradient() -> None:
    columns = numbers("1"), numbers("2"), numbers("3"), numbers("4")
    whole = stage_times((0,), *columns, split_backward=False)
    assert (whole.backward.tolist(), whole.weight.tolist()) == ([5], [0])
    halves = stage_times((0,), *columns, split_backward=True)
    assert (halves.backward.tolist(), halves.weight.tolist()) == ([2], [3])


def test_links_lie_between_neighbours_and_from_the_last_device_to_the_first() -> None:
    comm = numbers("1", "2", "4")
    ring = split((0, 1, 2, 0, 1, 2), comm)
    assert ring.forward_links.tolist() == [0, 1, 2, 4, 1, 2, 0]
    assert ring.backward_links.tolist() == [0, 1, 2, 4, 1, 2]
    assert ring.forward_exchange.tolist() == ring.backward_exchange.tolist() == [1, 2, 4, 4, 2, 2]
    back = split((0, 1, 2, 2, 1, 0), comm)
    assert back.forward_links.tolist() == [0, 1, 2, 0, 2, 1, 0]
    assert back.forward_exchange.tolist() == [1, 2, 2, 2, 2, 1]


@given(st.lists(st.fractions(0, 100, max_denominator=12), min_size=4, max_size=4))
def test_ticks_are_whole_and_as_few_as_possible(cycles: list[Fraction]) -> None:
    forward, backward, weight, comm = ([value] for value in cycles)
    times = stage_times((0, 0), forward, backward, weight, comm, split_backward=True)
    scale = times.ticks_per_cycle
    wanted = [value / 2 for value in cycles[:3]]
    assert [Fraction(int(row[0]), scale) for row in (times.forward, times.backward, times.weight)] == wanted
    assert not any(all((value * fewer).denominator == 1 for value in wanted) for fewer in range(1, scale))


def test_cycles_that_cannot_become_ticks_are_refused() -> None:
    single, double = numbers("1"), numbers("1", "1")
    with pytest.raises(BadInput, match="backward cycles must be given for each of 2 devices, got 1 numbers"):
        stage_times((0, 1), double, single, double, double, split_backward=False)
    with pytest.raises(BadInput, match="communication cycles must be at least 0, got -1"):
        stage_times((0, 1), double, double, double, numbers("0", "-1"), split_backward=False)
    with pytest.raises(BadInput, match="got parts of 1/10000000; try fewer decimals"):
        stage_times((0,), numbers("1.0000001"), single, single, single, split_backward=False)
    with pytest.raises(BadInput, match=r"at most 2\*\*53 ticks, got 1e\+20"):
        stage_times((0,), numbers("1e20"), single, single, single, split_backward=False)


def random_plan(random: Random, n_stages: int, period: Period = Period.BARRIER) -> Plan:
    most = random.choice((3, 10**6))

    def stage(s: int) -> Stage:
        forward, backward, receive, send = (random.randint(0, most) for _ in range(4))
        weight = random.randint(0, backward)
        return Stage(LayerRange(s, s + 1), s, forward, backward, receive, send, {}, 0, weight_cycles=weight)

    return Plan(tuple(map(stage, range(n_stages))), period)


@given(st.integers(0, 2**64), st.integers(1, 6))
@settings(deadline=None, derandomize=True)
def test_devices_in_step_infer_at_the_plans_cost(seed: int, n_stages: int) -> None:
    plan = random_plan(Random(seed), n_stages)
    plan = Plan(tuple(_without_backward(stage) for stage in plan.stages))
    timeline = simulate(inference(n_stages, 4 * n_stages), plan_times(plan, training=False), Transfers.BARRIER)
    assert timeline.period_cycles == plan.cost_cycles


def _without_backward(stage: Stage) -> Stage:
    return Stage(stage.layers, stage.device, stage.forward_cycles, 0, stage.receive_cycles, stage.send_cycles, {}, 0)


@given(st.integers(0, 2**64), st.integers(1, 6))
@settings(deadline=None, derandomize=True)
def test_a_full_popart_cycle_takes_the_plans_cost(seed: int, n_stages: int) -> None:
    plan = random_plan(Random(seed), n_stages)
    times = plan_times(plan, training=True)
    g = 2 * n_stages
    timeline, longer = (simulate(popart(n_stages, n, training=True), times, Transfers.BARRIER) for n in (g, g + 1))
    assert longer.cycles(longer.stop_tick - timeline.stop_tick) == plan.cost_cycles


@given(st.integers(0, 2**64), st.integers(1, 6))
@settings(deadline=None, derandomize=True)
def test_overlapped_devices_infer_at_most_at_the_plans_cost(seed: int, n_stages: int) -> None:
    plan = Plan(tuple(map(_without_backward, random_plan(Random(seed), n_stages).stages)), Period.OVERLAP)
    times = plan_times(plan, training=False)
    timeline = simulate(inference(n_stages, 4 * n_stages), times)
    assert timeline.period_cycles == max(plan.compute_cycles, *times.forward_links[:-1].tolist()) <= plan.cost_cycles


@given(st.integers(0, 2**64), st.integers(1, 6))
@settings(deadline=None, derandomize=True)
def test_devices_that_do_one_thing_at_a_time_infer_at_the_plans_cost(seed: int, n_stages: int) -> None:
    plan = Plan(tuple(map(_without_backward, random_plan(Random(seed), n_stages).stages)), Period.SERIAL)
    timeline = simulate(inference(n_stages, 4 * n_stages), plan_times(plan, training=False))
    assert timeline.period_cycles == plan.cost_cycles


def test_the_times_of_a_plan() -> None:
    receive, send = (9, 2, 3), (4, 5, 8)
    stages = (Stage(LayerRange(s, s + 1), s, 10, 20, receive[s], send[s], {}, 0, weight_cycles=7) for s in range(3))
    plan = Plan(tuple(stages))
    infer = plan_times(plan, training=False)
    assert (infer.ticks_per_cycle, infer.forward_links.tolist()) == (1, [9, 4, 5, 8])
    assert infer.forward_exchange.tolist() == [13, 7, 11]
    assert not any(row.any() for row in (infer.backward, infer.weight, infer.backward_links, infer.backward_exchange))
    train = plan_times(plan, training=True)
    assert (train.ticks_per_cycle, train.forward.tolist(), train.backward.tolist()) == (2, [20] * 3, [40] * 3)
    assert (train.forward_links.tolist(), train.backward_links.tolist()) == ([9, 4, 5, 8], [9, 4, 5])
    assert (train.forward_exchange + train.backward_exchange).tolist() == [26, 14, 22]
    halves = plan_times(plan, training=True, split_backward=True)
    assert (halves.backward.tolist(), halves.weight.tolist()) == ([26] * 3, [14] * 3)


PLAN = Plan(tuple(Stage(LayerRange(s, s + 1), s, 10, 0, 1, 1, {}, 1) for s in range(2)))


def test_a_timeline_of_inference_reaches_the_steady_state() -> None:
    timeline = timeline_of(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1).step, PLAN)
    assert timeline.schedule.n_micro_batches == 6
    assert timeline.period_cycles == PLAN.cost_cycles == 12


def test_a_timeline_of_training_is_one_step() -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=1.0, batch_size=1, schedule=Order.GPIPE, n_micro_batches=5)
    timeline = timeline_of(knobs.step, PLAN)
    assert (timeline.schedule.order, timeline.schedule.n_micro_batches) == (Order.GPIPE, 5)


@pytest.mark.parametrize("order", [Order.GPIPE, Order.ONE_F_ONE_B, Order.ZB1P])
@pytest.mark.parametrize("period", [Period.OVERLAP, Period.SERIAL, Period.DUPLEX])
def test_a_step_as_a_function_of_costs_is_the_simulated_one_with_its_slopes(order: Order, period: Period) -> None:
    """Costs are at random, so that no two paths are alike and a thousandth of a cycle more changes none."""
    random = np.random.default_rng(order is Order.ZB1P)
    rows = [
        [int(random.integers(500, 900)), 0, int(random.integers(100, 400)), *random.integers(1, 300, 2)]
        for _ in range(3)
    ]
    stages = tuple(
        Stage(LayerRange(i, i + 1), i, forward, 2 * forward + weight, int(receive), int(send), {}, 1, weight)
        for i, (forward, _, weight, receive, send) in enumerate(rows)
    )
    plan = Plan(stages, period)
    is_split = order is Order.ZB1P
    schedule = make_schedule(order, 3, 5, times=plan_times(plan, True, split_backward=is_split))
    step = PlanStep(step_function(schedule, Transfers.OVERLAP), period, is_split)
    costs = np.array(cost_columns(plan), dtype=float).T[None]
    times = plan_times(plan, True, split_backward=is_split)
    assert step.cycles(costs)[0] == simulate(schedule, times, Transfers.OVERLAP).makespan_cycles
    slopes = step.slopes(costs)
    for index in np.ndindex(3, 5):
        more = costs.copy()
        more[0][index] += 1e-3
        assert (step.cycles(more) - step.cycles(costs))[0] == pytest.approx(1e-3 * slopes[0][index], abs=1e-7)
    both = step.slopes(np.concatenate([costs, costs * 2]))
    assert both == pytest.approx(np.concatenate([slopes, slopes]))
