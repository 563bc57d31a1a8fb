"""Bands: by hand, and how often they hold on noise whose distribution they do not know."""

from random import Random

import pytest

from autoauto.estimate.band import WIDEST, band


def test_from_nineteen_on_the_edges_are_order_statistics() -> None:
    ratios = [1 + (number - 10) / 100 for number in range(1, 20)]  # 0.91 to 1.09
    assert band(ratios) == (0.91, 1.09)
    assert band([*ratios, *ratios[1:]])[1] == pytest.approx(1.09)  # rank 36 of 37


def test_a_perfect_prediction_is_inside() -> None:
    assert band([0.9] * 30) == (0.9, 1.0)
    assert band([1.2] * 30) == (1.0, 1.2)


def test_few_ratios_make_students_interval() -> None:
    low, high = band([0.99, 1.01])
    assert 1 / low == pytest.approx(high, rel=1e-3)
    assert high == pytest.approx(1 + 6.31 * 0.01414 * 1.2247, rel=0.02)  # t of one degree of freedom
    assert band([0.5, 2.0]) == (1 / WIDEST, WIDEST)
    assert band([1.3]) == (1.0, 1.0)


@pytest.mark.parametrize("n_ratios", [8, 12, 19, 40])
def test_an_edge_is_passed_at_most_five_times_in_a_hundred(n_ratios: int) -> None:
    random = Random(n_ratios)
    above = below = 0
    for _ in range(2000):
        low, high = band([random.lognormvariate(0, 0.05) for _ in range(n_ratios)])
        unseen = random.lognormvariate(0, 0.05)
        above += unseen > high
        below += unseen < low
    assert above / 2000 < 0.065
    assert below / 2000 < 0.065
