"""The makespan as a function of times: equal to simulation, and bounded by its slopes."""

from __future__ import annotations

import numpy as np
import pytest

from autoauto.records.schedule import Order, StageTimes, Transfers
from autoauto.records.units import IntArray
from autoauto.schedule.orders.registry import make_schedule, spec_of, stage_devices_of
from autoauto.schedule.simulate.simulate import simulate
from autoauto.schedule.simulate.step import step_function, time_rows
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem, lower_bound, zero_bubble_bound

CASES = [
    (Order.GPIPE, 4, 1),
    (Order.ONE_F_ONE_B, 4, 1),
    (Order.POPART, 3, 1),
    (Order.GROUPED, 3, 1),
    (Order.INTERLEAVED, 3, 2),
    (Order.ZB1P, 3, 1),
    (Order.ZBV, 3, 1),
]


def random_times(random: np.random.Generator, n_stages: int, split: bool) -> StageTimes:
    def draw(n_times: int = n_stages) -> IntArray:
        return random.integers(0, 50, n_times)

    return StageTimes(draw(), draw(), draw() * split, draw(n_stages + 1), draw(), draw(), draw())


@pytest.mark.parametrize("transfers", Transfers)
@pytest.mark.parametrize(("order", "n_devices", "n_chunks"), CASES)
def test_it_is_the_makespan_and_no_makespan_is_below_its_slopes(
    order: Order, n_devices: int, n_chunks: int, transfers: Transfers
) -> None:
    random, split = np.random.default_rng(0), spec_of(order).splits_backward
    n_stages = len(stage_devices_of(order, n_devices, n_chunks))
    times = [random_times(random, n_stages, split) for _ in range(8)]
    schedule = make_schedule(order, n_devices, 6, n_chunks=n_chunks, times=times[0] if split else None)
    step, rows = step_function(schedule, transfers), np.stack([time_rows(each) for each in times], axis=1)
    makespans = [simulate(schedule, each, transfers).stop_tick for each in times]
    bounds = step.slopes(rows).T @ rows  # by the times of the slopes and the times that are bounded
    assert step.ticks(rows).tolist() == makespans == bounds.diagonal().tolist()
    assert (bounds <= makespans).all()


def test_the_linear_bounds_of_zero_bubble_orders_are_the_lower_bound_but_for_memory() -> None:
    random, n_equal = np.random.default_rng(0), 0
    for _ in range(60):
        n_stages, n_micro_batches, limit = (int(random.integers(1, most)) for most in (6, 12, 12))
        times = random_times(random, n_stages, split=True)
        expected = lower_bound(ZeroBubbleProblem.of(times, range(n_stages), n_micro_batches, limit))
        bound = zero_bubble_bound(range(n_stages), n_micro_batches, limit).ticks(time_rows(times)[:, None])
        assert bound[0] <= expected
        n_equal += bool(bound[0] == expected)
    assert n_equal > 40
