"""The chart of latency against throughput."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from autoauto.report.charts.chart import Chart, Series, Shape
from autoauto.report.charts.objectives import objectives_chart
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status
from tests.report.made import made

Elements = Callable[..., list[ElementTree.Element]]


def chart_of(summary: StudySummary, **attributes: str) -> Chart:
    chart = objectives_chart(replace(summary, attributes={**summary.attributes, **attributes}))
    assert chart is not None
    return chart


def lines_of(chart: Chart, style: str) -> list[list[tuple[float, float | None]]]:
    series: tuple[Series, ...] = chart.panels[0].series
    lines = (line for line in series if line.shape is Shape.LINE and line.style == style)
    return [[(mark.x, mark.y) for mark in line.marks] for line in lines]


def test_a_dot_for_every_configuration_that_runs_and_a_ring_around_the_best(
    summary: StudySummary, elements: Elements
) -> None:
    chart = chart_of(summary)
    assert chart.legend == [("s0", "n_ipu 1"), ("s1", "n_ipu 2")]
    dots = [mark for series in chart.panels[0].series for mark in series.marks if series.name]
    assert [(mark.x, mark.y) for mark in dots] == [(100.0, 8.0), (150.0, 10.0), (200.0, 14.0)]
    assert dots[2].hover == "trial 3: batch 8, 200.0 samples/s, 14.000 ms"
    assert chart.panels[0].y.title == "latency (ms), modelled"
    *_, last, ring = elements(chart, "dot")
    assert (ring.get("cx"), ring.get("cy")) == (last.get("cx"), last.get("cy"))
    assert chart.text.endswith("the ring is the best configuration. 3 of 5 configurations run.")


def test_what_breaks_a_constraint_is_grey(summary: StudySummary) -> None:
    slow = made(
        6, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=9), 210.0, latency_s=0.021, status=Status.CONSTRAINED
    )
    chart = chart_of(replace(summary, trials=(*summary.trials, slow)))
    assert chart.legend[-1] == ("s-other", "breaks a constraint")


def test_bounds_by_constraints_are_lines(summary: StudySummary) -> None:
    chart = chart_of(summary, constraints="0.001 <= latency_s <= 0.02; n_ipu < 9; samples_per_s > 120")
    panel = chart.panels[0]
    assert (panel.x.high, panel.y.high) == pytest.approx((1.06 * 200, 1.06 * 20))
    assert lines_of(chart, "limit") == [
        [(120, 0), (120, panel.y.high)],
        [(0, 1), (panel.x.high, 1)],
        [(0, 20), (panel.x.high, 20)],
    ]
    assert "orange lines are the constraints" in chart.text


def test_a_bound_far_away_does_not_press_the_dots_together(summary: StudySummary) -> None:
    chart = chart_of(summary, constraints="latency_s <= 1")
    assert lines_of(chart, "limit") == []
    assert chart.panels[0].y.high == pytest.approx(1.06 * 14)
    assert "orange" not in chart.text


def test_of_both_objectives_the_front_is_a_line(summary: StudySummary) -> None:
    slow, _, second, winner, _ = summary.trials
    several = replace(summary, front=(winner, second, slow))
    assert lines_of(chart_of(several, objective="throughput,latency"), "front") == [[(200, 14), (150, 10), (100, 8)]]
    assert lines_of(chart_of(several, objective="throughput,latency,per-device"), "front") == []


def test_two_other_objectives_are_the_axes(summary: StudySummary) -> None:
    values = {1: (100.0, 30.0), 2: (150.0, 20.0), 3: (200.0, 40.0)}
    trials = [replace(trial, values=values.get(trial.number, ())) for trial in summary.trials]
    winner = next(trial for trial in trials if trial.number == 3)
    of_costs = replace(summary, trials=tuple(trials), front=(winner,), finalists=(winner,))
    chart = chart_of(of_costs, objective="throughput,per-device")
    assert (chart.title, chart.panels[0].y.title) == (
        "Cost against throughput",
        "cost (cycles x n_ipu / sample), modelled",
    )
    assert lines_of(chart, "front") == [[(200, 40)]]
    assert chart.panels[0].series[-1].marks[0].hover.endswith("200.0 samples/s, 40 cycles x n_ipu / sample")


def test_where_nothing_runs_there_is_no_chart(nothing_fits: StudySummary) -> None:
    assert objectives_chart(nothing_fits) is None


def test_a_single_configuration_is_drawn(summary: StudySummary, elements: Elements) -> None:
    assert len(elements(chart_of(replace(summary, trials=summary.trials[:1], finalists=())), "dot")) == 1
