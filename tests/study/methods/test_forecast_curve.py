"""Forecasts of a cell, asked as seldom as will do."""

from __future__ import annotations

from math import inf

import pytest

from autoauto.records.knobs import Knobs
from autoauto.study.methods.forecast_curve import AROUND, FIRST_FIXED, FIXED, MOST_FORECASTS, RIPPLE, Prospect
from autoauto.study.methods.protocol import Forecast


def prospect(scores: dict[int, float | None], excess: float = 0.01) -> Prospect:
    """A cell of these batch sizes; None lacks `excess`."""

    def predict(knobs: Knobs) -> Forecast:
        score = scores[knobs.batch_size]
        return Forecast(score, excess if score is None else -0.1)

    return Prospect([Knobs(1, 0.6, size) for size in sorted(scores)], predict)


def asked(some: Prospect) -> list[int]:
    return [some.sizes[index] for index in sorted(some.forecasts)]


def test_the_survey_asks_for_sizes_a_factor_apart_and_both_ends() -> None:
    whole, gaps, one = (prospect(dict.fromkeys(sizes, 1.0)) for sizes in (range(1, 101), (3, 5, 6, 90, 95), (7,)))
    for some in (whole, gaps, one):
        some.survey()
    assert asked(whole) == [1, 2, 4, 8, 16, 32, 64, 100]
    assert asked(gaps) == [3, 6, 90, 95]
    assert asked(one) == [7]
    assert list(one.gaps()) == []


def test_between_two_that_nearly_fit_anything_may() -> None:
    some = prospect({size: 5.0 if size in (14, 15) else None for size in range(10, 21)}, RIPPLE / 2)
    some.survey()
    assert asked(some) == [10, 20]
    assert [(gap.score, gap.middle) for gap in some.gaps()] == [(inf, 5)]
    some.ask(5)
    assert max(gap.score for gap in some.gaps()) < inf


def test_nothing_is_asked_twice() -> None:
    times: list[int] = []

    def predict(knobs: Knobs) -> Forecast:
        times.append(knobs.batch_size)
        return Forecast(1.0, -0.1)

    some = Prospect([Knobs(1, 0.6, size) for size in range(1, 5)], predict)
    some.survey()
    some.survey()
    some.ask(2)
    some.ask(2)
    assert times == [4, 2, 1, 3]


def test_a_gap_may_hold_what_grows_from_its_lower_end() -> None:
    some = prospect(dict.fromkeys(range(1, 101), 10.0))
    some.ask(19)
    some.ask(39)
    (gap,) = some.gaps()
    assert (gap.middle, gap.last, gap.short) == (29, 38, 0.0)
    ratio = 39 / 20
    assert gap.score == pytest.approx(10.0 * ratio / (FIRST_FIXED + (1 - FIRST_FIXED) * ratio))
    some.ask(9)
    score = {gap.last: gap.score for gap in some.gaps()}[38]
    assert score == pytest.approx(10.0 * ratio / (FIXED + (1 - FIXED) * ratio))  # the score did not grow before


def test_growth_goes_on_as_it_was() -> None:
    some = prospect({n: n / (20 + n) for n in range(1, 101)})
    some.ask(9)
    some.ask(19)
    assert some.grown(39) == pytest.approx(40 / 60, rel=0.1)  # a little more, to be safe
    assert some.grown(39) > 40 / 60


@pytest.mark.parametrize(("excess", "n_gaps"), [(RIPPLE / 2, 3), (RIPPLE * 2, 1), (0.0, 1)])
def test_what_lacks_little_may_have_neighbours_that_fit(excess: float, n_gaps: int) -> None:
    some = prospect({n: 1.0 if n < 20 else None for n in range(1, 101)}, excess)
    for index in (15, 30, 60, 99):
        some.ask(index)
    gaps = list(some.gaps())
    assert len(gaps) == n_gaps
    assert [gap.short for gap in gaps] == [0.0, *[excess] * (n_gaps - 1)]


def test_what_nothing_smaller_fits_grows_to_nothing() -> None:
    some = prospect({n: None if n < 20 else 1.0 for n in range(1, 41)})
    some.ask(0)
    assert some.grown(10) == 0.0
    assert list(some.gaps()) == []
    some.ask(39)
    assert [gap.score for gap in some.gaps()] == [1.0]


def test_neighbours_are_asked_until_all_are_known() -> None:
    some = prospect(dict.fromkeys((10, 14, 20, 22, 28, 29), 1.0))
    near = []
    while (index := some.around(2)) is not None:
        some.ask(index)
        near.append(some.sizes[index])
    assert AROUND == 8
    assert near == [14, 20, 22, 28]


def test_a_cell_is_not_asked_for_ever() -> None:
    some = prospect(dict.fromkeys(range(1, 200), 1.0))
    some.survey()
    while gaps := list(some.gaps()):
        some.ask(gaps[0].middle)
    assert len(some.forecasts) == MOST_FORECASTS


def test_a_correction_replaces_a_forecast() -> None:
    some = prospect({1: 1.0, 2: None})
    some.survey()
    some.set(1, Forecast(3.0, 0.0))
    assert some.ask(1) == some.near(1) == Forecast(3.0, 0.0)


def test_a_window_between_two_sizes_that_break_a_constraint_is_found() -> None:
    def predict(knobs: Knobs) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n), -0.1, max(40 / n, n / 43) - 1)  # from 40 to 43

    some = Prospect([Knobs(1, 0.6, n) for n in range(1, 101)], predict)
    some.survey()
    assert not any(forecast.works for forecast in some.forecasts.values())
    while gaps := list(some.gaps()):
        some.ask(max(gaps, key=lambda gap: gap.score * (1.0 - gap.short)).middle)
    assert [size for size in asked(some) if some.ask(size - 1).works] == [40, 41, 42, 43]
