"""What pages consist of: `document`, `section`, `table_section` and `figure`; `write_page`.

A page needs no network and, without its theme button, no script.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.report.charts.chart import Chart
from autoauto.report.charts.svg import STYLE, panel_svg
from autoauto.report.markup import tag, words
from autoauto.report.tables.markup import html_table
from autoauto.report.tables.table import Table

WIDE = 520
"""Pictures with more pixels need the whole width of the page."""

_SCRIPT = Path(__file__).parent / "page.js"


def write_page(page: str, path: Path) -> None:
    """Write what `document` returns.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the page needs a file that can be written, got {path} ({error.strerror})") from error


def document(title: str, heading: str, facts: Iterable[str], *content: str) -> str:
    """A page.

    Args:
        title: in the window's title.
        heading: above all.
        facts: below the heading, in one line; empty ones are left out.
        content: sections and figures, as markup.
    """
    style, script = (path.read_text(encoding="utf-8") for path in (STYLE, _SCRIPT))
    head = tag(
        "head",
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        tag("title", words(title)),
        tag("style", style),
    )
    lines = tag("h1", words(heading)) + tag("p", words(" · ".join(filter(None, facts))), class_="muted")
    button = tag("button", "Dark theme", id="theme", type="button", hidden="hidden")
    header = tag("header", tag("div", lines), button)
    body = tag("body", header, tag("main", *content), tag("script", script))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def section(title: str, content: str, name: str) -> str:
    """A heading with what belongs to it; `name` is its id in the page."""
    return tag("section", tag("h2", words(title)), content, id=name)


def table_section(table: Table, name: str) -> str:
    """A table below its name, which its title begins with; the rest of the title is part of its caption."""
    heading, _, rest = table.title.partition(", ")
    return section(heading, tag("div", html_table(replace(table, title=rest)), class_="card"), name)


def is_wide(chart: Chart) -> bool:
    """Whether it needs the whole width of the page."""
    return any(panel.width > WIDE for panel in chart.panels)


def figure(chart: Chart) -> str:
    """A chart with its title, text and legend."""
    swatch = '<svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="3" class="{}"/></svg>'
    items = "".join(tag("li", swatch.format(style), words(name)) for style, name in chart.legend)
    caption = tag("figcaption", tag("h3", words(chart.title)), tag("p", words(chart.text)))
    if items:
        caption += tag("ul", items, class_="legend")
    pictures = [panel_svg(chart, index) for index in range(len(chart.panels))]
    names = [tag("h3", words(panel.name)) if panel.name else "" for panel in chart.panels]
    if any(names):
        panels = (tag("div", name, picture) for name, picture in zip(names, pictures, strict=True))
        pictures = [tag("div", *panels, class_="panels")]
    size = "wide" if is_wide(chart) else "narrow"
    return tag("figure", caption, tag("div", *pictures, class_=f"scroll {size}"))
