"""A timeline as a page for the browser, a Gantt chart with zoom: `write_timeline_html`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from autoauto.records.errors import BadInput, MissingExtra
from autoauto.records.timeline import Timeline
from autoauto.report.charts.plotly_figure import plotly_figure
from autoauto.report.charts.timeline import timeline_chart

N_BARS = 50_000
"""The most bars, which a browser draws in seconds."""


def write_timeline_html(timeline: Timeline, path: Path) -> None:
    """Write the chart of a timeline, in cycles, as one file that needs no network.

    Raises:
        MissingExtra: plotly is not installed.
        BadInput: the file cannot be written.
    """
    if importlib.util.find_spec("plotly") is None:
        raise MissingExtra('a timeline as HTML needs the extra "plot"; try: pip install plotly')
    from plotly.io import write_html

    figure = plotly_figure(timeline_chart(timeline, None, N_BARS))
    try:
        write_html(figure, path, include_plotlyjs=True, config={"displaylogo": False}, validate=False)
    except OSError as error:
        raise BadInput(f"the timeline needs a file that can be written, got {path} ({error.strerror})") from error
