"""Charts as Plotly figures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import StudySummary

pytest.importorskip("plotly", reason="the extra plot is not installed")

from plotly.graph_objects import Figure

from autoauto.report.charts.plotly_figure import plotly_figure
from autoauto.report.charts.study import study_charts
from autoauto.report.charts.svg import STYLE
from tests.report.made import made


@pytest.fixture
def timeline(simulated: Callable[..., Timeline]) -> Timeline:
    return simulated(Order.INFERENCE, 2, 6)


def figures_of(summary: StudySummary, timeline: Timeline | None, n: int = 1000) -> dict[str, Any]:
    return {chart.name: Figure(plotly_figure(chart, n)) for chart in study_charts(summary, timeline, n)}


def named(figure: Any, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def test_charts_have_fixed_names(summary: StudySummary, nothing_fits: StudySummary, timeline: Timeline) -> None:
    names = ["timeline", "memory", "heat-map", "parity", "latency", "batches"]
    assert list(figures_of(summary, timeline)) == names
    assert list(figures_of(summary, None)) == names[1:]
    assert list(figures_of(nothing_fits, None)) == names[5:]


def test_figures_have_the_numbers_of_the_study(summary: StudySummary, timeline: Timeline) -> None:
    figures = figures_of(summary, timeline)
    code, temporary = (named(figures["memory"], name) for name in ("vertexCode", "temporary"))
    assert list(code.x) == pytest.approx([1024 / 2**20, 3072 / 2**20])
    assert list(temporary.base) == pytest.approx(list(code.x))
    assert list(named(figures["memory"], "device limit").x) == pytest.approx([4096 / 2**20] * 2)
    heat, empty, ring = figures["heat-map"].data
    assert list(heat.text) == ["100<br>batch 4", "200<br>batch 8"]
    assert list(empty.text) == ["not tried", "none fits"]
    assert (ring.base, ring.y) == ((heat.base[1],), (heat.y[1],))
    one_device, two_devices = (named(figures["parity"], f"n_ipu {n}") for n in (1, 2))
    assert (list(one_device.x), list(one_device.y)) == ([104.0], [100.0])
    assert (list(two_devices.x), list(two_devices.y)) == ([150.0, 190.0], [150.0, 200.0])
    equal = named(figures["parity"], "equal")
    assert (equal.x, equal.x[0] < 100, equal.x[1] > 200) == (equal.y, True, True)


def test_what_has_no_value_is_below_the_axis(summary: StudySummary) -> None:
    fit, unfit, *_ = figures_of(summary, None)["batches"].data
    assert (list(fit.x), list(fit.y), list(unfit.x)) == ([4], [100.0], [5])
    assert unfit.y[0] < 92
    assert (fit.hovertext[0], unfit.hovertext[0]) == (
        "trial 0: batch 4, 100.0 samples/s",
        "trial 1: batch 5 does not fit",
    )


def test_a_name_is_in_the_legend_once(summary: StudySummary) -> None:
    traces = figures_of(summary, None)["batches"].data
    assert [trace.name for trace in traces if trace.showlegend] == ["memory 0.6", "memory 1.0", "best configuration"]


def test_neighbours_in_a_row_have_different_shades(timeline: Timeline, summary: StudySummary) -> None:
    figures = figures_of(summary, timeline)
    colours = named(figures["timeline"], "forward").marker.color
    assert [colour == colours[0] for colour in colours[:6]] == [True, False] * 3
    assert len(set(named(figures["memory"], "vertexCode").marker.color)) == 1


def test_panels_are_side_by_side_on_one_axis(summary: StudySummary) -> None:
    layout = figures_of(summary, None)["batches"].layout
    assert (layout.xaxis.domain[0], layout.xaxis2.domain[1]) == (0, 1)
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0]
    assert [annotation.text for annotation in layout.annotations] == ["n_ipu 1", "n_ipu 2"]


def test_every_style_has_a_colour_in_both_writers(summary: StudySummary, timeline: Timeline) -> None:
    """A class that page.css does not have would be black."""
    css = STYLE.read_text(encoding="utf-8")
    charts = study_charts(summary, timeline)
    styles = {series.style for chart in charts for panel in chart.panels for series in panel.series}
    assert {style for style in styles - {"value"} if f".{style} " not in css} == set()


def test_figures_are_transparent_for_light_and_dark_pages(summary: StudySummary, timeline: Timeline) -> None:
    for figure in figures_of(summary, timeline).values():
        assert figure.layout.paper_bgcolor == "rgba(0, 0, 0, 0)"


def test_figures_of_thousands_of_trials_are_small(summary: StudySummary, timeline: Timeline) -> None:
    """All figures are part of every response of the dashboard."""
    grid = [Knobs(n_ipu=n, memory_proportion=0.6, batch_size=batch) for n in (1, 2, 4, 8) for batch in range(1, 2001)]
    trials = tuple(made(i, knobs, 10.0 + i, estimated_samples_per_s=11.0 + i) for i, knobs in enumerate(grid))
    figures = figures_of(replace(summary, trials=trials), timeline)
    assert sum(len(figure.to_json()) for figure in figures.values()) < 200_000
