"""The drawer of charts as SVG: `panel_svg` for a page, `picture_file` for a file, and `Scale` with round numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import floor, log10
from pathlib import Path
from typing import NamedTuple

from autoauto.records.units import digits
from autoauto.report.charts.chart import RING, Chart, Mark, Panel, Series, Shape
from autoauto.report.style import tag, words

STYLE = Path(__file__).parents[1] / "page.css"
"""The style sheet of pages and pictures; its first rule is the palette."""

_LEGEND_HEIGHT, _MARGIN = 34, 16
_MAX_FILE_WIDTH = 900
"""Of a picture as a file: the dashboard shows it in its own size beside a list of trials, 1280 pixels in all."""
_BOTTOM, _LANE, _CHARACTER = 46, 12, 7.0


class Scale(NamedTuple):
    """Values from `low` to `high` along pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def pixel(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, n: int) -> list[float]:
        """At most `n` + 1 round values on the scale."""
        step = round_step((self.high - self.low) / n)
        first = -int(-self.low // step)  # low / step, rounded up
        last = int(self.high / step + 1e-9)  # rounded down, but not below a multiple that is met
        return [i * step for i in range(first, last + 1)]


def round_step(minimum: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `minimum`."""
    power = 10.0 ** floor(log10(minimum))
    return next(lead * power for lead in (1.0, 2.0, 5.0, 10.0) if lead * power >= minimum * (1 - 1e-9))


def number(value: float) -> str:
    """A number in a picture.

    >>> number(12000.0), number(0.25), number(15_900_000.0)
    ('12,000', '0.25', '15.9 M')
    """
    if abs(value) >= 1e6:
        return f"{digits(value / 1e6, 4)} M"
    return f"{value:,.0f}" if value == round(value) else digits(value, 6)


class _Frame(NamedTuple):
    """Where a panel lies in its picture.

    Attributes:
        x, y: the scales; y of categories goes down.
        row: height of a category.
        lanes: the middle of the lane of every style for marks without a value.
        bottom: below rows, dots and lanes.
    """

    x: Scale
    y: Scale
    row: float
    lanes: Mapping[str, float]
    bottom: float


def _frame(panel: Panel) -> _Frame:
    margin = 18 + _CHARACTER * panel.longest_label if panel.longest_label else 10
    left, top = 60.0, 30.0
    if panel.y.categories:
        left = 14 + _CHARACTER * max(map(len, (*panel.y.categories, panel.y.title)))
        top = 4.0 + 16 * sum(bool(texts) for texts in map(_texts_above, panel.series))
    bottom = top + panel.height
    x = Scale(panel.x.low, panel.x.high, left, panel.width - margin)
    if panel.y.categories:
        row = panel.height / len(panel.y.categories)
        return _Frame(x, Scale(0.0, panel.y.high, top, bottom), row, {}, bottom)
    # Crosses of each style have a lane of their own below the dots, so that no style hides another.
    styles = sorted({series.style for series in panel.series if series.shape is Shape.JOINED})
    above_lanes = bottom - _LANE * len(styles)
    lanes = {style: above_lanes + _LANE * (index + 0.5) + 5 for index, style in enumerate(styles)}
    return _Frame(x, Scale(panel.y.low, panel.y.high, above_lanes, top), 0.0, lanes, bottom)


def _texts_above(series: Series) -> dict[str, float]:
    """The texts of ticks, which are written above the panel, and where they end on the axis; of others none."""
    if series.shape is not Shape.TICK:
        return {}
    return {mark.text: mark.x for mark in series.marks if mark.text}


def panel_svg(chart: Chart, index: int) -> str:
    """The panel `index` as a picture that scales with its column; marks have their texts as tooltips."""
    panel = chart.panels[index]
    frame = _frame(panel)
    name, title = chart.name, chart.title
    if panel.name:
        name, title = f"{name}-{index}", f"{title}, {panel.name}"
    height = frame.bottom + _BOTTOM
    content = [
        tag("title", words(title), id=f"{name}-title"),
        _bottom_axis(panel, frame),
        _left_axis(panel, frame),
        _ticks_above(panel, frame),
    ]
    for series in panel.series:
        content += _DRAWERS[series.shape](series, frame)
    return tag(
        "svg",
        *content,
        id=name,
        viewBox=f"0 0 {panel.width} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-title",
        width=panel.width,
        height=round(height),
    )


def _bottom_axis(panel: Panel, frame: _Frame) -> str:
    scale, y = frame.x, frame.bottom
    parts: list[str] = []
    if panel.x.categories:
        for index, name in enumerate(panel.x.categories):
            parts.append(tag("text", words(name), x=scale.pixel(index + 0.5), y=y + 18, class_="tick middle"))
    else:
        top = min(frame.y.start, frame.y.stop)
        for value in scale.ticks(8 if panel.width > 600 else 5):
            x = scale.pixel(value)
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
            parts.append(tag("text", number(value), x=x, y=y + 16, class_="tick middle"))
    middle = (scale.start + scale.stop) / 2
    parts.append(tag("text", words(panel.x.title), x=middle, y=y + 36, class_="name middle"))
    return "".join(parts)


def _left_axis(panel: Panel, frame: _Frame) -> str:
    scale, x = frame.y, frame.x.start
    parts: list[str] = []
    if panel.y.categories:
        for index, name in enumerate(panel.y.categories):
            y = scale.pixel(index + 0.5) + 4
            parts.append(tag("text", words(name), x=x - 10, y=y, class_="label end"))
        if panel.y.title:
            parts.append(tag("text", words(panel.y.title), x=x - 10, y=frame.bottom + 18, class_="name end"))
        return "".join(parts)
    for value in scale.ticks(5):
        y = scale.pixel(value)
        parts.append(tag("line", x1=x, x2=frame.x.stop, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", number(value), x=x - 8, y=y + 4, class_="tick end"))
    if panel.without_value:
        y = scale.start + 4
        parts.append(tag("line", x1=x, x2=frame.x.stop, y1=y, y2=y, class_="grid"))
        middle = (scale.start + frame.bottom) / 2 + 8
        parts.append(tag("text", words(panel.without_value), x=x - 8, y=middle, class_="tick end"))
    parts.append(tag("text", words(panel.y.title), x=x - 8, y=scale.stop - 14, class_="name"))
    return "".join(parts)


def _ticks_above(panel: Panel, frame: _Frame) -> str:
    parts: list[str] = []
    y = 12
    for texts in map(_texts_above, panel.series):
        if texts:
            for text, x in texts.items():
                parts.append(tag("text", words(text), x=frame.x.pixel(x), y=y, class_="tick end"))
            y += 14
    return "".join(parts)


def _tooltip(mark: Mark) -> str:
    return tag("title", words(mark.hover)) if mark.hover else ""


def _rectangle(mark: Mark, frame: _Frame, gap: float, inset: float = 0.0, rx: int | None = None) -> str:
    """The part of the row from `x` to `stop`; `gap` is the share of the row that is left free above and below."""
    assert mark.y is not None
    x, stop = frame.x.pixel(mark.x) + inset, frame.x.pixel(mark.stop) - inset
    y, height = frame.y.pixel(mark.y + gap) + inset, frame.row * (1 - 2 * gap) - 2 * inset
    box = {"x": x, "y": y, "width": max(stop - x, 0.3), "height": height, "rx": rx}
    opacity = None if mark.opacity == 1 else f"{mark.opacity:.2g}".lstrip("0")
    return tag("rect", _tooltip(mark), **box, opacity=opacity)


def _bars(series: Series, frame: _Frame) -> Iterator[str]:
    """Bars, and their texts where the longest of them has room."""
    yield tag("g", *(_rectangle(mark, frame, 0.1) for mark in series.marks), class_=series.style)
    minimum = 6.5 * max((len(mark.text) for mark in series.marks), default=0) + 2
    texts = []
    for mark in series.marks:
        length = frame.x.pixel(mark.stop) - frame.x.pixel(mark.x)
        if mark.text and length >= minimum:
            x, y = _middle(mark, frame)
            texts.append(tag("text", words(mark.text), x=x, y=y + 4))
    if texts:
        yield tag("g", *texts, class_="on-bar middle")


def _middle(mark: Mark, frame: _Frame) -> tuple[float, float]:
    assert mark.y is not None
    return frame.x.pixel((mark.x + mark.stop) / 2), frame.y.pixel(mark.y + 0.5)


def _cells(series: Series, frame: _Frame) -> Iterator[str]:
    yield tag("g", *(_rectangle(mark, frame, 0.0, 1.5, 4) for mark in series.marks), class_=series.style)
    for mark in series.marks:
        x, y = _middle(mark, frame)
        lines = mark.text.splitlines()
        first_y = y + 4 - 8.5 * (len(lines) - 1)
        for index, line in enumerate(lines):
            style = "below"
            if index == 0:  # a single line is as small as one below
                style = "tick" if len(lines) == 1 else "cell"
            yield tag("text", words(line), x=x, y=first_y + 17 * index, class_=f"{style} middle")


def _ticks(series: Series, frame: _Frame) -> Iterator[str]:
    lines = []
    for mark in series.marks:
        assert mark.y is not None
        x, y1, y2 = frame.x.pixel(mark.x), frame.y.pixel(mark.y), frame.y.pixel(mark.y + 1)
        lines.append(tag("line", _tooltip(mark), x1=x, x2=x, y1=y1, y2=y2))
    yield tag("g", *lines, class_=f"mark {series.style}")


def _labels(series: Series, frame: _Frame) -> Iterator[str]:
    for mark in series.marks:
        assert mark.y is not None
        yield tag("text", words(mark.text), x=frame.x.stop + 12, y=frame.y.pixel(mark.y + 0.5) + 4, class_="value")


def _dots(series: Series, frame: _Frame) -> Iterator[str]:
    """Dots, and crosses below the axis; one where several would cover each other."""
    # Of marks on one pixel the first is drawn, but as late as the last of them.
    by_pixel: dict[tuple[int, int | None], Mark] = {}
    for mark in reversed(series.marks):
        y = None if mark.y is None else round(frame.y.pixel(mark.y))
        by_pixel[round(frame.x.pixel(mark.x)), y] = mark
    dots, crosses = [], []
    for mark in reversed(by_pixel.values()):
        x = frame.x.pixel(mark.x)
        if mark.y is None:
            path = f"M{x - 3:.1f} {frame.lanes[series.style] - 3:.1f}l6 6m0 -6l-6 6"
            crosses.append(tag("path", _tooltip(mark), d=path))
        else:
            radius = 8 if series.style == RING else 4
            dots.append(tag("circle", _tooltip(mark), cx=x, cy=frame.y.pixel(mark.y), r=radius))
    for class_, drawn in (("dot", dots), ("cross", crosses)):
        if drawn:
            yield tag("g", *drawn, class_=f"{class_} {series.style}")


def _joined(series: Series, frame: _Frame) -> Iterator[str]:
    yield from _line(series, frame)
    yield from _dots(series, frame)


def _line(series: Series, frame: _Frame) -> Iterator[str]:
    yield tag("polyline", points=_corners(series, frame), class_=f"line {series.style}")


def _area(series: Series, frame: _Frame) -> Iterator[str]:
    yield tag("polygon", points=_corners(series, frame), class_=series.style)


def _corners(series: Series, frame: _Frame) -> str:
    points = ((frame.x.pixel(mark.x), frame.y.pixel(mark.y)) for mark in series.marks if mark.y is not None)
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


_DRAWERS: Mapping[Shape, Callable[[Series, _Frame], Iterator[str]]] = {
    Shape.BAR: _bars,
    Shape.CELL: _cells,
    Shape.TICK: _ticks,
    Shape.LABEL: _labels,
    Shape.DOT: _dots,
    Shape.JOINED: _joined,
    Shape.LINE: _line,
    Shape.AREA: _area,
}


def picture_file(chart: Chart) -> str:
    """A chart as an SVG file of its own, panels side by side, with a legend; light or dark as its reader prefers."""
    width = sum(panel.width for panel in chart.panels)
    height = max(round(_frame(panel).bottom + _BOTTOM) for panel in chart.panels)
    outer_width, outer_height = width + 2 * _MARGIN, height + _LEGEND_HEIGHT + 2 * _MARGIN
    parts = [
        tag("style", STYLE.read_text(encoding="utf-8")),
        tag("rect", x=-_MARGIN, y=-_MARGIN, width=outer_width, height=outer_height, style="fill:var(--card)"),
        *_legend(chart),
    ]
    x = 0
    for index, panel in enumerate(chart.panels):
        parts.append(panel_svg(chart, index).replace("<svg ", f'<svg x="{x}" y="{_LEGEND_HEIGHT}" ', 1))
        x += panel.width
    scale = min(1.0, _MAX_FILE_WIDTH / outer_width)
    return tag(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{-_MARGIN} {-_MARGIN} {outer_width} {outer_height}",
        width=round(scale * outer_width),
        height=round(scale * outer_height),
        style="font-family: 'Liberation Sans', Arial, sans-serif",
    )


def _legend(chart: Chart) -> Iterator[str]:
    x = 0.0
    for style, name in chart.legend:
        yield tag("rect", x=x, y=0, width=12, height=12, rx=3, class_=style)
        yield tag("text", words(name), x=x + 18, y=11, class_="tick")
        x += 36 + 7 * len(name)
