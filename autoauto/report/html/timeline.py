"""A timeline as a page for the browser: `timeline_figure`, a Gantt chart with zoom, and `write_timeline_html`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.errors import BadInput, MissingExtra
from autoauto.records.schedule import CHECK
from autoauto.records.timeline import Timeline
from autoauto.report.style import ACTIVITIES, EXCHANGE
from autoauto.report.wording import shows_stage, timeline_title

if TYPE_CHECKING:
    from plotly.graph_objects import Bar, Figure

N_BARS = 50_000
"""The most bars, which a browser draws in seconds; of a longer timeline the page shows the beginning and the end."""

_DEVICE, _ACTIVITY, _STAGE, _MICRO_BATCH, _START, _STOP = range(6)


def write_timeline_html(timeline: Timeline, path: Path) -> None:
    """Write `timeline_figure` as one file that needs no network.

    Raises:
        MissingExtra: plotly is not installed.
        BadInput: the file cannot be written.
    """
    figure = timeline_figure(timeline)
    try:
        figure.write_html(path, include_plotlyjs=True, config={"displaylogo": False})
    except OSError as error:
        raise BadInput(f"the timeline needs a file that can be written, got {path} ({error.strerror})") from error


def timeline_figure(timeline: Timeline) -> Figure:
    """A row per device with a bar for every action and exchange; without the middle if there are more than `N_BARS`.

    Raises:
        MissingExtra: plotly is not installed.
    """
    if importlib.util.find_spec("plotly") is None:
        raise MissingExtra('a timeline as HTML needs the extra "plot"; try: pip install plotly')
    from plotly.graph_objects import Figure

    rows = _rows(timeline)
    whole = len(rows) <= N_BARS
    parts, domains = ([rows], [(0, 1)]) if whole else (_ends(rows), [(0, 0.49), (0.51, 1)])
    figure = Figure()
    for axis, (part, domain) in enumerate(zip(parts, domains, strict=True), 1):
        figure.add_traces(list(_bars(timeline, part, axis)))
        span = (part[:, _START].min() / timeline.ticks_per_cycle, part[:, _STOP].max() / timeline.ticks_per_cycle)
        figure.update_layout({f"xaxis{axis}": {"domain": domain, "range": span, "title": "cycles", "tickformat": ","}})
    return figure.update_layout(
        title=timeline_title(timeline) if whole else f"{timeline_title(timeline)}<br>{_shown(parts, len(rows))}",
        yaxis={"title": "device", "dtick": 1, "range": (timeline.schedule.n_devices - 0.5, -0.5), "showgrid": False},
        height=200 + 30 * timeline.schedule.n_devices,
        barmode="overlay",
        bargap=0.15,
        hovermode="closest",
        template="plotly_white",
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _rows(timeline: Timeline) -> IntArray:
    """(n, 6) device, activity, stage, micro-batch, start and stop tick of every action and exchange."""
    codes, rows = timeline.schedule.codes, []
    columns = zip(timeline.schedule.programs, timeline.starts, timeline.stops, timeline.exchanges, strict=True)
    for device, (program, starts, stops, exchanges) in enumerate(columns):
        action = (codes.kinds(program), codes.stages(program), codes.micro_batches(program), starts, stops)
        rows.append(np.stack((np.full_like(program, device), *action), axis=1))
        rows.append(np.insert(exchanges, [0] * 4, [device, EXCHANGE, device, 0], axis=1))
    return np.concatenate(rows)


def _ends(rows: IntArray) -> list[IntArray]:
    """The rows that start first, and those that stop last."""
    half = N_BARS // 2
    return [rows[np.argsort(rows[:, _START])[:half]], rows[np.argsort(rows[:, _STOP])[-half:]]]


def _shown(parts: list[IntArray], n_rows: int) -> str:
    """The number of bars that are shown, and the micro-batches in each part."""
    numbers = [part[part[:, _ACTIVITY] < CHECK, _MICRO_BATCH] for part in parts]
    ranges = " and ".join(f"{part.min():,} to {part.max():,}" for part in numbers)
    return f"first and last {N_BARS // 2:,} of {n_rows:,} bars, micro-batches {ranges}"


def _bars(timeline: Timeline, rows: IntArray, axis: int) -> Iterator[Bar]:
    """One trace per activity; its legend entry hides and shows it on both axes."""
    from plotly.graph_objects import Bar

    for number in np.unique(rows[:, _ACTIVITY]).tolist():
        device, _, stage, micro_batch, starts, stops = rows[rows[:, _ACTIVITY] == number].T
        start, stop = starts / timeline.ticks_per_cycle, stops / timeline.ticks_per_cycle
        # Alternating opacity separates neighbours at any zoom; lines between them would hide narrow bars.
        opacity = np.where(micro_batch % 2, 0.7, 1)
        yield Bar(
            name=ACTIVITIES[number].name,
            legendgroup=ACTIVITIES[number].name,
            showlegend=axis == 1,
            orientation="h",
            xaxis=f"x{axis}",
            y=device,
            base=start,
            x=stop - start,
            marker={"color": ACTIVITIES[number].colour, "opacity": opacity, "line": {"width": 0}},
            customdata=np.stack((stage, micro_batch, start, stop, stop - start), axis=1),
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            **_texts(number, shows_stage(timeline.schedule)),
        )


def _texts(number: int, with_stage: bool) -> dict[str, str]:
    """Plotly's templates for the text in a bar and for its tooltip; `customdata` stands for columns of `_bars`."""
    activity, times = ACTIVITIES[number], "from %{customdata[2]:,} to %{customdata[3]:,}<br>%{customdata[4]:,} cycles"
    if number == EXCHANGE:
        return {"hovertemplate": f"<b>{activity.name}</b><br>{times}<extra></extra>"}
    stage, name = "%{customdata[0]}", f"{activity.letter}%{{customdata[1]}}"
    return {
        "texttemplate": stage + name if with_stage else name,
        "hovertemplate": f"<b>{stage}{name}: {activity.name}</b><br>stage {stage}<br>{times}<extra></extra>",
    }
