"""The writers of tables in HTML, `html_table`, and in Markdown as GitHub reads it, `markdown_table`."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.report.markup import tag, words
from autoauto.report.tables.table import Style, Table, TableCell

_TAGS = {Style.STRONG: "strong", Style.CODE: "code"}


def html_table(table: Table) -> str:
    """A table with heads, and its title and caption above it, where it has any.

    Every cell also has its head as an attribute: on narrow screens the style sheet shows a row as a list.
    """
    classes = ["number" if column.quantity else None for column in table.columns]
    heads = (
        tag("th", words(column.words).replace("memory_", "memory_<wbr/>"), scope="col", class_=class_)
        for column, class_ in zip(table.columns, classes, strict=True)
    )
    body = (
        "".join(
            tag("td", _html_content(cell), class_=class_, data_head=column.words)
            for column, cell, class_ in zip(table.columns, cells, classes, strict=True)
        )
        for cells in table.cells()
    )
    remarks = "; ".join(filter(None, [table.title, *table.caption.splitlines()]))
    caption = tag("caption", words(remarks)) if remarks else ""
    head = tag("thead", tag("tr", *heads)) if table.has_heads else ""
    lines = "\n".join(tag("tr", row) for row in body)
    return tag("div", tag("table", caption, head, tag("tbody", lines)), class_="scroll")


def _html_content(cell: TableCell) -> str:
    text = "<br/>".join(map(words, cell.text.splitlines()))
    if cell.style in _TAGS:
        text = tag(_TAGS[cell.style], text)
    if cell.share is None:
        return text
    return text + tag("div", tag("i", style=f"width:{100 * min(cell.share, 1):.1f}%"), class_="share")


def markdown_table(table: Table) -> str:
    """A table below its title, and its caption; columns of text are flush left, columns of numbers flush right."""
    heads = [column.words or " " for column in table.columns]
    lines = ["---:" if column.quantity else "---" for column in table.columns]
    rows = (map(_markdown_content, cells) for cells in table.cells())
    body = "\n".join(map(_markdown_line, (heads, lines, *rows)))
    return "\n\n".join(filter(None, [f"### {table.title}", body, table.caption.replace("\n", "  \n")]))


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _markdown_content(cell: TableCell) -> str:
    text = " ".join(cell.text.split())
    if cell.style is Style.STRONG:
        return f"**{text}**"
    return f"`{text}`" if cell.style is Style.CODE and text else text
