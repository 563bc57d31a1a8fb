"""The writer for the terminal: `show` prints tables and lines, `show_command` a command to copy."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from autoauto.report.style import broken_command, printable, shorten
from autoauto.report.tables.table import Style, Table, TableCell

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
        title=Text(printable(table.title), "bold"),
        title_justify="left",
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
    return Group(drawn, Text(printable(table.caption), "table.caption")) if table.caption else drawn


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
