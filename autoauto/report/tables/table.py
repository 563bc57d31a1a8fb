"""A table as data, `Table`, written to a terminal (`show`), in HTML and in Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import compress
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from autoauto.report.style import broken_command, format_value, printable, shorten, tag, words


class Style(StrEnum):
    """The style of a cell."""

    PLAIN = "plain"
    STRONG = "strong"
    """Cells that name what limits a plan, or the winner."""
    CODE = "code"
    LAYER = "layer"
    """Names of layers, one a line, that are shortened where the column is narrow."""


class TableCell(NamedTuple):
    """A cell: its text and style, a bar, a link.

    Attributes:
        text: lines, separated by line feeds.
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
        """True if any column has a head."""
        return any(column.head for column in self.columns)

    def cells(self) -> Iterator[list[TableCell]]:
        """The cells of every row."""
        for row in self.rows:
            yield [_cell(column, value) for column, value in zip(self.columns, row, strict=True)]

    def without(self, *heads: str) -> Table:
        """This table without the columns with these heads, where there is no room for them."""
        stays = [column.words not in heads for column in self.columns]
        columns = tuple(compress(self.columns, stays))
        return replace(self, columns=columns, rows=tuple(tuple(compress(row, stays)) for row in self.rows))


def _cell(column: Column, value: Value) -> TableCell:
    """A value as it is written.

    >>> _cell(Column("latency", "latency_s"), 0.0123).text, _cell(Column("latency", "latency_s"), None).text
    ('12.300 ms', '-')
    """
    match value:
        case TableCell():
            return value
        case None:
            return TableCell("-")
        case str():
            return TableCell(value)
        case _:
            return TableCell(format_value(column.quantity, value))


_BAR_WIDTH = 16
_MIN_TEXT_WIDTH = 16


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command ends where the reader of a pipe has gone


def show(*parts: Table | str | Text) -> None:
    """Print tables and lines of text below each other; an empty line is "". Lines have no blanks at their ends."""
    console = _Console()
    with console.capture() as capture:
        for part in parts:
            match part:
                case str():
                    console.print(printable(part), markup=False, highlight=False)
                case Table():
                    console.print(renderable(part))
                case _:
                    console.print(part)
    # Rich fills lines with blanks to the width of a table.
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
        following = rows[min(index + 1, len(rows) - 1)]
        ends_group = table.grouped and cells[0] != following[0]
        drawn.add_row(*map(_content, cells), end_section=ends_group)
    # Title and caption stand beside the table of rich, not in it, because they may be wider than its columns.
    parts: list[RenderableType] = [drawn]
    if table.title:
        parts.insert(0, Text(printable(table.title), "bold"))
    if table.caption:
        parts.append(Text(printable(table.caption), "table.caption"))
    return Group(*parts)


def _is_crowded(table: Table) -> bool:
    """True if columns of numbers leave no room for those of words, so that all of them have to be narrow."""
    width = 0
    rows = list(table.cells())
    for index, column in enumerate(table.columns):
        if column.quantity:
            lines = column.head.split("\n")
            for cells in rows:
                lines += cells[index].text.split("\n")
            width += max(map(len, lines)) + 2
        else:
            width += _MIN_TEXT_WIDTH
    return width > Console().width


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
    parts = []
    remarks = "; ".join(filter(None, [table.title, *table.caption.splitlines()]))
    if remarks:
        parts.append(tag("caption", words(remarks)))
    if table.has_heads:
        heads = []
        for column, class_ in zip(table.columns, classes, strict=True):
            text = words(column.words).replace("memory_", "memory_<wbr/>")
            heads.append(tag("th", text, scope="col", class_=class_))
        parts.append(tag("thead", tag("tr", *heads)))
    lines = []
    for cells in table.cells():
        row = []
        for column, cell, class_ in zip(table.columns, cells, classes, strict=True):
            row.append(tag("td", _html_content(cell), class_=class_, data_head=column.words))
        lines.append(tag("tr", *row))
    parts.append(tag("tbody", "\n".join(lines)))
    return tag("div", tag("table", *parts), class_="scroll")


def _html_content(cell: TableCell) -> str:
    text = "<br/>".join(map(words, cell.text.splitlines()))
    if cell.style in _TAGS:
        text = tag(_TAGS[cell.style], text)
    if cell.link is not None:
        text = tag("a", text, href=cell.link)
    return text if cell.share is None else text + share_bar(cell.share)


def share_bar(share: float) -> str:
    """A bar that is filled to a share of its width, at most to all of it."""
    return tag("div", tag("i", style=f"width:{100 * min(share, 1):.1f}%"), class_="share")


def markdown_table(table: Table) -> str:
    """A table below its title, and its caption; columns of text are flush left, columns of numbers flush right."""
    lines = [
        _markdown_line(column.words or " " for column in table.columns),
        _markdown_line("---:" if column.quantity else "---" for column in table.columns),
    ]
    lines += [_markdown_line(map(_markdown_content, cells)) for cells in table.cells()]
    parts = [f"### {table.title}", "\n".join(lines)]
    if table.caption:
        parts.append(table.caption.replace("\n", "  \n"))
    return "\n\n".join(parts)


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _markdown_content(cell: TableCell) -> str:
    text = " ".join(cell.text.split())
    if cell.style is Style.STRONG:
        return f"**{text}**"
    if cell.style is Style.CODE and text:
        return f"`{text}`"
    return text
