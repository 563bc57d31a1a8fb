"""Plotly figures of a study."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autoauto.records.knobs import Knobs
from autoauto.records.schedule import Order
from autoauto.records.study_summary import Findings, Tried
from autoauto.records.timeline import Timeline

pytest.importorskip("plotly", reason="the extra plot is not installed")

from autoauto.report.dashboard.figures import study_figures


@pytest.fixture
def timeline(simulated: Callable[..., Timeline]) -> Timeline:
    return simulated(Order.INFERENCE, 2, 6)


def test_ids_are_fixed(found: Findings, timeline: Timeline) -> None:
    names = ["timeline", "memory", "heat-map", "parity", "batches"]
    assert list(study_figures(found, timeline)) == [f"autoauto-{name}" for name in names]
    assert list(study_figures(found, None)) == [f"autoauto-{name}" for name in names[1:]]


def test_where_nothing_fits_there_is_nothing_to_draw(nothing: Findings) -> None:
    assert study_figures(nothing, None) == {}


def test_figures_hold_what_was_measured(found: Findings, timeline: Timeline) -> None:
    figures = study_figures(found, timeline)
    memory = {trace.name: list(trace.x) for trace in figures["autoauto-memory"].data}
    assert memory["vertexCode"] == [1024 / 2**20, 3072 / 2**20]
    assert memory["device limit"] == [4096 / 2**20] * 2
    (heat,) = figures["autoauto-heat-map"].data
    assert [list(row) for row in heat.z] == [[100.0, None], [200.0, None]]
    assert [list(row) for row in heat.text] == [["100<br>batch 4", "not tried"], ["200<br>batch 8", "none fits"]]
    one, two, equal = figures["autoauto-parity"].data
    assert (list(one.x), list(one.y)) == ([104.0], [100.0])
    assert (list(two.x), list(two.y)) == ([190.0, 150.0], [200.0, 150.0])
    assert (list(equal.x), list(equal.y)) == ([100.0, 190.0], [100.0, 190.0])
    fit, unfit = figures["autoauto-batches"].data[2:4]
    assert (list(fit.x), list(fit.y), list(unfit.x)) == ([4, 8], [150.0, 200.0], [])


def test_they_suit_a_light_and_a_dark_page(found: Findings, timeline: Timeline) -> None:
    for figure in study_figures(found, timeline).values():
        assert (figure.layout.paper_bgcolor, figure.layout.height) == ("rgba(0,0,0,0)", 450)


def test_thousands_of_trials_stay_small(found: Findings, timeline: Timeline) -> None:
    """All figures are part of every answer of the dashboard."""
    grid = [Knobs(n, 0.6, batch) for n in (1, 2, 4, 8) for batch in range(1, 2001)]
    tried = tuple(Tried(i, knobs, 10.0 + i, 11.0 + i) for i, knobs in enumerate(grid))
    figures = study_figures(replace(found, tried=tried), timeline)
    assert sum(len(figure.to_json()) for figure in figures.values()) < 200_000
