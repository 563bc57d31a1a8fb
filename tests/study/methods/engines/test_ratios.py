"""Beliefs in ratios by hand."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autoauto.study.methods.engines.ratios import (
    LABEL_DISTANCE,
    LENGTHS,
    OWN,
    SCATTER,
    Hypothesis,
    Likeness,
    Ratios,
    coordinates,
    correlations,
)

SHARED_ONLY = (Hypothesis(1.0, 0.3, 0.0),)


def ratios_of(coordinates: list[float], noise: float = 0.0, hypotheses: tuple[Hypothesis, ...] | None = None) -> Ratios:
    """Configurations on a line."""
    doubts = np.ones(len(coordinates))
    correlation = correlations(np.array(coordinates)[:, None], np.zeros((len(coordinates), 1)), doubts)
    return Ratios(correlation, doubts, noise, *([] if hypotheses is None else [hypotheses]))


def test_without_measurements_the_interval_is_that_of_the_prior() -> None:
    low, high = ratios_of([0.0, 9.0], hypotheses=SHARED_ONLY).belief().interval(0.8)
    deviation = (0.3**2 + OWN**2 + SCATTER**2) ** 0.5
    assert high == pytest.approx(exp(1.2816 * deviation), rel=1e-4)
    assert low == pytest.approx(1 / high, rel=1e-6)


def test_what_all_share_is_fitted_to_one() -> None:
    ratios = ratios_of([0.0, 9.0], noise=0.1, hypotheses=SHARED_ONLY)
    ratios.add(0, 0.5)
    belief = ratios.belief()
    assert belief.mean[1] == pytest.approx(0.5 * 0.09 / (0.09 + OWN**2 + 0.01), rel=1e-6)
    assert belief.deviations[0, 1] ** 2 == pytest.approx(0.09 + OWN**2 - 0.09**2 / (0.09 + OWN**2 + 0.01), rel=1e-6)


def test_what_was_measured_without_noise_is_known() -> None:
    ratios = ratios_of([0.0, 1.0])
    ratios.add(0, 0.2)
    belief = ratios.belief()
    assert belief.quantile(0.1)[0] == pytest.approx(0.2, abs=1e-4)
    low, high = belief.interval(0.8)
    assert low[0] == pytest.approx(exp(0.2 - 1.2816 * SCATTER), rel=1e-4), "another may measure it again"
    assert high[0] / low[0] < high[1] / low[1]


def test_near_configurations_are_more_alike_than_far_ones() -> None:
    ratios = ratios_of([0.0, 0.2, 3.0], hypotheses=(Hypothesis(1.0, 0.0, 0.2),))
    ratios.add(0, 0.3)
    mean = ratios.belief().mean
    assert mean[1] == pytest.approx(0.3 * 0.04 * exp(-0.2) / (0.04 + OWN**2), rel=1e-6)
    assert mean[2] < 0.1 * mean[1]


def test_other_labels_are_a_distance_and_doubt_makes_errors_larger() -> None:
    correlation = correlations(np.zeros((3, 1)), np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 2.0, 1.0]))
    assert correlation(0) == pytest.approx([1.0, 2.0, exp(-LABEL_DISTANCE)])


def test_a_ratio_far_from_1_is_believed_of_all() -> None:
    ratios = ratios_of([0.0, 1.0])
    ratios.add(0, log(3.0))
    assert ratios.belief().mean[1] == pytest.approx(log(3.0), abs=0.25), "the forecast is of something else"
    near = ratios_of([0.0, 1.0])
    near.add(0, 0.05)
    assert near.belief().probabilities[-1, 0] < 0.1


def test_measuring_again_makes_it_surer() -> None:
    ratios = ratios_of([0.0], noise=0.1)
    deviations = []
    for _ in range(3):
        ratios.add(0, 0.1)
        deviations.append(float(ratios.belief().deviations[0, 0]))
    assert deviations == sorted(deviations, reverse=True)


def test_quantiles_of_a_mixture_are_where_its_shares_are() -> None:
    belief = ratios_of([0.0, 1.0]).belief()
    for share in (0.1, 0.5, 0.99):
        assert belief.share_below(belief.quantile(share)) == pytest.approx(share, abs=1e-6)


def test_coordinates_are_powers_of_2_in_lengths() -> None:
    first, second = coordinates([Likeness(8, 2), Likeness(16, 2)])
    assert (second - first)[0] == pytest.approx(1 / LENGTHS.n_sequences)
    assert not (second - first)[1:].any()
