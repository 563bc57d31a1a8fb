"""Plotly figures of a study."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.records.knobs import Knobs
from autoauto.records.schedule import Order
from autoauto.records.study_summary import StudySummary, TrialSummary
from autoauto.records.timeline import Timeline

pytest.importorskip("plotly", reason="the extra plot is not installed")

from autoauto.report.dashboard.figures import study_figures


@pytest.fixture
def timeline(simulated: Callable[..., Timeline]) -> Timeline:
    return simulated(Order.INFERENCE, 2, 6)


def test_figures_have_fixed_ids(summary: StudySummary, timeline: Timeline) -> None:
    names = ["timeline", "memory", "heat-map", "parity", "batches"]
    assert list(study_figures(summary, timeline)) == [f"autoauto-{name}" for name in names]
    assert list(study_figures(summary, None)) == [f"autoauto-{name}" for name in names[1:]]


def test_where_nothing_fits_there_are_no_figures(nothing_fits: StudySummary) -> None:
    assert study_figures(nothing_fits, None) == {}


def test_figures_have_the_numbers_of_the_study(summary: StudySummary, timeline: Timeline) -> None:
    figures = study_figures(summary, timeline)
    memory = {trace.name: list(trace.x) for trace in figures["autoauto-memory"].data}
    assert memory["vertexCode"] == [1024 / 2**20, 3072 / 2**20]
    assert memory["device limit"] == [4096 / 2**20] * 2
    (heat,) = figures["autoauto-heat-map"].data
    assert [list(row) for row in heat.z] == [[100.0, None], [200.0, None]]
    assert [list(row) for row in heat.text] == [["100<br>batch 4", "not tried"], ["200<br>batch 8", "none fits"]]
    one_device, two_devices, equal = figures["autoauto-parity"].data
    assert (list(one_device.x), list(one_device.y)) == ([104.0], [100.0])
    assert (list(two_devices.x), list(two_devices.y)) == ([190.0, 150.0], [200.0, 150.0])
    assert (list(equal.x), list(equal.y)) == ([100.0, 190.0], [100.0, 190.0])
    fit, unfit = figures["autoauto-batches"].data[2:4]
    assert (list(fit.x), list(fit.y), list(unfit.x)) == ([4, 8], [150.0, 200.0], [])


def test_figures_are_transparent_for_light_and_dark_pages(summary: StudySummary, timeline: Timeline) -> None:
    for figure in study_figures(summary, timeline).values():
        assert (figure.layout.paper_bgcolor, figure.layout.height) == ("rgba(0,0,0,0)", 450)


def test_figures_of_thousands_of_trials_are_small(summary: StudySummary, timeline: Timeline) -> None:
    """All figures are part of every response of the dashboard."""
    grid = [Knobs(n, 0.6, batch) for n in (1, 2, 4, 8) for batch in range(1, 2001)]
    trials = tuple(TrialSummary(i, knobs, 10.0 + i, 11.0 + i) for i, knobs in enumerate(grid))
    figures = study_figures(replace(summary, trials=trials), timeline)
    assert sum(len(figure.to_json()) for figure in figures.values()) < 200_000
