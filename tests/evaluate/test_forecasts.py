"""What is known of configurations before they are planned, against their forecasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice, product

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.records.costs.profile import Optimizer
from autoauto.records.layers import LayerGraph
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Recompute
from tests.drawn import is_thorough
from tests.orders import STAGES_PER_DEVICE


def configurations() -> list[Knobs]:
    several = (Order.POPART, Order.GPIPE, Order.ONE_F_ONE_B, Order.INTERLEAVED, Order.ZB1P, Order.ZBV)
    recomputes: tuple[bool | Recompute, ...] = (False, True, Recompute.AUTO)
    every = product((1, 2), several, recomputes, (4, 12), (1, 2))
    choices = every if is_thorough() else islice(every, 0, None, 5)
    return [
        Knobs(
            n_ipu=n_ipu,
            memory_proportion=0.6,
            batch_size=2,
            schedule=order,
            recompute=recompute,
            n_micro_batches=m,
            optimizer=optimizer,
            stages_per_device=STAGES_PER_DEVICE[order][0],
        )
        for n_ipu, order, recompute, m, n in choices
        for optimizer in (list(Optimizer)[n],)
        if n_ipu > 1 or STAGES_PER_DEVICE[order][0] == 1
    ]


@pytest.mark.drawn
def test_no_forecast_is_better_than_the_best_case(flow: Flow) -> None:
    n_fitting = 0
    for knobs in configurations():
        best, trial = flow.step_bounds(knobs), flow.forecast(knobs)
        assert best is not None
        if trial.runs:
            n_fitting += 1
            assert best.excess <= trial.excess + 1e-4  # limits are whole bytes
            assert trial.samples_per_s <= best.samples_per_s <= 4 * trial.samples_per_s
    assert n_fitting > (20 if is_thorough() else 5)


@pytest.mark.drawn
def test_what_gives_no_more_is_so_and_known_of_what_is_much_worse(flow: Flow) -> None:
    n_bounded = 0
    for knobs in configurations():
        trial = flow.forecast(knobs)
        speed = trial.samples_per_s if trial.runs else 0.0
        fresh = flow.with_setting()  # without the plans of this forecast
        assert not speed or not fresh.is_bounded_by(knobs, speed * 0.999)
        n_bounded += fresh.is_bounded_by(knobs, max(speed * 1.5, 1.0))
    assert n_bounded > (100 if is_thorough() else 20)


def test_proportions_at_which_layers_cost_the_same_share_their_plans(flow: Flow) -> None:
    high, low = (
        Knobs(n_ipu=2, memory_proportion=share, batch_size=1, schedule=Order.ONE_F_ONE_B, n_micro_batches=4)
        for share in (1.0, 0.6)
    )
    assert flow.profile(flow.options(high)).layers == flow.profile(flow.options(low)).layers
    assert flow.forecast(high).estimate is not None
    assert flow.costs.with_equal_costs(low) == flow.costs.with_equal_costs(high)
    assert flow.forecast(low).estimate == flow.with_setting().forecast(low).estimate


@pytest.mark.drawn
def test_a_forecast_is_what_is_expected_but_for_the_timeline(flow: Flow) -> None:
    for knobs in configurations():
        expected, forecast = flow.expect(knobs), flow.forecast(knobs)
        assert forecast.timeline is None
        assert forecast.status == expected.status
        assert forecast.samples_per_s == expected.samples_per_s
        assert forecast.latency_s == expected.latency_s


def test_a_model_of_which_nothing_may_be_parted_has_bounds_too(flow: Flow, chain: Callable[..., LayerGraph]) -> None:
    tied = flow.with_setting(graph=chain(kinds=["a"] * 8, tie=(0, 7)))
    knobs = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=2, schedule=Order.GPIPE, n_micro_batches=4)
    best, trial = tied.step_bounds(knobs), tied.forecast(knobs)
    assert best is not None
    assert 0 < trial.samples_per_s <= best.samples_per_s
    assert tied.step_bounds(replace(knobs, n_ipu=2)) is not None


def test_inference_has_none(flow: Flow) -> None:
    assert flow.step_bounds(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1)) is None


def test_what_fits_is_known_without_the_best_plan(flow: Flow) -> None:
    numbers = product((1, 2, 4), (1, 2, 8), (1, 8, 64, 256, 2048), (False, True))
    asked = [Knobs(n_ipu=n, replicas=r, batch_size=b, stage_replicas=several) for n, r, b, several in numbers]
    asked += configurations()[:20]
    fitting = [flow.fits(knobs) for knobs in asked]
    assert fitting == [flow.forecast(knobs).fits for knobs in asked]
    assert 20 < sum(fitting) < len(asked) - 20
