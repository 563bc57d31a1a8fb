"""The chart of throughput over batch size."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from autoauto.report.charts.study import batches_chart
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import StudySummary
from tests.report.made import made

Elements = Callable[..., list[ElementTree.Element]]


def test_a_panel_for_every_n_ipu_with_the_same_colours(summary: StudySummary) -> None:
    chart = batches_chart(summary)
    first, second = chart.panels
    assert (first.name, second.name) == ("n_ipu 1", "n_ipu 2")
    assert [(style, name) for name, style, *_ in first.series] == [("s0", "memory 0.6")]
    assert [(style, name) for name, style, *_ in second.series[:2]] == [("s0", "memory 0.6"), ("s1", "memory 1.0")]
    assert chart.legend == [("s0", "memory 0.6"), ("s1", "memory 1.0")]


def test_the_best_cells_have_colours_and_the_others_are_grey(summary: StudySummary) -> None:
    trials = tuple(made(i, Knobs(n_ipu=1, memory_proportion=(i + 1) / 20, batch_size=1), 100.0 + i) for i in range(20))
    chart = batches_chart(replace(summary, trials=trials))
    grey = [series.marks[0].y for series in chart.panels[0].series if series.style == "s-other"]
    assert grey == [100.0 + i for i in range(12)]
    assert chart.legend[-1] == ("s-other", "other combinations")


def test_trials_that_fit_are_dots_and_others_are_crosses(summary: StudySummary, elements: Elements) -> None:
    chart = batches_chart(summary)
    counts = [[len(elements(chart, name, panel)) for name in ("cross", "ring")] for panel in (0, 1)]
    assert counts == [[1, 0], [1, 1]]
    first, second, ring = elements(chart, "dot", 1)
    assert float(str(second.get("cx"))) > float(str(first.get("cx")))
    assert float(str(second.get("cy"))) < float(str(first.get("cy")))
    assert (ring.get("cx"), ring.get("cy")) == (second.get("cx"), second.get("cy"))


def test_panels_share_the_width(summary: StudySummary) -> None:
    def width(n: int) -> int:
        trials = tuple(made(i, Knobs(n_ipu=i + 1, memory_proportion=0.6, batch_size=1), 1.0) for i in range(n))
        return batches_chart(replace(summary, trials=trials)).panels[0].width

    assert [width(n) for n in (1, 2, 3, 9)] == [420, 520, 360, 360]


def test_one_line_needs_no_legend(summary: StudySummary) -> None:
    assert batches_chart(replace(summary, trials=summary.trials[:1])).legend == []


def test_where_nothing_fits_there_are_crosses(nothing_fits: StudySummary, elements: Elements) -> None:
    chart = batches_chart(nothing_fits)
    assert [len(elements(chart, name)) for name in ("dot", "cross")] == [0, 1]
