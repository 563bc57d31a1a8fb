"""Conversions between bytes, cycles, seconds and rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.units import MIB, bytes_per_s, digits, format_bytes, gbps, samples_per_s


@given(st.floats(0.1, 1e4))
def test_gbps_and_bytes_per_s_are_inverse(rate: float) -> None:
    assert abs(gbps(bytes_per_s(rate)) - rate) <= 1e-12 * rate


def test_throughput_is_batches_per_period() -> None:
    assert samples_per_s(8, 100, 1e6) == 80_000.0


def test_bytes_are_written_in_the_largest_unit_that_fits() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, MIB - 1, MIB)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1024.0 KiB",
        "1.0 MiB",
    ]


@given(st.floats(1e-3, 1e15), st.integers(2, 6))
def test_a_number_for_people_has_no_exponent_and_so_many_digits(value: float, n_digits: int) -> None:
    shown = digits(value, n_digits)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.5 * 10.0 ** (1 - n_digits))
