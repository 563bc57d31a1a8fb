"""Names that fit, values with their units, and differences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.report.style import difference_percent, format_difference, format_value, shorten

NAME = "/bert/encoder/layer.11/attention/self/query/MatMul"


@pytest.mark.parametrize(
    ("width", "short"),
    [
        (50, NAME),
        (49, "/b/e/layer.11/a/s/q/MatMul"),
        (26, "/b/e/layer.11/a/s/q/MatMul"),
        (12, "…/s/q/MatMul"),
        (1, "…"),
        (0, ""),
    ],
)
def test_a_name_loses_parts_before_it_loses_its_start(width: int, short: str) -> None:
    assert shorten(NAME, width) == short


@given(st.text(st.sampled_from("ab0/."), max_size=40), st.integers(0, 45), st.sampled_from(["…", "..."]))
def test_a_short_name_fits(name: str, width: int, dots: str) -> None:
    short = shorten(name, width, dots)
    assert len(short) <= width
    if len(name) <= width:
        assert short == name


@pytest.mark.parametrize(
    ("quantity", "value", "shown"),
    [
        ("cost_cycles", 1_234_567, "1,234,567"),
        ("total_bytes", 3 * 1024**2, "3.0 MiB"),
        ("memory_bytes.vertexCode", 512, "512 B"),
        ("samples_per_s", 1234.56, "1,234.6"),
        ("samples_per_s", 0.0424, "0.0424"),
        ("busy_fraction", 0.5, "50.0 %"),
        ("latency_s", 0.0123, "12.300 ms"),
        ("latency_s", 1.5, "1,500 ms"),
        ("difference_percent", 3.04, "+3.0 %"),
        ("gain_percent", 300.0, "x 4.0"),
        ("tokens_per_s", 1234.5, "1,234"),
    ],
)
def test_a_value_is_written_by_its_unit(quantity: str, value: float, shown: str) -> None:
    assert format_value(quantity, value) == shown


@pytest.mark.parametrize(
    ("estimated", "measured", "percent"), [(11, 10, 10.0), (9, 10, -10.0), (0, 10, -100.0), (0, 0, 0.0), (1, 0, None)]
)
def test_differences_are_relative_to_the_measured_value(estimated: int, measured: int, percent: float | None) -> None:
    assert difference_percent(estimated, measured) == percent


def test_a_difference_has_a_sign() -> None:
    assert [format_difference(percent) for percent in (1.25, -0.5, 0.0, None)] == ["+1.2 %", "-0.5 %", "+0.0 %", "-"]
