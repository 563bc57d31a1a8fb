"""What measurements teach about the estimate's error."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from autoauto.study.methods.error_model import BATCH, CELL, FAMILY, OVERALL, OWN, STRENGTH, SURE, Places, Trust


def at(cell: int, family: int, batch_size: int) -> Places:
    return Places(np.array([cell]), np.array([family]), np.array([log(batch_size)]))


def test_before_any_measurement_the_prior_holds() -> None:
    expected, most = Trust(0.0).ratios(at(0, 0, 8))
    spread = (OVERALL**2 + FAMILY**2 + BATCH**2 + CELL**2 + OWN**2) ** 0.5
    assert expected.item() == 1.0
    assert most.item() == pytest.approx(exp(SURE * spread))


def test_what_was_measured_is_known_and_close_ones_nearly_are() -> None:
    trust = Trust(0.0)
    trust.learn(at(0, 0, 8), 1.2)
    places = [at(0, 0, 8), at(0, 0, 9), at(0, 0, 64), at(1, 0, 8), at(2, 1, 8)]
    expected, most = zip(*((e.item(), m.item()) for e, m in map(trust.ratios, places)), strict=True)
    assert expected[0] == pytest.approx(1.2, rel=0.002)
    slack = [m / e for e, m in zip(expected, most, strict=True)]
    assert slack == sorted(slack)
    assert slack[0] < 1.01 < slack[-1] < 1.2


def test_the_posterior_of_one_measurement_by_hand() -> None:
    trust = Trust(0.1)
    trust.learn(at(0, 0, 8), exp(0.2))
    shared, own = OVERALL**2, OVERALL**2 + FAMILY**2 + BATCH**2 + CELL**2 + OWN**2
    known = own + 0.1**2
    scale = (STRENGTH + 0.2**2 / known) / (STRENGTH + 1)
    expected, most = trust.ratios(at(1, 1, 8))
    assert log(expected.item()) == pytest.approx(0.2 * shared / known)
    assert log(most.item() / expected.item()) == pytest.approx(SURE * (scale * (own - shared**2 / known)) ** 0.5)


def test_ratios_that_scatter_more_than_the_prior_says_widen_the_bound() -> None:
    calm, wild = Trust(0.0), Trust(0.0)
    for index, ratio in enumerate((1.1, 1.3, 0.9, 1.2)):
        calm.learn(at(0, 0, 8 + index), 1.1)
        wild.learn(at(0, 0, 8 + index), ratio)
    widths = [most.item() / expected.item() for expected, most in (t.ratios(at(0, 0, 20)) for t in (calm, wild))]
    assert widths[1] > widths[0] ** 3


def test_ratios_that_agree_narrow_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = Trust(0.0)
    for index in range(int(STRENGTH)):
        sure.learn(at(0, 0, 2**index), 1.0)
    narrow = log(sure.ratios(at(9, 9, 20))[1].item())
    monkeypatch.setattr("autoauto.study.methods.error_model.STRENGTH", 1e12)
    assert narrow == pytest.approx(0.5**0.5 * log(sure.ratios(at(9, 9, 20))[1].item()))
