"""A chart with a single point compares nothing: a study of one configuration has none."""

from __future__ import annotations

from dataclasses import replace

from autoauto.report.charts.study import study_charts
from autoauto.space.study_summary import StudySummary

POINTS = {"heat-map", "parity", "latency", "batches"}


def test_charts_with_a_single_point_are_left_out(summary: StudySummary) -> None:
    every = [chart.name for chart in study_charts(summary, None)]
    assert {*every} > POINTS
    winner = summary.finalists[0]
    alone = replace(summary, trials=(winner,), finalists=(winner,))
    assert [chart.name for chart in study_charts(alone, None)] == [name for name in every if name not in POINTS]
