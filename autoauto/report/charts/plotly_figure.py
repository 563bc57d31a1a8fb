"""The drawer of charts as Plotly figures with zoom, `plotly_figure`, for the dashboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from autoauto.report.charts.chart import HOLLOW, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.svg import STYLE

_INK, _GRID, _CLEAR = "#76818d", "rgba(128, 140, 150, 0.25)", "rgba(0, 0, 0, 0)"
_GAP = 0.03
"""Between panels, as a share of the figure's width."""
_MIN_DOTS = 5
_LEGEND_WIDTH, _ROW = 360, 19
"""Of a legend in the dashboard, and the height of a row of it, in pixels."""

_COLOURS = {
    **dict.fromkeys(("estimated", "diagonal", "front", "value"), _INK),
    **dict.fromkeys(("track", "tolerance", "empty"), _GRID),
    RING: _CLEAR,
    HOLLOW: _CLEAR,
}
"""Of styles that are no colour of the palette, readable on white and on black."""
_OUTLINES = {RING: 2, HOLLOW: 1}
"""The widths of outlines."""
_VARIABLES = {"limit": "s5", "planned": "s5", "heat": "accent"}
"""The variables of page.css of styles that are not named like theirs."""


def plotly_figure(chart: Chart, n_dots: int) -> dict[str, Any]:
    """A chart as JSON values of a figure, with about `n_dots` dots at most; hovers are those of the SVG."""
    n_series = sum(map(_has_dots, chart.series))
    n_each = max(_MIN_DOTS, n_dots // max(n_series, 1))
    in_legend: set[tuple[str, str]] = set()
    traces: list[dict[str, Any]] = []
    for index, panel in enumerate(chart.panels, 1):
        for series in panel.series:
            # Series of one style and name are one entry, which switches all of them; the first of its traces shows it.
            entry = (series.style, series.name)
            shared = {
                "name": series.name,
                "legendgroup": series.name,
                "showlegend": bool(series.name) and entry not in in_legend,
                "xaxis": f"x{index}",
            }
            for trace in _TRACES[series.shape](_thinned(series, n_each), panel):
                traces.append({**shared, **trace})
                shared["showlegend"] = False
            in_legend.add(entry)
    look = _look(chart)
    look["margin"]["b"] += _ROW * _n_legend_rows([trace["name"] for trace in traces if trace["showlegend"]])
    return {"data": traces, "layout": {**look, **_axes(chart)}}


def _has_dots(series: Series) -> bool:
    return series.shape in (Shape.DOT, Shape.JOINED)


def _n_legend_rows(names: Sequence[str]) -> int:
    """The rows of a legend, which has columns as wide as its longest name unless one row is enough.

    Plotly gives a legend of several rows no room of its own: it would lie on the title of the axis.
    """
    widths = [40 + 7 * len(name) for name in names]
    if sum(widths) <= _LEGEND_WIDTH:
        return 1
    return -(-len(names) // max(1, _LEGEND_WIDTH // max(widths)))


def _thinned(series: Series, n: int) -> Series:
    """At most `n` of the dots and `n` of the crosses, evenly spaced."""
    if not _has_dots(series):
        return series
    marks: list[Mark] = []
    for some in _dots_and_crosses(series):
        step = max(1, -(-len(some) // n))
        marks += some[::step]
    return series._replace(marks=tuple(marks))


def _dots_and_crosses(series: Series) -> tuple[list[Mark], list[Mark]]:
    """The marks with a value on `y`, and those without."""
    dots = [mark for mark in series.marks if mark.y is not None]
    return dots, [mark for mark in series.marks if mark.y is None]


def _axes(chart: Chart) -> dict[str, Any]:
    """Panels side by side on one axis y."""
    first, width = chart.panels[0], (1 + _GAP) / len(chart.panels)
    axes: dict[str, Any] = {"annotations": []}
    for index, panel in enumerate(chart.panels):
        left = index * width
        domain = [left, min(left + width - _GAP, 1.0)]
        axes[f"xaxis{index + 1}"] = {**_axis(panel.x), "domain": domain, "anchor": "y"}
        if panel.name:
            position = {"x": sum(domain) / 2, "y": 1, "xref": "paper", "yref": "paper", "yanchor": "bottom"}
            axes["annotations"].append({"text": panel.name, "showarrow": False, "font": {"size": 12}, **position})
    axes["yaxis"] = {**_axis(first.y), "automargin": True}
    if first.y.categories:
        axes["yaxis"]["range"] = [first.y.high, first.y.low]
    elif first.without_value:
        axes["yaxis"]["range"] = [2 * _floor(first) - first.y.low, first.y.high]
    return axes


def _axis(axis: Axis) -> dict[str, Any]:
    shared = {"title": {"text": axis.title}, "range": [axis.low, axis.high], "zeroline": False, "gridcolor": _GRID}
    if not axis.categories:
        return {**shared, "tickformat": ",", "nticks": 7}
    middles = [index + 0.5 for index in range(len(axis.categories))]
    return {**shared, "tickvals": middles, "ticktext": list(axis.categories), "showgrid": False}


def _floor(panel: Panel) -> float:
    """Where marks without a value are drawn, below the axis."""
    return panel.y.low - 0.06 * (panel.y.high - panel.y.low)


def _look(chart: Chart) -> dict[str, Any]:
    """Grey text on a transparent background, readable on white and on black."""
    longest = max(panel.longest_label for panel in chart.panels)
    return {
        "title": {
            "text": f"{chart.title}<br><sub>{chart.text}</sub>",
            "font": {"size": 15},
            "x": 0.01,
            "xanchor": "left",
        },
        "height": round(230 + chart.panels[0].height),
        "template": {},
        "barmode": "overlay",
        "hovermode": "closest",
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "font": {"color": _INK, "size": 12},
        "legend": {
            "orientation": "h",
            "yref": "container",
            "y": 0,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
        "margin": {"l": 80, "r": 48 + 6 * longest, "t": 84, "b": 64},
        "modebar": {"bgcolor": _CLEAR, "color": _INK, "activecolor": _INK, "orientation": "v"},
        "uniformtext": {"minsize": 8, "mode": "hide"},
    }


@cache
def _palette() -> Mapping[str, str]:
    """The colours of the light theme by the names of their variables in page.css."""
    light = STYLE.read_text(encoding="utf-8").partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#\w+)", light))


def _colour(style: str) -> str:
    if style in _COLOURS:
        return _COLOURS[style]
    return _palette()[_VARIABLES.get(style, style.removeprefix("s-").removeprefix("do-"))]


def _texts(marks: Sequence[Mark]) -> dict[str, Any]:
    return {"hovertext": [mark.hover for mark in marks], "hoverinfo": "text" if any(m.hover for m in marks) else "skip"}


def _bars(series: Series, panel: Panel) -> list[dict[str, Any]]:
    marks, colour = series.marks, _colour(series.style)
    is_solid = colour.startswith("#")
    bars = {
        "type": "bar",
        "orientation": "h",
        "base": _numbers(mark.x for mark in marks),
        "x": _numbers(mark.stop - mark.x for mark in marks),
        "y": [None if mark.y is None else mark.y + 0.5 for mark in marks],
        "width": 0.94 if series.shape is Shape.CELL else 0.8,
        "marker": {
            "color": _shades(series) if is_solid else colour,
            "line": {"color": _INK, "width": 2 if series.style == RING else 0},
        },
        **_texts(marks),
    }
    if any(mark.text for mark in marks):
        bars["text"] = [mark.text.replace("\n", "<br>") for mark in marks]
        bars |= {"textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
        bars["insidetextfont"] = {"color": "#14222c" if is_solid else _INK}
    return [bars]


def _shades(series: Series) -> list[str]:
    """The colours of bars; neighbours alternate, because lines between them would hide narrow bars at some zoom."""
    colour = _colour(series.style)
    if series.shape is Shape.CELL:
        return [_on_white(colour, mark.opacity) for mark in series.marks]
    pale, shades = _on_white(colour, 0.7), []
    row, is_pale = -1.0, True
    for mark in series.marks:
        is_pale = mark.y == row and not is_pale  # the first of a row is not
        row = -1.0 if mark.y is None else mark.y
        shades.append(pale if is_pale else colour)
    return shades


def _on_white(colour: str, opacity: float) -> str:
    """A colour on white paper: text on it can then be read on black pages too.

    >>> _on_white("#0072b2", 1.0), _on_white("#0072b2", 0.2)
    ('#0072b2', '#cce3f0')
    """
    parts = (int(colour[index : index + 2], 16) for index in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * part + (1 - opacity) * 255):02x}" for part in parts)


def _ticks(series: Series, panel: Panel) -> list[dict[str, Any]]:
    look = {"symbol": "line-ns", "size": 26, "line": {"width": 2, "color": _colour(series.style)}}
    return [{**_scatter(series.marks, 0.5), "mode": "markers", "marker": look, "cliponaxis": False}]


def _labels(series: Series, panel: Panel) -> list[dict[str, Any]]:
    texts = [f" {mark.text}" for mark in series.marks]
    shown = {"mode": "text", "text": texts, "textposition": "middle right", "cliponaxis": False}
    right = [mark._replace(x=panel.x.high) for mark in series.marks]
    return [{**_scatter(right, 0.5), **shown, "hoverinfo": "skip"}]


def _dots(series: Series, panel: Panel, mode: str = "markers") -> list[dict[str, Any]]:
    """Dots, and crosses below the axis."""
    fit, unfit = _dots_and_crosses(series)
    colour = _colour(series.style)
    look = {
        "color": colour,
        "size": 16 if series.style == RING else 7,
        "line": {"width": _OUTLINES.get(series.style, 0), "color": _INK},
    }
    dots = {**_scatter(fit), "mode": mode, "marker": look, "line": {"color": colour, "width": 1}}
    if not unfit:
        return [dots]
    crosses = _scatter([mark._replace(y=_floor(panel)) for mark in unfit])
    cross = {"symbol": "x-thin-open", "size": 7, "color": colour}
    return [dots, {**crosses, "mode": "markers", "marker": cross}]


def _line(series: Series, panel: Panel) -> list[dict[str, Any]]:
    return [{**_scatter(series.marks), "mode": "lines", "line": {"color": _colour(series.style), "width": 1}}]


def _area(series: Series, panel: Panel) -> list[dict[str, Any]]:
    fill = {"fill": "toself", "fillcolor": _colour(series.style), "line": {"width": 0}}
    return [{**_scatter(series.marks), "mode": "lines", **fill}]


def _scatter(marks: Sequence[Mark], above: float = 0.0) -> dict[str, Any]:
    """A trace of marks; `above` moves them up, to the middle of their rows."""
    ys = _numbers(mark.y + above for mark in marks if mark.y is not None)
    return {"type": "scatter", "x": _numbers(mark.x for mark in marks), "y": ys, **_texts(marks)}


def _numbers(values: Iterable[float]) -> list[float]:
    """Short numbers, because figures are part of every answer of the dashboard."""
    return [round(value, 9) for value in values]


_TRACES: Mapping[Shape, Callable[[Series, Panel], list[dict[str, Any]]]] = {
    Shape.BAR: _bars,
    Shape.CELL: _bars,
    Shape.TICK: _ticks,
    Shape.LABEL: _labels,
    Shape.DOT: _dots,
    Shape.JOINED: partial(_dots, mode="lines+markers"),
    Shape.LINE: _line,
    Shape.AREA: _area,
}
