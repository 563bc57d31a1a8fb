"""Candidates of a cell: open, gaps, doubtful ones, and what a measurement changes."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from scipy.special import ndtr

from autoauto.space.knobs import Knobs
from autoauto.study.methods.candidates import CELL_PATIENCE, CERTAIN, Candidates, normal_share
from autoauto.study.methods.engines.measure_next import expected_gains
from autoauto.study.methods.engines.ratios import Belief
from autoauto.study.methods.forecast_curve import N_SIGMAS, ErrorModel, ErrorModels
from autoauto.study.methods.protocol import Forecast, Observation, Predictor

SIZES = range(1, 33)


def models() -> ErrorModels:
    return ErrorModels(ErrorModel(0.0), ErrorModel(0.0))


def cell(fits: int = 32) -> Candidates:
    """Scores are the batch size; every sample takes 3 % of memory, and `fits` samples fill it."""

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n) if n <= fits else None, 0.03 * (n - fits))

    candidates = Candidates(
        [Knobs(n_ipu=1, memory_proportion=0.6, batch_size=n) for n in SIZES], Predictor(predict), 0, 0
    )
    candidates.curve.survey()
    candidates.update(models())
    return candidates


def sizes(candidates: Candidates) -> list[int]:
    return sorted(candidate.knobs.batch_size for candidate in candidates.open_candidates())


def test_a_forecast_that_fits_is_a_candidate_until_it_is_measured() -> None:
    candidates, fitted = cell(16), models()
    assert sizes(candidates) == [1, 2, 4, 8, 16]
    candidates.record(15, Observation(20.0, True), fitted, improved=True)
    candidates.update(fitted)
    assert sizes(candidates) == [1, 2, 4, 8]
    eight = next(candidate for candidate in candidates.open_candidates() if candidate.knobs.batch_size == 8)
    assert eight.expected == pytest.approx(8 * 20 / 16, rel=0.01)
    assert eight.expected < eight.bound < 1.1 * eight.expected


def test_a_configuration_that_does_not_fit_rules_out_equally_full_ones() -> None:
    candidates, fitted = cell(), models()
    candidates.record(15, Observation(None, True), fitted, improved=False)
    assert sizes(candidates) == [1, 2, 4, 8]
    candidates.record(7, Observation(None, True), fitted, improved=False)
    assert sizes(candidates) == [1, 2, 4]


def test_a_cell_without_improvement_has_no_candidates_any_more() -> None:
    candidates, fitted = cell(), models()
    for index in range(CELL_PATIENCE):
        assert candidates.best() is not None
        candidates.record(index, Observation(1.0, True), fitted, improved=False)
    assert candidates.best() is None
    assert candidates.best_gap(0.0) is None
    assert candidates.closed(0.0)
    assert sizes(candidates)  # as ties with the best


def test_the_smallest_batch_that_should_not_fit_is_doubtful_when_it_would_be_better() -> None:
    candidates, fitted = cell(16), models()
    candidates.record(15, Observation(16.0, True), fitted, improved=True)
    candidates.update(fitted)
    candidates.forecast(16)
    assert candidates.doubtful(16.1) == 16
    assert candidates.doubtful(1000.0) is None
    candidates.record(16, Observation(None, False), fitted, improved=False)
    assert candidates.doubtful(16.1) is None


def test_after_a_wrong_estimate_of_memory_steps_double_and_then_halve() -> None:
    candidates, fitted = cell(16), models()
    candidates.record(15, Observation(16.0, True), fitted, improved=True)
    for larger in range(16, 32):
        candidates.forecast(larger)
    seen: list[int] = []
    while len(seen) < 10:
        candidates.update(fitted)
        index = candidates.doubtful(0.1)
        if index is None:
            break
        seen.append(SIZES[index])
        fits = SIZES[index] <= 19
        candidates.record(index, Observation(float(SIZES[index]) if fits else None, True), fitted, improved=fits)
    assert seen == [17, 19, 23, 21, 20]


def test_where_nothing_fits_the_smallest_batch_is_the_last_resort() -> None:
    candidates, fitted = cell(0), models()
    assert candidates.last_resort() == 0
    candidates.record(0, Observation(None, False), fitted, improved=False)
    assert candidates.last_resort() is None


def bounded(bound: float) -> Candidates:
    """Everything fits; the batch size may be `bound` by the estimate."""

    def predict(knobs: Knobs, worth: float = 0.0) -> Forecast:
        n = knobs.batch_size
        return Forecast(float(n), -0.5, n / bound - 1 if n > bound else 1 - bound / n)

    candidates = Candidates(
        [Knobs(n_ipu=1, memory_proportion=0.6, batch_size=n) for n in SIZES], Predictor(predict), 0, 0
    )
    for index in range(len(SIZES)):
        candidates.forecast(index)
    candidates.update(models())
    return candidates


@pytest.mark.parametrize(("error", "largest", "doubtful"), [(1.0, 20, None), (1.1, 18, 19), (0.79, 25, None)])
def test_the_error_of_a_constrained_quantity_is_fitted(error: float, largest: int, doubtful: int | None) -> None:
    """A measurement of batch size 10 shows by which factor the estimate of the constrained quantity errs."""
    candidates, fitted = bounded(20.0), models()
    assert max(sizes(candidates)) == 20
    candidates.record(9, Observation(10.0, True, (), 1 - 20 / (10 * error)), fitted, improved=True)
    candidates.update(fitted)
    assert max(sizes(candidates)) == largest
    assert candidates.doubtful(10.03) == (None if doubtful is None else doubtful - 1)


def test_a_cell_that_violates_a_constraint_everywhere_is_measured_once() -> None:
    candidates, fitted = bounded(0.1), models()
    assert candidates.last_resort() == 0
    candidates.record(0, Observation(None, True, (), 9.0), fitted, improved=False)
    candidates.update(fitted)
    assert candidates.last_resort() is None


def test_what_may_violate_a_constraint_gains_less() -> None:
    def near(size: int, limit: int) -> tuple[float, float]:
        candidate = next(each for each in bounded(limit).open_candidates() if each.knobs.batch_size == size)
        return candidate.holds, candidate.expected_gain(1.0)

    at_limit, far_below = near(8, 8), near(8, 32)
    assert at_limit[0] == pytest.approx(0.5)
    assert far_below[0] > 0.99
    assert at_limit[1] == pytest.approx(far_below[1] * at_limit[0] / far_below[0])


def test_a_gain_is_of_the_score_above_the_best() -> None:
    largest = max(cell().open_candidates(), key=lambda each: each.expected)
    assert largest.holds == 1.0
    assert largest.expected_gain(0.1) == pytest.approx(largest.expected - 0.1, rel=0.06)
    assert 0.0 < largest.expected_gain(1.1 * largest.expected) < 0.2 * largest.expected
    assert largest.expected_gain(100 * largest.expected) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("share_of_expected", [0.01, 0.5, 0.9, 0.999, 1.0, 1.001, 1.2, 3.0])
def test_the_gain_is_that_of_the_rule_for_many_beliefs(share_of_expected: float) -> None:
    """`expected_gains` asks scipy for the same share of a normal distribution, of many at once."""
    largest = max(cell().open_candidates(), key=lambda each: each.expected)
    best = share_of_expected * largest.expected
    deviation = max(log(largest.bound / largest.expected) / N_SIGMAS, CERTAIN)
    belief = Belief(np.ones((1, 1)), np.zeros((1, 1)), np.full((1, 1), deviation))
    [gain] = expected_gains(belief, np.full(1, log(largest.expected)), np.full(1, inf), best)
    assert largest.expected_gain(best) == pytest.approx(gain, rel=1e-9, abs=1e-300)


def test_shares_of_a_normal_distribution_are_those_of_scipy() -> None:
    deviations = np.linspace(-37.0, 9.0, 500)
    assert [normal_share(each) for each in deviations.tolist()] == pytest.approx(ndtr(deviations), rel=1e-12, abs=0.0)
