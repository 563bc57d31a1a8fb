"""Latencies over the request rate as a chart, in pages and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from xml.etree.ElementTree import fromstring

import pytest

from autoauto.records.costs.rate_curve import RateBound, RateCurves, RateLine
from autoauto.report.charts.chart import RING, Series, Shape
from autoauto.report.charts.rates import rates_chart
from autoauto.report.charts.svg import picture_file
from autoauto.report.wording import time_text


def line(n: int, keeps: str, p99: tuple[float, ...], broken: tuple[str, ...] = (), growth: float = 0.0) -> RateLine:
    """At 1, 2, 3 and more requests a second; the median is half of p99, and the last rate may be an overload."""
    values = {f"{name}_p99_s": p99 for name in ("ttft", "tpot", "latency")}
    values |= {f"{name}_p50_s": tuple(time_s / 2 for time_s in p99) for name in ("ttft", "tpot", "latency")}
    values |= {"ttft_s": p99, "queue_growth_per_s": (0.0,) * (len(p99) - 1) + (growth,)}
    rates = tuple(1.0 + i for i in range(len(p99)))
    return RateLine(n, rates, tuple(mark == "+" for mark in keeps), values, broken)


ONE = line(1, "+--", (0.3, 0.9, 60.0), ("ttft_p99_s",), growth=0.5)
TWO = line(2, "+++-", (0.1, 0.3, 0.5, 1.5), ("ttft_p99_s",))
FOUR = line(4, "++++", (0.1, 0.1, 0.2, 0.2))
CURVES = RateCurves((ONE, TWO, FOUR), (RateBound("ttft_p99_s", 0.7),))


def test_rings_are_the_highest_rates_that_replicas_serve() -> None:
    (rings,) = series_of(CURVES, lambda series: series.style == RING)
    assert [(mark.x, mark.y) for mark in rings.marks] == [(1.0, 0.3), (3.0, 0.5)], "nothing is too much for four"
    assert rings.marks[1].hover == f"2 replicas: up to 3 requests/s, TTFT p99 {time_text(0.5)}"
    (bound,) = series_of(CURVES, lambda series: series.style == "limit")
    assert [mark.y for mark in bound.marks] == pytest.approx([0.7, 0.7])


def test_replicas_have_a_colour_and_a_line_a_percentile() -> None:
    lines = series_of(CURVES, lambda series: series.shape is Shape.JOINED)
    names = [("1 replica", "s0"), ("2 replicas", "s1"), ("4 replicas", "s2")]
    assert [(each.name, each.style) for each in lines] == [name for name in names for _ in range(2)]
    assert [mark.y for mark in lines[0].marks] == [0.15, 0.45, None]
    assert lines[0].marks[2].hover == (
        "1 replica, 3 requests/s: TTFT p50 grows, as the queue does by 0.5 requests a second"
    )


def test_what_a_bound_is_on_is_drawn_too_and_tpot_only_where_it_has_one() -> None:
    chart = rates_chart(CURVES)
    assert chart is not None
    assert [panel.name for panel in chart.panels] == ["TTFT", "request latency"]
    of_mean = CURVES._replace(bounds=(RateBound("ttft_s", 0.7), RateBound("tpot_p99_s", 0.7)))
    chart = rates_chart(of_mean)
    assert chart is not None
    assert [panel.name for panel in chart.panels] == ["TTFT", "TPOT", "request latency"]
    assert len([series for series in chart.panels[0].series if series.shape is Shape.JOINED]) == 3 * 3


def test_what_is_far_above_the_bound_is_cut_where_it_leaves_the_panel() -> None:
    steep = RateCurves((line(1, "++-", (0.1, 0.2, 100.2), ("ttft_p99_s",)),), (RateBound("ttft_p99_s", 1.5),))
    _, p99 = series_of(steep, lambda series: series.shape is Shape.JOINED)
    assert [mark.x for mark in p99.marks] == [1, 2, pytest.approx(2 + 1.3 / 100)]
    assert p99.marks[2].y == pytest.approx(1.5)


def test_it_is_drawn_light_and_dark_and_says_that_it_is_simulated() -> None:
    chart = rates_chart(CURVES)
    assert chart is not None
    picture = picture_file(chart)
    assert fromstring(picture).tag.endswith("svg")
    assert "prefers-color-scheme: dark" in picture
    assert "up to 3 requests/s" in picture
    assert "simulated" in chart.text
    assert all("simulated" in panel.y.title for panel in chart.panels)
    assert "TTFT p99 <= 700" in chart.text
    assert rates_chart(None) is None


def series_of(curves: RateCurves, chosen: Callable[[Series], bool]) -> list[Series]:
    chart = rates_chart(curves)
    assert chart is not None
    return [series for series in chart.panels[0].series if chosen(series)]
