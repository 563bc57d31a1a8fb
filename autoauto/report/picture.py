"""A picture as a file of its own: with its legend, its colours and its ground."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autoauto.report.markup import tag, words

_STYLE = Path(__file__).with_name("page.css")
_LEGEND, _MARGIN = 34, 16


def picture_file(svg: str, legend: Sequence[tuple[str, str]]) -> str:
    """The SVG file of a picture of the page; light or dark as its reader prefers.

    Args:
        svg: what a function of this room returned.
        legend: class and name of every colour in it.
    """
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    assert box is not None
    width, height = map(int, box.groups())
    inner = svg.replace("<svg ", f'<svg y="{_LEGEND}" height="{height}" ', 1)
    outer_width, outer_height = width + 2 * _MARGIN, height + _LEGEND + 2 * _MARGIN
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
