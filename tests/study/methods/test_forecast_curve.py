"""Forecasts of curve batch sizes of a cell, and bounds for those between them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import pytest

from autoauto.space.knobs import Knobs
from autoauto.study.methods.forecast_curve import (
    FIRST_FIXED_SHARE,
    MAX_FORECASTS,
    MEMORY_RIPPLE,
    MIN_FIXED_SHARE,
    NEIGHBOUR_DISTANCE,
    ForecastCurve,
)
from autoauto.study.methods.protocol import Forecast, Predictor


def curve_of(scores: dict[int, float | None], excess: float = 0.01) -> ForecastCurve:
    """A cell of these batch sizes; those with None lack the share `excess` of memory."""

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        score = scores[knobs.batch_size]
        return Forecast(score, excess if score is None else -0.1)

    return ForecastCurve(cell_of(sorted(scores)), Predictor(predict))


def cell_of(sizes: Iterable[int]) -> list[Knobs]:
    return [Knobs(n_ipu=1, memory_proportion=0.6, batch_size=size) for size in sizes]


def forecast_sizes(curve: ForecastCurve) -> list[int]:
    return [curve.sizes[index] for index in sorted(curve.forecasts)]


def test_the_survey_forecasts_sizes_a_factor_apart_and_both_ends() -> None:
    whole, with_gaps, single = (
        curve_of(dict.fromkeys(sizes, 1.0)) for sizes in (range(1, 101), (3, 5, 6, 90, 95), (7,))
    )
    for curve in (whole, with_gaps, single):
        curve.survey()
    assert forecast_sizes(whole) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert forecast_sizes(with_gaps) == [3, 6, 90, 95]
    assert forecast_sizes(single) == [7]
    assert list(single.gaps()) == []


def test_the_gap_between_two_sizes_that_nearly_fit_has_no_bound() -> None:
    curve = curve_of({size: 5.0 if size in (14, 15) else None for size in range(10, 21)}, MEMORY_RIPPLE / 2)
    curve.survey()
    assert forecast_sizes(curve) == [10, 20]
    assert [(gap.bound, gap.middle) for gap in curve.gaps()] == [(inf, 5)]
    curve.forecast(5)
    assert max(gap.bound for gap in curve.gaps()) < inf


def test_a_forecast_is_made_once() -> None:
    times: list[int] = []

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        times.append(knobs.batch_size)
        return Forecast(1.0, -0.1)

    curve = ForecastCurve(cell_of(range(1, 5)), Predictor(predict))
    curve.survey()
    curve.survey()
    curve.forecast(2)
    curve.forecast(2)
    assert times == [4, 2, 1, 3]


def test_the_bound_of_a_gap_grows_from_its_lower_end() -> None:
    curve = curve_of(dict.fromkeys(range(1, 101), 10.0))
    curve.forecast(19)
    curve.forecast(39)
    (gap,) = curve.gaps()
    assert (gap.middle, gap.last, gap.shortfall) == (29, 38, 0.0)
    ratio = 39 / 20
    assert gap.bound == pytest.approx(10.0 * ratio / (FIRST_FIXED_SHARE + (1 - FIRST_FIXED_SHARE) * ratio))
    curve.forecast(9)
    bound = {gap.last: gap.bound for gap in curve.gaps()}[38]
    assert bound == pytest.approx(
        10.0 * ratio / (MIN_FIXED_SHARE + (1 - MIN_FIXED_SHARE) * ratio)
    )  # the score did not grow before


def test_growth_continues_as_between_the_last_two_forecasts() -> None:
    curve = curve_of({n: n / (20 + n) for n in range(1, 101)})
    curve.forecast(9)
    curve.forecast(19)
    assert curve.growth_bound(39) == pytest.approx(40 / 60, rel=0.1)  # a little more, to be safe
    assert curve.growth_bound(39) > 40 / 60


@pytest.mark.parametrize(("excess", "n_gaps"), [(MEMORY_RIPPLE / 2, 3), (MEMORY_RIPPLE * 2, 1), (0.0, 1)])
def test_a_size_that_lacks_little_memory_may_have_neighbours_that_fit(excess: float, n_gaps: int) -> None:
    curve = curve_of({n: 1.0 if n < 20 else None for n in range(1, 101)}, excess)
    for index in (15, 30, 60, 99):
        curve.forecast(index)
    gaps = list(curve.gaps())
    assert len(gaps) == n_gaps
    assert [gap.shortfall for gap in gaps] == [0.0, *[excess] * (n_gaps - 1)]


def test_without_a_smaller_size_that_fits_the_growth_bound_is_zero() -> None:
    curve = curve_of({n: None if n < 20 else 1.0 for n in range(1, 41)})
    curve.forecast(0)
    assert curve.growth_bound(10) == 0.0
    assert list(curve.gaps()) == []
    curve.forecast(39)
    assert [gap.bound for gap in curve.gaps()] == [1.0]


def test_neighbours_are_proposed_until_all_have_a_forecast() -> None:
    curve = curve_of(dict.fromkeys((10, 14, 20, 22, 28, 29), 1.0))
    near = []
    while (index := curve.neighbour(2)) is not None:
        curve.forecast(index)
        near.append(curve.sizes[index])
    assert NEIGHBOUR_DISTANCE == 8
    assert near == [14, 20, 22, 28]


def test_the_number_of_forecasts_of_a_cell_is_bounded() -> None:
    curve = curve_of(dict.fromkeys(range(1, 200), 1.0))
    curve.survey()
    while gaps := list(curve.gaps()):
        curve.forecast(gaps[0].middle)
    assert len(curve.forecasts) == MAX_FORECASTS


def test_a_replaced_forecast_is_used() -> None:
    curve = curve_of({1: 1.0, 2: None})
    curve.survey()
    curve.replace(1, Forecast(3.0, 0.0))
    assert curve.forecast(1) == curve.at_or_below(1) == Forecast(3.0, 0.0)


def test_a_range_between_two_sizes_that_violate_a_constraint_is_found() -> None:
    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n), -0.1, max(40 / n, n / 43) - 1)  # from 40 to 43

    curve = ForecastCurve(cell_of(range(1, 101)), Predictor(predict))
    curve.survey()
    assert not any(forecast.works for forecast in curve.forecasts.values())
    while gaps := list(curve.gaps()):
        curve.forecast(max(gaps, key=lambda gap: gap.bound * (1.0 - gap.shortfall)).middle)
    assert [size for size in forecast_sizes(curve) if curve.forecast(size - 1).works] == [40, 41, 42, 43]


@pytest.mark.parametrize("most", [0, 1, 37, 63, 64, 99, 100])
def test_where_memory_never_falls_no_size_above_one_that_lacks_it_is_asked(most: int) -> None:
    asked: list[int] = []

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        asked.append(n := knobs.batch_size)
        return Forecast(float(n) if n <= most else None, (n - most) / 100 if n > most else -0.1)

    curve = ForecastCurve(cell_of(range(1, 101)), Predictor(predict, memory_never_falls=True))
    curve.survey()
    while gaps := list(curve.gaps()):
        curve.forecast(gaps[-1].middle)
    while (index := curve.neighbour(max(most - 1, 0))) is not None:
        curve.forecast(index)
    assert curve.forecast(99).works is (most == 100)
    lacking = [size for size in asked if size > most]
    assert lacking == sorted(lacking, reverse=True), "each asked size that lacks memory is below all before"
    assert asked[0] == 1
    assert {size for size in asked if size <= most} >= set(range(max(1, most - NEIGHBOUR_DISTANCE), most + 1))


def test_where_another_reason_than_memory_rules_a_size_out_larger_ones_are_asked() -> None:
    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n) if 5 <= n <= 6 else None, max(0.0, (n - 6) / 100))

    curve = ForecastCurve(cell_of(range(1, 9)), Predictor(predict, memory_never_falls=True))
    curve.survey()
    while gaps := list(curve.gaps()):
        curve.forecast(gaps[-1].middle)
    assert [size for size in forecast_sizes(curve) if curve.forecast(size - 1).works] == [5, 6]


def test_a_size_that_runs_after_all_is_no_reason_against_larger_ones() -> None:
    curve = ForecastCurve(
        cell_of(range(1, 5)), Predictor(lambda knobs, _=0.0: Forecast(None, 0.1), memory_never_falls=True)
    )
    assert [curve.forecast(index).lacks_memory for index in (0, 3)] == [True, True]
    assert forecast_sizes(curve) == [1]
    curve.replace(0, Forecast(1.0, 0.0))
    curve.doubt_memory()
    assert forecast_sizes(curve) == [1, 2, 4]
