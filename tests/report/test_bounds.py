"""Bounds as lines that pass or fail, by forecasts and by measurements."""

from autoauto.report.bounds import bounds_of
from tests.report.engines import BOUNDS, NO_ANSWER, RECORD, summary_of


def test_bounds_on_forecasts_have_the_probability_that_all_hold() -> None:
    latency, sums, ttft = bounds_of(summary_of(None, BOUNDS))
    assert latency.line == "request latency 13.2 s <= 12.5 s: fail"
    assert sums.line == "tpot_s + 0 <= 0.05 (tpot_s is 0.05): pass"
    assert ttft.line == "TTFT 500 ms < 550 ms: pass"
    assert (ttft.origin, ttft.note) == ("modelled", "all bounds hold with a probability of 72%")


def test_bounds_on_measurements_have_percentiles() -> None:
    latency, sums, ttft = bounds_of(summary_of(RECORD, BOUNDS))
    assert latency.line == "request latency 10.8 s <= 12.5 s: pass"
    assert sums.holds
    assert ttft.line == "TTFT 600 ms < 550 ms: fail"
    assert (ttft.origin, ttft.note) == ("measured", "mean; p50 600 ms, p90 660 ms, p95 720 ms, p99 780 ms")


def test_without_an_answer_that_was_measured_bounds_are_on_forecasts() -> None:
    assert {fact.origin for fact in bounds_of(summary_of(NO_ANSWER, BOUNDS))} == {"modelled"}


def test_a_study_without_bounds_has_none() -> None:
    assert bounds_of(summary_of(RECORD)) == ()
