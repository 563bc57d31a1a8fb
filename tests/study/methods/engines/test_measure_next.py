"""What is measured next, on few configurations by hand."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest

from autoauto.study.methods.engines.measure_next import MeasureNext, expected_gains
from autoauto.study.methods.engines.ratios import Belief, Ratios, correlations

BATCHES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
FORECASTS_S = 0.010 + 0.001 * BATCHES


def loop_of(bound_s: float = inf, noise: float = 0.0) -> MeasureNext:
    """Batches of 1 to 32, whose steps are forecast to take 10 ms and 1 ms a sequence."""
    ones = np.ones(len(BATCHES))
    correlation = correlations(np.log2(BATCHES)[:, None] / 5, np.zeros((len(BATCHES), 0)), ones)
    return MeasureNext(BATCHES / FORECASTS_S, np.log(bound_s / FORECASTS_S), Ratios(correlation, ones, noise), noise)


def normal(mean: float, deviation: float) -> Belief:
    return Belief(np.ones((1, 1)), np.full((1, 1), mean), np.full((1, 1), deviation))


def gain(belief: Belief, limit: float, best: float) -> float:
    """Of a configuration that is forecast to score 1."""
    return float(expected_gains(belief, np.zeros(1), np.full(1, limit), best)[0])


def test_the_gain_of_what_is_known_is_what_it_is_better() -> None:
    assert gain(normal(-log(1.5), 1e-9), inf, 1.0) == pytest.approx(0.5)
    assert gain(normal(log(1.5), 1e-9), inf, 1.0) == 0.0
    assert gain(normal(-log(1.5), 1e-9), -0.5, 1.0) == 0.0, "the bound needs a smaller ratio"


@pytest.mark.parametrize(("limit", "best"), [(inf, 0.9), (0.1, 0.9), (0.1, 0.0), (-0.05, 1.0)])
def test_the_gain_is_the_mean_over_ratios(limit: float, best: float) -> None:
    ratios = np.random.default_rng(1).normal(0.02, 0.2, 1_000_000)
    gains = np.where(ratios <= limit, np.maximum(np.exp(-ratios) - best, 0.0), 0.0)
    assert gain(normal(0.02, 0.2), limit, best) == pytest.approx(gains.mean(), rel=5e-3)


def test_without_a_bound_the_best_forecast_is_first_and_ends_the_search() -> None:
    loop = loop_of()
    assert loop.next() == 5
    loop.ratios.add(5, 0.0)
    assert loop.answer() == 5
    assert loop.next() is None, "half the batch gives 25 % less by a forecast that was right"


def test_first_is_what_likely_keeps_the_bound_not_what_just_may() -> None:
    assert loop_of(0.0175).candidate() == 2, "the batch of 8 is forecast to take 18 ms, that of 4 14 ms"
    assert loop_of(0.025).candidate() == 3


def test_measurements_move_the_next_one() -> None:
    slow, fast = loop_of(0.0185), loop_of(0.0185)
    slow.ratios.add(2, log(1.4))
    fast.ratios.add(2, log(0.8))
    assert slow.answer() is None, "14 ms took 19.6"
    assert slow.candidate() == 1
    assert fast.answer() == 2
    assert fast.candidate() == 3


def test_nothing_is_the_answer_where_nothing_keeps_the_bound() -> None:
    loop = loop_of(0.001)
    assert loop.answer() is None
    loop.ratios.add(0, 0.0)
    assert loop.answer() is None
    assert loop.next() is None


def test_a_value_at_its_bound_keeps_it() -> None:
    loop = loop_of(float(FORECASTS_S[3]))
    loop.ratios.add(3, 0.0)
    assert loop.answer() == 3


def test_one_noise_above_the_bound_is_accepted_and_three_are_not() -> None:
    for n_noises, answer in ((1, 3), (3, None)):
        loop = loop_of(float(FORECASTS_S[3]), noise=0.03)
        loop.ratios.add(3, n_noises * 0.03)
        assert loop.answer() == answer


def test_scores_within_the_noise_tie_and_are_measured_again() -> None:
    correlation = correlations(np.array([[0.0], [1.0]]), np.zeros((2, 0)), np.ones(2))
    loop = MeasureNext(np.ones(2), np.full(2, inf), Ratios(correlation, np.ones(2), 0.05), 0.05)
    for index, log_ratio in enumerate((0.0, 0.02)):
        assert loop.next() == index
        loop.ratios.add(index, log_ratio)
    assert (loop.answer(), loop.ties(), loop.candidate()) == (0, [1], None)
    assert loop.next() == 0, "of two that were measured as often the answer is first"
    loop.ratios.add(0, 0.0)
    assert loop.next() == 1
    for _ in range(20):
        loop.ratios.add(0, 0.0)
        loop.ratios.add(1, 0.1)
    assert (loop.answer(), loop.ties(), loop.next()) == (0, [], None)


def test_without_noise_nothing_is_measured_again() -> None:
    loop = loop_of()
    for index in range(len(BATCHES)):
        loop.ratios.add(index, 0.0)
    assert loop.next() is None
    assert loop.ties() == []
