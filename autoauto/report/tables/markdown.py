"""The writer of tables in GitHub's Markdown: `markdown_table`."""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.report.tables.table import Style, Table, TableCell


def markdown_table(table: Table) -> str:
    """A table below its title, and its caption; columns of text are flush left, columns of numbers flush right."""
    heads = [column.words or " " for column in table.columns]
    lines = ["---:" if column.quantity else "---" for column in table.columns]
    rows = (map(_content, cells) for cells in table.cells())
    body = "\n".join(map(_line, (heads, lines, *rows)))
    return "\n\n".join(filter(None, [f"### {table.title}", body, table.caption.replace("\n", "  \n")]))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _content(cell: TableCell) -> str:
    text = " ".join(cell.text.split())
    if cell.style is Style.STRONG:
        return f"**{text}**"
    return f"`{text}`" if cell.style is Style.CODE and text else text
