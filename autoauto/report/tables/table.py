"""A table as data, `Table`: `terminal`, `html` and `markdown` write any of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from autoauto.report.style import format_value


class Style(StrEnum):
    """How a cell is written."""

    PLAIN = "plain"
    STRONG = "strong"
    """What binds or wins."""
    CODE = "code"
    LAYER = "layer"
    """Names of layers, one a line, that are shortened where the column is narrow."""


class TableCell(NamedTuple):
    """What is written in a row and column.

    Attributes:
        text: lines, separated by line feeds.
        style: how they are written.
        share: of a bar below the text, from 0 to 1; None for no bar.
    """

    text: str
    style: Style = Style.PLAIN
    share: float | None = None


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
        """The same table without the columns with these heads, where there is no room for them."""
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
