"""What charts show of configurations that were not measured: notes of the map, and hollow marks."""

from __future__ import annotations

from dataclasses import replace

from autoauto.report.charts.chart import HOLLOW
from autoauto.report.charts.study import batches_chart, heat_map
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import Alternative, StudySummary


def test_a_large_batch_that_does_not_fit_says_nothing_of_smaller_ones(summary: StudySummary) -> None:
    unfit = summary.trials[-1]
    key = (str(unfit.knobs.n_ipu), unfit.knobs.values["memory_proportion"])
    assert heat_map(summary).notes == {key: "none fits"}
    large = replace(unfit, knobs=replace(unfit.knobs, batch_size=8))
    space = SearchSpace(n_ipu=(1, 2), memory_proportion=(0.6, 1.0), batch_size=(1, 2, 4, 8))
    ruled_out = replace(summary, trials=(*summary.trials[:-1], large), space=space)
    assert heat_map(ruled_out).notes == {key: "batch 8\ndoes not fit"}
    estimated = replace(
        ruled_out, alternatives=(Alternative("one pipeline", replace(large.knobs, batch_size=4), 5516.8, ""),)
    )
    assert heat_map(estimated).notes == {key: "5,517\nestimated"}


def test_estimates_of_what_was_not_measured_are_hollow_and_part_of_the_axis(summary: StudySummary) -> None:
    knobs = replace(summary.trials[0].knobs, n_ipu=4, batch_size=3)
    chart = batches_chart(replace(summary, alternatives=(Alternative("one pipeline of 4", knobs, 20.0, ""),)))
    panel = next(panel for panel in chart.panels if panel.name == "n_ipu 4")
    [hollow] = [series for series in panel.series if series.style == HOLLOW]
    assert [(mark.x, mark.y) for mark in hollow.marks] == [(3, 20.0)]
    assert panel.y.low < 20.0
    assert panel.y.high > 200.0
    assert "Hollow marks are estimates" in chart.text
