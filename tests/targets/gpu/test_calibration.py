"""Factors of measured rows: shrunk where rows are few, robust against a failed one, with intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.costs.decoder import Workload
from autoauto.targets.gpu.calibration import HELD, INTERVAL, Group, Ratio, factor_of, fit, unmeasured
from autoauto.targets.gpu.family_errors import DENSE, TPOT_PRIOR, ErrorKey, Prior

PRIOR = Prior(0.1, 0.2, 1.0, 0.1)
GROUP = Group("model", "vllm", "h100_sxm", "fp8")


def test_nothing_measured_changes_nothing_and_says_how_uncertain_it_is() -> None:
    factor = fit([]).of(GROUP).tpot
    assert (factor.factor, factor.n_rows) == (1.0, 0)
    assert factor.low < 1 < factor.high


def test_more_rows_move_the_factor_further_and_narrow_its_interval() -> None:
    few, many = factor_of([1.5] * 2, PRIOR), factor_of([1.5] * 50, PRIOR)
    assert 1 < few.factor < many.factor < 1.5
    assert many.high / many.low < few.high / few.low
    assert many.high / many.low > np.exp(2 * 1.28 * PRIOR.scatter)  # 80 % of a normal distribution


def test_one_failed_measurement_does_not_move_it() -> None:
    assert factor_of([1.1, 1.1, 40.0], PRIOR).factor == factor_of([1.1, 1.1, 1.1], PRIOR).factor


def test_groups_have_factors_of_their_own() -> None:
    other = GROUP._replace(engine="trtllm")
    calibration = fit([Ratio(GROUP, 1.2, 2.0), Ratio(other, 0.8, 0.5)])
    assert calibration.of(GROUP).tpot.factor > 1 > calibration.of(other).tpot.factor
    assert calibration.of(GROUP).ttft.factor > 1 > calibration.of(other).ttft.factor
    assert calibration.of(GROUP._replace(system="l40s")).tpot.factor == 1.0


def test_a_group_far_from_1_is_taken_as_measured_and_one_near_1_is_pulled_to_it() -> None:
    near, far = factor_of([1.15], PRIOR), factor_of([3.0], PRIOR)
    assert 0.5 < np.log(near.factor) / np.log(1.15) < 0.9
    assert np.log(far.factor) / np.log(3.0) > 0.97


def test_rows_of_the_prior_lie_in_the_interval_and_keep_bounds_as_often_as_is_said() -> None:
    random = np.random.default_rng(0)
    n_inside, n_below, n_groups = 0, 0, 4000
    for _ in range(n_groups):
        spread = PRIOR.far if random.random() < PRIOR.p_far else PRIOR.near
        logs = random.normal(random.normal(0, spread), PRIOR.scatter, 4)
        factor = factor_of([float(np.exp(x)) for x in logs[:3]], PRIOR)
        n_inside += factor.low <= np.exp(logs[3]) <= factor.high
        n_below += np.exp(logs[3]) <= factor.held
    assert n_inside / n_groups == pytest.approx(INTERVAL, abs=0.02)
    assert n_below / n_groups == pytest.approx(HELD, abs=0.02)


def test_a_prior_that_is_not_around_1_pulls_to_its_centre() -> None:
    prior = PRIOR._replace(centre=float(np.log(1.3)))
    nothing, few, many = (factor_of([1.6] * n, prior) for n in (0, 1, 50))
    assert nothing.factor == pytest.approx(1.3)
    assert 1.3 < few.factor < many.factor < 1.6
    plain = factor_of([1.6 / 1.3], PRIOR)
    assert few.factor == pytest.approx(1.3 * plain.factor)
    assert (few.low, few.high) == pytest.approx((1.3 * plain.low, 1.3 * plain.high))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.65, 0.9])
def test_the_share_that_bounds_hold_at_is_that_of_the_prior(share: float) -> None:
    random = np.random.default_rng(1)
    spreads = np.where(random.random(100_000) < PRIOR.p_far, PRIOR.far, PRIOR.near)
    logs = random.normal(random.normal(0, spreads), PRIOR.scatter)
    factor = factor_of([], PRIOR)
    assert (np.exp(logs) <= factor.at(share)).mean() == pytest.approx(share, abs=0.01)


def test_what_is_less_certain_has_its_ends_further_away() -> None:
    random = np.random.default_rng(2)
    factor, wider = factor_of([1.2] * 3, PRIOR), factor_of([1.2] * 3, PRIOR).widened(0.3)
    spreads = np.where(random.random(100_000) < PRIOR.p_far, PRIOR.far, PRIOR.near)
    logs = random.normal(random.normal(0, spreads), PRIOR.scatter) + random.normal(0, 0.3, 100_000)
    unmeasured = factor_of([], PRIOR).widened(0.3)
    assert ((unmeasured.low <= np.exp(logs)) & (np.exp(logs) <= unmeasured.high)).mean() == pytest.approx(0.8, abs=0.01)
    assert wider.low < factor.low < factor.factor == wider.factor < factor.held < wider.held < wider.high


def test_many_rows_far_from_1_are_certain() -> None:
    """50 rows at 90 times the forecast: the logarithm of the odds is above 700, whose power no float holds."""
    assert factor_of([90.0] * 50, TPOT_PRIOR).factor == pytest.approx(90, rel=0.01)


def test_what_was_not_measured_of_a_row_has_no_part_in_its_factor() -> None:
    factors = fit([Ratio(GROUP, 1.2, None), Ratio(GROUP, 1.2, 2.0)]).of(GROUP)
    assert (factors.tpot.n_rows, factors.ttft.n_rows) == (2, 1)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20))
def test_a_factor_lies_between_1_and_the_median_of_its_rows(ratios: list[float]) -> None:
    factor, middle = factor_of(ratios, PRIOR).factor, float(np.exp(np.median(np.log(ratios))))
    assert min(1.0, middle) - 1e-9 <= factor <= max(1.0, middle) + 1e-9


def test_intervals_are_wider_the_further_lengths_are_from_those_that_were_measured() -> None:
    near, far = Workload(1024, 256), Workload(4096, 256)
    calibration = fit([Ratio(GROUP, 1.2, 1.1, near)] * 3)
    same, other = (calibration.of(GROUP, requests) for requests in (near, far))
    assert same == calibration.of(GROUP)
    assert other.tpot.factor == same.tpot.factor
    assert other.tpot.high / other.tpot.low > same.tpot.high / same.tpot.low
    assert other.ttft.high > same.ttft.high
    assert calibration.of(GROUP._replace(system="l40s"), far) == unmeasured(ErrorKey(DENSE))
