"""A table as data, `Table`, and what writes any of them.

`show`            to the terminal, with lines between tables; `show_command` a command to copy
`html_table`      in HTML
`markdown_table`  in Markdown as GitHub reads it
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from autoauto.report.style import broken_command, format_value, printable, shorten, tag, words


class Style(StrEnum):
    """How a cell is written."""

    PLAIN = "plain"
    STRONG = "strong"
    """Cells that name what limits a plan, or the winner."""
    CODE = "code"
    LAYER = "layer"
    """Names of layers, one a line, that are shortened where the column is narrow."""


class TableCell(NamedTuple):
    """What is written in a row and column.

    Attributes:
        text: lines, separated by line feeds.
        style: how they are written.
        share: of a bar below the text, from 0 to 1; None for no bar.
        link: where the text leads in HTML; None for nowhere.
    """

    text: str
    style: Style = Style.PLAIN
    share: float | None = None
    link: str | None = None


Value = TableCell | str | float | None
"""A number is written by the quantity of its column; None as "-"."""


class Column(NamedTuple):
    """A column.

    Attributes:
        head: its lines are separated by line feeds, and by blanks where there is room.
        quantity: the name of a field, which ends in a unit, for example "latency_s"; numbers are flush right. Empty for
            text, which is flush left.
    """

    head: str
    quantity: str = ""

    @property
    def words(self) -> str:
        """The head in one line."""
        return self.head.strip().replace("\n", " ")


def speeds_column(unit: str, head: str = "") -> Column:
    """The column of throughputs in samples/s or tokens/s."""
    return Column(f"{head}{unit}", "tokens_per_s" if unit == "tokens/s" else "samples_per_s")


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: what it shows, with the origin of its numbers.
        columns: from left to right; without any head there is no row of heads.
        rows: as many values as columns each.
        caption: remarks below it; lines are separated by line feeds.
        grouped: whether a line separates rows with different values in the first column.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    caption: str = ""
    grouped: bool = False

    @property
    def has_heads(self) -> bool:
        """Whether any column has a head."""
        return any(column.head for column in self.columns)

    def cells(self) -> Iterator[list[TableCell]]:
        """The cells of every row."""
        for row in self.rows:
            yield [_cell(column, value) for column, value in zip(self.columns, row, strict=True)]

    def without(self, *heads: str) -> Table:
        """This table without the columns with these heads, where there is no room for them."""
        indices = [index for index, column in enumerate(self.columns) if column.words not in heads]
        columns = tuple(self.columns[index] for index in indices)
        return replace(self, columns=columns, rows=tuple(tuple(row[index] for index in indices) for row in self.rows))


def _cell(column: Column, value: Value) -> TableCell:
    """A value as it is written.

    >>> _cell(Column("latency", "latency_s"), 0.0123).text, _cell(Column("latency", "latency_s"), None).text
    ('12.300 ms', '-')
    """
    if isinstance(value, TableCell):
        return value
    if value is None:
        return TableCell("-")
    return TableCell(value if isinstance(value, str) else format_value(column.quantity, value))


_BAR_WIDTH = 16
_MIN_TEXT_WIDTH = 16


class _Console(Console):
    """Leaves it to the command to end where the reader of a pipe has gone."""

    def on_broken_pipe(self) -> None:
        """Raise what a print raises."""
        raise BrokenPipeError


def show(*parts: Table | str | Text) -> None:
    """Print tables and lines of text below each other; an empty line is "". Lines have no blanks at their ends."""
    console = _Console()
    with console.capture() as capture:
        for part in parts:
            if isinstance(part, str):
                console.print(printable(part), markup=False, highlight=False)
            else:
                console.print(renderable(part) if isinstance(part, Table) else part)
    for line in capture.get().split("\n")[:-1]:
        print(line.rstrip(" "))


def show_command(what: str, command: str) -> None:
    """Print what a command does and the command; in a terminal it is broken between its words, so that one can copy it.

    Elsewhere it is one line, for programs that read it.
    """
    line = printable(f"{what}: {command}")
    width = Console().width
    if not sys.stdout.isatty() or len(line) <= width:
        print(line)
        return
    print(f"{what}:", *map(printable, broken_command(command, width)), sep="\n")


def renderable(table: Table) -> RenderableType:
    """A table with a line under its head, and its caption below it."""
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=table.has_heads,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    breaks_numbers = _is_crowded(table)
    for column in table.columns:
        is_number = bool(column.quantity)
        drawn.add_column(
            Text(printable(column.head)),
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number and not breaks_numbers,
        )
    rows = list(table.cells())
    for index, cells in enumerate(rows):
        ends = table.grouped and cells[0] != rows[min(index + 1, len(rows) - 1)][0]
        drawn.add_row(*map(_content, cells), end_section=ends)
    title = [Text(printable(table.title), "bold")] if table.title else []  # wider than the table it may be
    caption = [Text(printable(table.caption), "table.caption")] if table.caption else []
    return Group(*title, drawn, *caption)


def _is_crowded(table: Table) -> bool:
    """Whether the numbers alone leave no room for the words of a table, so that all its columns have to be narrow."""
    columns = zip(table.columns, *table.cells(), strict=True)
    widths = [
        max(len(line) for text in (column.head, *(cell.text for cell in cells)) for line in text.split("\n")) + 2
        for column, *cells in columns
        if column.quantity
    ]
    return sum(widths) + _MIN_TEXT_WIDTH * (len(table.columns) - len(widths)) > Console().width


def _content(cell: TableCell) -> RenderableType:
    if cell.style is Style.LAYER:
        return Group(*map(LayerName, printable(cell.text).split("\n")))
    text = Text(printable(cell.text), "bold" if cell.style is Style.STRONG else "")
    if cell.share is None:
        return text
    return Group(text, ProgressBar(total=1.0, completed=cell.share, width=_BAR_WIDTH))


@dataclass(frozen=True, slots=True)
class LayerName:
    """The name of a layer in one line, shortened to the width of its column."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Write the name, shortened if it is wider than the column."""
        yield Text(shorten(self.name, options.max_width, "..." if options.ascii_only else "…"), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Between 8 columns and the whole name."""
        return Measurement(min(8, len(self.name)), len(self.name)).with_maximum(options.max_width)


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
    if cell.link is not None:
        text = tag("a", text, href=cell.link)
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
