"""How spreadsheets write tables: `separator_of`, `decimal_point` and `named_twice`."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)")


def separator_of(text: str) -> str:
    """What separates the cells of a table: commas, semicolons or tabs, whichever its first line has most of.

    >>> separator_of("a;b\\n0,5;1"), separator_of("\\na,b")
    (';', ',')
    """
    header = text.lstrip("\r\n ").partition("\n")[0]
    return max(",;\t", key=header.count)


def decimal_point(cell: str) -> str:
    """A cell with a decimal point instead of a comma, if it is a number; only for cells that no commas separate.

    >>> decimal_point("0,5"), decimal_point("a,5"), decimal_point("1,234,567")
    ('0.5', 'a,5', '1,234,567')
    """
    return _DECIMAL_COMMA.sub(r"\1.\2", cell) if _DECIMAL_COMMA.fullmatch(cell) else cell


def named_twice(columns: Sequence[str]) -> list[str]:
    """The names that more than one column has, each once; columns without a name do not count.

    >>> named_twice(["a", "b", "", "a", ""])
    ['a']
    """
    return [name for name in dict.fromkeys(columns) if name and columns.count(name) > 1]
