"""Numbers that follow from others, and results with other numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoauto.records.costs.traffic.requests import PERCENTS, Percentiles
from autoauto.space.constraint import Constraint
from autoauto.space.numbers import (
    NO_RESULT,
    TIMES_OF_REQUESTS,
    ArrivalResult,
    DeviceTotals,
    PercentileResult,
    Result,
    StepResult,
    TokenResult,
)


def test_money_and_energy_of_a_sample_follow_from_the_throughput() -> None:
    """Two samples a second at 3.6 dollars an hour: 7200 samples cost that much, so a million cost 500."""
    result = Result(samples_per_s=2.0, latency_s=0.5, devices=DeviceTotals(3.6, 300.0))
    assert sorted(result.derived.values()) == [0.5, 150.0, pytest.approx(500.0)]
    assert list(Result(latency_s=0.5, devices=DeviceTotals(3.6, 300.0)).derived.values()) == [0.5]
    assert list(Result(samples_per_s=2.0, latency_s=0.5).derived.values()) == [0.5]


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        # 8 sequences in flight get a token each in 0.02 s: 400 a second, 8 / 0.025 to 8 / 0.016.
        ({"tpot_s": 0.02, "tpot_low_s": 0.016, "tpot_high_s": 0.025}, (320.0, 500.0)),
        ({"tpot_s": 0.02}, None),
        # Answers of one token have the time to it alone: 400 a second in 0.1 s are 40.
        ({"ttft_s": 0.1, "ttft_low_s": 0.08, "ttft_high_s": 0.125}, (320.0, 500.0)),
        ({"ttft_s": 0.1, "ttft_low_s": 0.08}, None),
        ({"tpot_s": 0.02, "ttft_s": 0.1, "ttft_low_s": 0.08, "ttft_high_s": 0.125}, None),
    ],
)
def test_the_interval_of_tokens_is_that_of_the_time_between_them(
    numbers: dict[str, float], ends: tuple[float, float] | None
) -> None:
    made = TokenResult(tokens_per_s=400.0, **numbers).tokens_per_s_ends  # type: ignore[arg-type]
    assert made == (None if ends is None else pytest.approx(ends))


def test_a_result_has_the_numbers_of_its_parts() -> None:
    result = Result(samples_per_s=2.0, of_mode=TokenResult(tokens_per_s=400.0), load=ArrivalResult(busy_share=0.5))
    assert (result.value("samples_per_s"), result.value("tokens_per_s"), result.value("busy_share")) == (
        2.0,
        400.0,
        0.5,
    )
    assert result.values["tokens_per_s"] == 400.0
    assert result.values["busy_share"] == 0.5
    for name in PercentileResult.__dataclass_fields__:
        assert result.value(name) is None
        assert name not in result.values


def test_other_numbers_go_to_the_part_that_has_them() -> None:
    result = Result(samples_per_s=2.0, of_mode=TokenResult(tokens_per_s=400.0, tpot_s=0.02))
    changed = result.with_values({"samples_per_s": 3.0, "tokens_per_s": 500.0, "busy_share": 0.5, "n_preempted": None})
    assert changed == Result(
        samples_per_s=3.0, of_mode=TokenResult(tokens_per_s=500.0, tpot_s=0.02), load=ArrivalResult(busy_share=0.5)
    )
    made = NO_RESULT.with_values({"samples_per_s": 3.0, "tokens_per_s": 500.0})
    assert made == Result(samples_per_s=3.0, of_mode=TokenResult(tokens_per_s=500.0))
    whole = Result(2.0, 1.0, 0.5, 7, 8, output_error=0.1, devices=DeviceTotals(3.0, 4.0))
    assert whole.with_values({"busy_share": 0.5}) == replace(whole, load=ArrivalResult(busy_share=0.5))
    name = next(iter(StepResult.__dataclass_fields__))
    other = result.with_values({name: 1.0}).of_mode
    assert other == StepResult(**{name: 1.0})


def test_every_time_of_requests_has_every_percentile() -> None:
    names = {f"{time}_{percent}_s" for time in TIMES_OF_REQUESTS for percent in PERCENTS}
    assert set(PercentileResult.__dataclass_fields__) == names
    assert Percentiles.of(range(1, 1002)) == (501, 501, 901, 951, 991)
    for name in names:
        assert Constraint(f"{name.removesuffix('_s')} <= 20ms").text == f"{name} <= 0.02"
