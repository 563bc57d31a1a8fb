"""A chart as data, `Chart`: panels with two axes and series of marks. `svg` and `plotly_figure` draw any of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

OTHER = "s-other"
"""The style of what has no colour of its own, grey."""
RING = "ring"
"""The style of a mark around the best, an outline."""
HOLLOW = "hollow"
"""The style of what is only estimated, an outline."""


class Shape(StrEnum):
    """How the marks of a series are drawn."""

    BAR = "bar"
    """A bar in its row from `x` to `stop`, with its text if that fits."""
    CELL = "cell"
    """A bar that fills its row, with lines of text; of several lines the first is larger."""
    TICK = "tick"
    """A line across its row at `x`; its text is written above the panel."""
    LABEL = "label"
    """Text to the right of the panel, in its row."""
    DOT = "dot"
    """A dot; a cross below the axis where there is no `y`."""
    JOINED = "joined"
    """Dots as above, with a line through them."""
    LINE = "line"
    """A line through all marks."""
    AREA = "area"
    """The polygon whose corners are the marks."""


class Mark(NamedTuple):
    """A mark of a chart, in the units of its axes.

    Attributes:
        x: where it is, or where a bar begins.
        y: where it is; on an axis of categories the index of the row. None where there is no value.
        hover: what is shown when a pointer is on it.
        text: what is written on it or beside it; lines are separated by line feeds.
        stop: where a bar ends.
    """

    x: float
    y: float | None
    hover: str = ""
    text: str = ""
    stop: float = 0.0
    opacity: float = 1.0


class Series(NamedTuple):
    """Marks of the same look.

    Attributes:
        name: in the legend; series of a name are one entry, and "" has none.
        style: its class in page.css, "s0" to "s7" for a colour.
    """

    name: str
    style: str
    shape: Shape
    marks: tuple[Mark, ...]


class Axis(NamedTuple):
    """An axis of numbers, or of categories: the category i is from i to i + 1.

    Attributes:
        title: what it shows, with the unit.
        categories: their names; empty on an axis of numbers.
    """

    title: str
    low: float
    high: float
    categories: tuple[str, ...] = ()


def category_axis(title: str, categories: tuple[str, ...]) -> Axis:
    """An axis with a row or column for every category."""
    return Axis(title, 0.0, float(len(categories)), categories)


class Panel(NamedTuple):
    """Series on the same axes.

    Attributes:
        name: its heading; empty in a chart of one panel.
        x, y: the axes; an axis y of categories goes down.
        height: of the area between the axes, in pixels.
        without_value: the name of what has no value on `y`, for example "no fit".
    """

    name: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    width: int
    height: float
    without_value: str = ""

    @property
    def longest_label(self) -> int:
        """Characters of the longest text to the right of the panel; 0 without any."""
        labels = [series.marks for series in self.series if series.shape is Shape.LABEL]
        return max((len(mark.text) for marks in labels for mark in marks), default=0)


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of one panel or several side by side.

    Attributes:
        name: its id in a page.
        text: the origin of the numbers and how to read the marks.
    """

    name: str
    title: str
    text: str
    panels: tuple[Panel, ...]

    @property
    def series(self) -> list[Series]:
        """The series of all panels."""
        return [series for panel in self.panels for series in panel.series]

    @property
    def n_points(self) -> int | None:
        """The number of different dots and cells, rings aside; None for a chart of bars."""
        if any(series.shape is Shape.BAR for series in self.series):
            return None
        points: set[tuple[float, float]] = set()
        for series in self.series:
            if series.shape in (Shape.DOT, Shape.JOINED, Shape.CELL) and series.style != RING:
                points |= {(mark.x, mark.y) for mark in series.marks if mark.y is not None}
        return len(points)

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The style and the name of everything with a colour, grey last."""
        entries: dict[tuple[str, str], None] = {}
        for series in self.series:
            has_colour = series.shape in (Shape.BAR, Shape.DOT, Shape.JOINED) and series.style != RING
            if series.name and has_colour:
                entries[series.style, series.name] = None
        return sorted(entries, key=lambda entry: entry[0] == OTHER)
