"""The errors of the estimate, fitted to measurements."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autoauto.study.methods.forecast_curve import (
    N_SIGMAS,
    PRIOR_STRENGTH,
    READING_SCATTER,
    SIGMA_ALL,
    SIGMA_BATCH,
    SIGMA_CELL,
    SIGMA_FAMILY,
    SIGMA_OWN,
    ErrorModel,
    GridPositions,
)


def at(cell: int, family: int, batch_size: int) -> GridPositions:
    return GridPositions(np.array([cell]), np.array([family]), np.array([log(batch_size)]))


def test_before_any_measurement_the_prior_holds() -> None:
    expected, most = ErrorModel(0.0).ratios(at(0, 0, 8))
    spread = (SIGMA_ALL**2 + SIGMA_FAMILY**2 + SIGMA_BATCH**2 + SIGMA_CELL**2 + SIGMA_OWN**2) ** 0.5
    assert expected.item() == 1.0
    assert most.item() == pytest.approx(exp(N_SIGMAS * spread))


def test_a_measurement_narrows_the_bound_of_closer_configurations_more() -> None:
    model = ErrorModel(0.0)
    model.add(at(0, 0, 8), 1.2)
    positions = [at(0, 0, 8), at(0, 0, 9), at(0, 0, 64), at(1, 0, 8), at(2, 1, 8)]
    expected, most = zip(*((e.item(), m.item()) for e, m in map(model.ratios, positions)), strict=True)
    assert expected[0] == pytest.approx(1.2, rel=0.002)
    slack = [m / e for e, m in zip(expected, most, strict=True)]
    assert slack == sorted(slack)
    assert slack[0] < 1.01 < slack[-1] < 1.2


def test_the_posterior_of_one_measurement_by_hand() -> None:
    model = ErrorModel(0.1)
    model.add(at(0, 0, 8), exp(0.2))
    batch = SIGMA_BATCH**2 + (READING_SCATTER * 0.1) ** 2
    shared, own = SIGMA_ALL**2, SIGMA_ALL**2 + SIGMA_FAMILY**2 + batch + SIGMA_CELL**2 + SIGMA_OWN**2
    known = own + 0.1**2
    scale = (PRIOR_STRENGTH + 0.2**2 / known) / (PRIOR_STRENGTH + 1)
    expected, most = model.ratios(at(1, 1, 8))
    assert log(expected.item()) == pytest.approx(0.2 * shared / known)
    assert log(most.item() / expected.item()) == pytest.approx(N_SIGMAS * (scale * (own - shared**2 / known)) ** 0.5)


def test_where_measurements_scatter_one_batch_size_says_less_of_another() -> None:
    exact, noisy = ErrorModel(0.0), ErrorModel(0.01)
    for model in (exact, noisy):
        model.add(at(0, 0, 1), 0.75)
        model.add(at(1, 1, 16), 0.9)
    (_, most_exact), (_, most_noisy) = exact.ratios(at(0, 0, 8)), noisy.ratios(at(0, 0, 8))
    assert most_exact.item() < 0.82
    assert most_noisy.item() > 0.88


def test_ratios_that_scatter_more_than_the_prior_says_widen_the_bound() -> None:
    calm, wild = ErrorModel(0.0), ErrorModel(0.0)
    for index, ratio in enumerate((1.1, 1.3, 0.9, 1.2)):
        calm.add(at(0, 0, 8 + index), 1.1)
        wild.add(at(0, 0, 8 + index), ratio)
    widths = [most.item() / expected.item() for expected, most in (t.ratios(at(0, 0, 20)) for t in (calm, wild))]
    assert widths[1] > widths[0] ** 3


def test_ratios_that_agree_narrow_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = ErrorModel(0.0)
    for index in range(int(PRIOR_STRENGTH)):
        sure.add(at(0, 0, 2**index), 1.0)
    narrow = log(sure.ratios(at(9, 9, 20))[1].item())
    monkeypatch.setattr("autoauto.study.methods.forecast_curve.PRIOR_STRENGTH", 1e12)
    assert narrow == pytest.approx(0.5**0.5 * log(sure.ratios(at(9, 9, 20))[1].item()))
