"""`study_figures`: a study's charts for Optuna's dashboard, as Plotly figures for its light and its dark theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autoauto.records.study_summary import Finalist, StudySummary, TrialSummary
from autoauto.records.timeline import Timeline
from autoauto.records.units import MIB
from autoauto.report.charts.heat_map import heat_map
from autoauto.report.charts.memory import memory_by_part
from autoauto.report.charts.parity import compared_trials, device_counts, parity_summary
from autoauto.report.charts.throughput import panels
from autoauto.report.html.timeline import timeline_figure
from autoauto.report.style import ESTIMATED
from autoauto.report.wording import origin_of, timeline_title

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8172B3", "#8A6D3B")
"""The series colours of page.css, also `[okabe-ito]` and two more."""

_INK, _GRID, _GREY = "#76818d", "rgba(128, 140, 150, 0.25)", "#a4abb3"
_N_POINTS = 1_000
"""The most dots of a figure and bars of a timeline: figures are part of every response of the dashboard."""


def study_figures(summary: StudySummary, timeline: Timeline | None) -> dict[str, Figure]:
    """Figures by their fixed ids: timeline and memory of the winner, heat map, parity, throughput over batch size."""
    figures = {}
    if summary.winner is not None:
        if timeline is not None and sum(map(len, (*timeline.starts, *timeline.exchanges))) <= _N_POINTS:
            number = summary.winner.trial.number
            figures["autoauto-timeline"] = timeline_figure(timeline)
            figures["autoauto-timeline"].update_layout(
                title=f"Timeline<br><sub>trial {number}, {timeline_title(timeline)}</sub>"
            )
        figures["autoauto-memory"] = memory_figure(summary, summary.winner)
        figures["autoauto-heat-map"] = heat_map_figure(summary)
        figures["autoauto-parity"] = parity_figure(summary)
        figures["autoauto-batches"] = batches_figure(summary)
    return {name: _themed(figure) for name, figure in figures.items()}


def _themed(figure: Figure) -> Figure:
    """Grey text on a transparent background, readable on white and on black; 450 pixels high, as in the dashboard."""
    figure.update_layout(
        template="none",
        height=450,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _INK, "size": 12},
        title={"font": {"size": 15}, "x": 0.01, "xanchor": "left"},
        legend={"orientation": "h", "y": -0.22, "x": 0, "traceorder": "normal"},
        margin={"l": 80, "r": 48, "t": 84, "b": 90},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _GREY, "activecolor": _INK, "orientation": "v"},
    )
    figure.update_xaxes(gridcolor=_GRID, zeroline=False, nticks=7)
    figure.update_annotations(font={"size": 12})
    return figure.update_yaxes(gridcolor=_GRID, zeroline=False, automargin=True, title={"standoff": 12})


def memory_figure(summary: StudySummary, finalist: Finalist) -> Figure:
    """A bar per stage, stacked by category, with marks for its limit and its estimate."""
    from plotly.graph_objects import Bar, Figure, Scatter

    rows = memory_by_part(finalist.measured, finalist.estimate)
    labels = [row.label for row in rows]
    figure = Figure()
    categories = list(dict.fromkeys(category for row in rows for category in row.memory_bytes))
    for index, category in enumerate(categories):
        sizes = [row.memory_bytes.get(category, 0) / MIB for row in rows]
        colour = COLOURS[index] if index < len(COLOURS) - 1 else _GREY
        hover = f"{category}: %{{x:,.1f}} MiB<extra></extra>"
        bar = {"x": sizes, "y": labels, "orientation": "h", "marker": {"color": colour}}
        figure.add_trace(Bar(name=category, hovertemplate=hover, **bar))
    marks: list[tuple[str, str, list[int | None]]] = [
        ("device limit", "#D55E00", [row.limit_bytes for row in rows]),
        (ESTIMATED, _INK, [row.estimated_bytes for row in rows]),
    ]
    for name, colour, sizes_bytes in marks:
        sizes_mib = [None if n_bytes is None else n_bytes / MIB for n_bytes in sizes_bytes]
        line = {"symbol": "line-ns", "size": 26, "line": {"width": 2, "color": colour}}
        mark = {"x": sizes_mib, "y": labels, "mode": "markers", "marker": line}
        figure.add_trace(Scatter(name=name, hovertemplate=f"{name}: %{{x:,.1f}} MiB<extra></extra>", **mark))
    name = f"Memory against the limit<br><sub>trial {finalist.trial.number}, {origin_of(summary)}</sub>"
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(barmode="stack", title=name, xaxis={"title": "MiB", "tickformat": ","})


def heat_map_figure(summary: StudySummary) -> Figure:
    """The best throughput of every n_ipu and memory proportion."""
    from plotly.graph_objects import Figure, Heatmap

    grid = heat_map(summary)
    best = [[grid.best.get((row, column)) for column in grid.columns] for row in grid.rows]
    texts = [
        [
            f"{trial.samples_per_s:,.0f}<br>batch {trial.knobs.batch_size}"
            if trial
            else ("none fits" if (row, column) in grid.best else "not tried")
            for column, trial in zip(grid.columns, line, strict=True)
        ]
        for row, line in zip(grid.rows, best, strict=True)
    ]
    figure = Figure(
        Heatmap(
            x=[str(column) for column in grid.columns],
            y=list(grid.rows),
            z=[[summary.worth(trial) if trial else None for trial in line] for line in best],
            text=texts,
            texttemplate="%{text}",
            hovertemplate="n_ipu %{y}, memory proportion %{x}<br>%{text}<extra></extra>",
            colorscale=[[0, "#d5e8f3"], [1, "#4f9fd0"]],
            showscale=False,
            hoverongaps=False,
            xgap=3,
            ygap=3,
            textfont={"color": "#14222c", "size": 13},
        )
    )
    axes: dict[str, Any] = {
        "xaxis": {"title": "memory proportion", "type": "category"},
        "yaxis": {"title": "n_ipu", "type": "category", "autorange": "reversed"},
    }
    return figure.update_layout(title=f"Best throughput (samples/s)<br><sub>{origin_of(summary)}</sub>", **axes)


def parity_figure(summary: StudySummary) -> Figure:
    """Estimated against measured throughput, with the diagonal on which both are equal."""
    from plotly.graph_objects import Figure, Scatter

    trials = sorted(compared_trials(summary), key=summary.worth, reverse=True)
    figure = Figure()
    for index, n_ipu in enumerate(device_counts(summary)):
        some = [trial for trial in trials[:_N_POINTS] if trial.knobs.n_ipu == n_ipu]
        figure.add_trace(
            Scatter(
                name=f"n_ipu {n_ipu}",
                x=[round(trial.estimated_samples_per_s, 1) for trial in some],
                y=[round(trial.samples_per_s, 1) for trial in some],
                customdata=[trial.number for trial in some],
                mode="markers",
                marker={"color": COLOURS[index % len(COLOURS)], "size": 8},
                hovertemplate="trial %{customdata}<br>estimated %{x:,.1f}<br>measured %{y:,.1f}<extra></extra>",
            )
        )
    ends = [f(min(trial.samples_per_s, trial.estimated_samples_per_s) for trial in trials) for f in (min, max)]
    line = {"color": _INK, "width": 1}
    figure.add_trace(Scatter(x=ends, y=ends, mode="lines", line=line, name="equal", hoverinfo="skip"))
    return figure.update_layout(
        title=f"Estimated against measured<br><sub>{parity_summary(trials)}</sub>",
        xaxis={"title": f"{ESTIMATED} (samples/s)", "tickformat": ","},
        yaxis={"title": f"{origin_of(summary)} (samples/s)", "tickformat": ","},
    )


def batches_figure(summary: StudySummary) -> Figure:
    """Throughput over batch size, a panel for every n_ipu; crosses at the bottom do not fit."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    shown = panels(summary)
    n_points = max(5, _N_POINTS // len(summary.cells))
    figure = make_subplots(1, len(shown), shared_yaxes=True, subplot_titles=[panel.name for panel in shown])
    in_legend: set[str] = set()
    speeds = [trial.samples_per_s for trial in summary.ranked]
    floor = min(speeds) - 0.08 * ((max(speeds) - min(speeds)) or 1.0)
    for column, panel in enumerate(shown, 1):
        for class_, name, cell in panel.series:
            colour = COLOURS[int(class_[1:])] if class_[1:].isdigit() else _GREY
            fit = _thinned([trial for trial in cell.trials if trial.fits], n_points)
            unfit = _thinned([trial for trial in cell.trials if not trial.fits], n_points)
            shared = {"legendgroup": name, "name": name, "marker": {"color": colour, "size": 7}}
            figure.add_trace(
                Scatter(
                    x=[trial.knobs.batch_size for trial in fit],
                    y=[round(trial.samples_per_s, 1) for trial in fit],
                    mode="lines+markers",
                    line={"color": colour, "width": 1},
                    showlegend=name not in in_legend,
                    hovertemplate="batch %{x}: %{y:,.1f} samples/s<extra></extra>",
                    **shared,
                ),
                1,
                column,
            )
            crosses = shared | {"marker": {"color": colour, "size": 7, "symbol": "x-thin-open"}}
            figure.add_trace(
                Scatter(
                    x=[trial.knobs.batch_size for trial in unfit],
                    y=[floor] * len(unfit),
                    mode="markers",
                    showlegend=False,
                    hovertemplate="batch %{x} does not fit<extra></extra>",
                    **crosses,
                ),
                1,
                column,
            )
            in_legend.add(name)
    figure.update_xaxes(title="batch size")
    name = f"Throughput over batch size (samples/s)<br><sub>{origin_of(summary)}; crosses do not fit</sub>"
    return figure.update_layout(title=name, yaxis={"tickformat": ","})


def _thinned(trials: list[TrialSummary], n: int) -> list[TrialSummary]:
    """At most `n` of the trials, evenly spaced."""
    return trials[:: -(-len(trials) // n) or 1]
