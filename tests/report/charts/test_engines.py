"""Measured against forecast throughput as a chart."""

from xml.etree.ElementTree import fromstring

from autoauto.report.charts.chart import RING, Shape
from autoauto.report.charts.engines import engines_chart
from autoauto.report.charts.svg import picture_file
from tests.report.engines import NO_ANSWER, RECORD, summary_of


def test_every_configuration_is_a_dot_at_forecast_and_measurement() -> None:
    chart = engines_chart(summary_of(RECORD))
    assert chart is not None
    dots = {series.name: series.marks for series in chart.panels[0].series if series.shape is Shape.DOT and series.name}
    assert [(mark.x, mark.y) for mark in dots["vllm"]] == [(1000.0, 800.0)], "what was not measured has no dot"
    assert [(mark.x, mark.y) for mark in dots["sglang"]] == [(1000.0, 790.0)]
    assert dots["vllm"][0].hover.endswith("b16: forecast 1,000, measured 800.0 tokens/s")
    (ring,) = (series for series in chart.panels[0].series if series.style == RING)
    assert ring.marks[0].y == 800.0
    area = chart.panels[0].series[0].marks
    assert [(mark.x, mark.y) for mark in area] == [(0, 0), (1060, 0.8 * 1060), (1060, 1060), (1060 / 1.25, 1060)]


def test_it_is_drawn() -> None:
    chart = engines_chart(summary_of(RECORD))
    assert chart is not None
    assert fromstring(picture_file(chart)).tag.endswith("svg")


def test_there_is_none_where_nothing_was_measured() -> None:
    assert engines_chart(summary_of(None)) is None
    chart = engines_chart(summary_of(NO_ANSWER))
    assert chart is not None
    assert not any(series.style == RING for series in chart.panels[0].series)
