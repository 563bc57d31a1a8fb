"""Profiles of layers between two batch sizes."""

from fractions import Fraction

import pytest

from autoauto.profile.profiler import interpolate
from autoauto.records.costs.profile import LayerProfile

LOW = LayerProfile(100, 10, {"code_a": 4, "code_low": 8}, {"parameter": 16}, 50, 0, 0, 0, 0, 5)
HIGH = LayerProfile(200, 30, {"code_a": 4, "code_high": 6}, {"parameter": 16, "state": 40}, 10, 0, 0, 0, 0, 15)


@pytest.mark.parametrize(("share", "end"), [(Fraction(0), LOW), (Fraction(1), HIGH)])
def test_at_an_end_the_numbers_are_those_of_that_end(share: Fraction, end: LayerProfile) -> None:
    layer = interpolate(LOW, HIGH, share)
    assert (layer.forward_cycles, layer.backward_cycles, layer.weight_cycles, layer.temporary_bytes) == (
        end.forward_cycles,
        end.backward_cycles,
        end.weight_cycles,
        end.temporary_bytes,
    )
    assert {key: n for key, n in layer.shared.items() if n} == end.shared
    assert {key: n for key, n in layer.exclusive.items() if n} == end.exclusive


def test_between_the_ends_all_numbers_are_interpolated() -> None:
    assert interpolate(LOW, HIGH, Fraction(1, 2)) == LayerProfile(
        forward_cycles=150,
        backward_cycles=20,
        shared={"code_a": 4, "code_low": 4, "code_high": 3},
        exclusive={"parameter": 16, "state": 20},
        temporary_bytes=30,
        carried_bytes=0,
        input_bytes=0,
        output_bytes=0,
        activation_bytes=0,
        weight_cycles=10,
    )


def test_numbers_are_rounded_up() -> None:
    layer = interpolate(LOW, HIGH, Fraction(1, 7))
    assert layer.forward_cycles == 115  # 114 2/7
    assert layer.temporary_bytes == 45  # 44 2/7
