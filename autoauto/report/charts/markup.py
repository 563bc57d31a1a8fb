"""HTML and SVG as text: `tag`, `words`, `table`, an `Axis` with round numbers, `svg` and `picture_file`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from math import floor, log10
from pathlib import Path
from typing import NamedTuple

_UNIT = re.compile(r"(\d) (%|[KMG]iB|B\b|ms|µs|samples/s)")
_STYLE = Path(__file__).parents[1] / "html" / "page.css"
_LEGEND_HEIGHT, _MARGIN = 34, 16


def tag(name: str, *content: str, **attributes: object) -> str:
    """An element around `content`, which is markup; attributes that are None are left out.

    Names end with an underscore where Python reserves them, and hyphens are written as underscores.

    >>> tag("text", "F0", x=1.25, class_="muted", text_anchor=None)
    '<text x="1.2" class="muted">F0</text>'
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    head = "".join(f' {key}="{_attribute(value)}"' for key, value in pairs)
    return f"<{name}{head}>{''.join(content)}</{name}>"


def _attribute(value: object) -> str:
    """A number has one decimal, a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value))


def words(text: object) -> str:
    """Text as markup; no line break separates a number from its unit.

    >>> words("a < b"), words("22 % of it")
    ('a &lt; b', '22\xa0% of it')
    """
    return _UNIT.sub("\\1\xa0\\2", escape(str(text)))


class Axis(NamedTuple):
    """Values from `low` to `high` along pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def pixel(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, n: int) -> list[float]:
        """At most `n` + 1 round values on the axis.

        >>> Axis(0, 9.3, 0, 100).ticks(5)
        [0.0, 2.0, 4.0, 6.0, 8.0]
        """
        step = round_step((self.high - self.low) / n)
        first = -int(-self.low // step)
        return [i * step for i in range(first, int(self.high / step + 1e-9) + 1)]


def round_step(minimum: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `minimum`.

    >>> round_step(1.86), round_step(300)
    (2.0, 500.0)
    """
    power = 10.0 ** floor(log10(minimum))
    return next(lead * power for lead in (1.0, 2.0, 5.0, 10.0) if lead * power >= minimum * (1 - 1e-9))


def bottom_axis(axis: Axis, y: float, title: str, n_ticks: int = 6, *, top: float | None = None) -> str:
    """Ticks with numbers below `y`, grid lines up to `top`, and a title."""
    parts = []
    for value in axis.ticks(n_ticks):
        x = axis.pixel(value)
        if top is not None:
            parts.append(tag("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
        parts.append(tag("text", number(value), x=x, y=y + 16, class_="tick", text_anchor="middle"))
    middle = (axis.start + axis.stop) / 2
    return "".join([*parts, tag("text", words(title), x=middle, y=y + 36, class_="name", text_anchor="middle")])


def left_axis(axis: Axis, x: float, title: str, n_ticks: int = 5, *, right: float) -> str:
    """Ticks with numbers left of `x`, grid lines to `right`, and a title above."""
    parts = []
    for value in axis.ticks(n_ticks):
        y = axis.pixel(value)
        parts.append(tag("line", x1=x, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", number(value), x=x - 8, y=y + 4, class_="tick", text_anchor="end"))
    return "".join([*parts, tag("text", words(title), x=x - 8, y=axis.stop - 14, class_="name")])


def number(value: float) -> str:
    """A number in a picture.

    >>> number(12000.0), number(0.25), number(15_900_000.0)
    ('12,000', '0.25', '15.9 M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.6g}"


def svg(name: str, title: str, width: float, height: float, *content: str) -> str:
    """A picture that scales with its column.

    Args:
        name: the picture's id in the page.
        title: the text for screen readers.
        width, height: the size of the drawing in its own pixels.
        content: the elements of the drawing.
    """
    label = tag("title", words(title), id=f"{name}-title")
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", label, *content, id=name, viewBox=box, role="img", aria_labelledby=f"{name}-title", width=width)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = (), caption: str = "") -> str:
    """A table with heads; cells are markup, columns that are also in `numbers` are set flush right.

    Every cell also has its head as an attribute: on narrow screens the style sheet shows a row as a list.
    """
    classes = ["number" if name in numbers else None for name in columns]
    heads = (
        tag("th", words(name).replace("memory_", "memory_<wbr/>"), scope="col", class_=class_)
        for name, class_ in zip(columns, classes, strict=True)
    )
    body = (
        "".join(
            tag("td", cell, class_=class_, data_head=name)
            for name, cell, class_ in zip(columns, row, classes, strict=True)
        )
        for row in rows
    )
    head = tag("caption", words(caption)) if caption else ""
    lines = "\n".join(tag("tr", row) for row in body)
    return tag("div", tag("table", head, tag("thead", tag("tr", *heads)), tag("tbody", lines)), class_="scroll")


def picture_file(picture: str, legend: Sequence[tuple[str, str]]) -> str:
    """A picture as an SVG file of its own, with a legend; light or dark as its reader prefers.

    Args:
        picture: the picture as the page has it, from `svg`.
        legend: class and name of every colour in the picture.
    """
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
    assert box is not None
    width, height = map(int, box.groups())
    inner = picture.replace("<svg ", f'<svg y="{_LEGEND_HEIGHT}" height="{height}" ', 1)
    outer_width, outer_height = width + 2 * _MARGIN, height + _LEGEND_HEIGHT + 2 * _MARGIN
    return tag(
        "svg",
        tag("style", _STYLE.read_text(encoding="utf-8")),
        tag("rect", x=-_MARGIN, y=-_MARGIN, width=outer_width, height=outer_height, style="fill:var(--card)"),
        *_legend(legend),
        inner,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"{-_MARGIN} {-_MARGIN} {outer_width} {outer_height}",
        width=outer_width,
        height=outer_height,
        style="font-family: 'Liberation Sans', Arial, sans-serif",
    )


def _legend(legend: Sequence[tuple[str, str]]) -> list[str]:
    parts, x = [], 0.0
    for class_, name in legend:
        parts.append(tag("rect", x=x, y=0, width=12, height=12, rx=3, class_=class_))
        parts.append(tag("text", words(name), x=x + 18, y=11, class_="tick"))
        x += 36 + 7 * len(name)
    return parts
