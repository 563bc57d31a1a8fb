"""How spreadsheets write tables: `separator_of`, `decimal_point` and `named_twice`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from autoauto.records.errors import BadInput

_DECIMAL_COMMA = re.compile(r"([+-]?\d*),(\d+(?:[eE][+-]?\d+)?)")
_HAS_DECIMAL_COMMA = re.compile(r"[;\t] *[+-]?\d*,\d+(?:[eE][+-]?\d+)? *(?=[;\t\r\n]|$)")
_HAS_THOUSANDS = re.compile(r"[;\t] *([+-]?\d{1,3}(?:\.\d{3})+) *(?=[;\t\r\n]|$)")


def separator_of(text: str, where: Path) -> str:
    """The separator of the cells of a table: the one of comma, semicolon and tab that its first line has most of.

    Raises:
        BadInput: some numbers have a decimal comma, and others a point, which then separates thousands.

    >>> separator_of("a;b\\n0,5;1", Path("a")), separator_of("\\na,b", Path("a"))
    (';', ',')
    """
    header = text.lstrip("\r\n ").partition("\n")[0]
    separator = max(",;\t", key=header.count)
    thousands = _HAS_THOUSANDS.search(text)
    if separator != "," and thousands is not None and _HAS_DECIMAL_COMMA.search(text):
        line = text.count("\n", 0, thousands.start()) + 1
        raise BadInput(
            f"{where}, line {line}: a table with decimal commas must have no points in numbers, got "
            f"{thousands[1][:40]}; write it without separators of thousands"
        )
    return separator


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
