"""Values from TOML files: `read_toml`. An error names the line."""

from __future__ import annotations

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from autoauto.records.errors import BadInput
from autoauto.records.files.fields import MisfitError
from autoauto.records.files.json import Value, checked_schema, converted

MAX_TOML_BYTES = 100_000
MAX_DEPTH = 20
"""Of tables and lists in each other; the deepest that autoauto reads have 3."""
_TOO_DEEP = f"lists and tables must lie in each other at most {MAX_DEPTH} deep, got more; write fewer dots or brackets"
MAX_DIGITS = 1_000
"""Of a whole number: all that are read are within 2**63, longer ones are refused there with their digits."""
_TOO_LONG = f"a whole number must have at most {MAX_DIGITS:,} digits, got more; correct it there"
_LONG_NUMBER = re.compile(rf"[+-]?(0x|0o|0b)?[0-9a-fA-F_]{{{MAX_DIGITS},}}")
_POSITION = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class ParsedTable(ABC):
    """The values of a file, or of what stands for one."""

    table: dict[str, Any]

    def read(self, kind: type[Value], schema: int | None = None) -> Value:
        """The content as a value.

        `schema` is the number that the file has if it has one; None where it has none. Raises BadInput if it has
        another schema, or a field that is missing or wrong; the message names it, and its line.
        """
        try:
            content = self.table if schema is None else checked_schema(self.table, schema, may_lack_it=True)
            return converted(kind, content)
        except MisfitError as misfit:
            raise self.bad(misfit.location, misfit.message) from misfit.__cause__

    @abstractmethod
    def bad(self, keys: Sequence[str | int], message: str, item: str = "") -> BadInput:
        """An error about a value, or about an `item` of it.

        Args:
            keys: the names of tables, then the key of the value.
            item: a text in the line of the mistake, where the value has several lines.
        """


@dataclass(frozen=True, slots=True)
class TomlFile(ParsedTable):
    """A file with its path as it was given, its whole text, and its values."""

    path: str
    text: str

    @override
    def bad(self, keys: Sequence[str | int], message: str, item: str = "") -> BadInput:
        return BadInput(f"{self.path}, line {line_of(self.text, keys, item)}: {message}")


def read_toml(path: Path) -> TomlFile:
    """Read a TOML file.

    Raises BadInput if it cannot be read, is too large, or no TOML; then the message names the line if it is known.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TOML_BYTES + 1)  # a device may have no end
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"a TOML file must be readable, {path}: {reason}; check the path") from None
    if len(content) > MAX_TOML_BYTES:
        raise BadInput(f"a TOML file has at most {MAX_TOML_BYTES:,} bytes, {path} has more; check the path")
    try:
        text = content.decode("utf-8-sig")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}, line {line}: a TOML file is UTF-8 text, got byte {content[error.start]:#x}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(_syntax_message(str(path), text, error)) from None
    if depth_of(table) > MAX_DEPTH:
        raise BadInput(f"{path}: {_TOO_DEEP}")
    if _has_long_number(table):
        raise BadInput(_long_number_message(str(path), text))
    return TomlFile(table, str(path), text)


def depth_of(document: object) -> int:
    """The depth of nested objects and lists.

    >>> depth_of(1), depth_of({"a": [[], 2]})
    (0, 3)
    """
    depth, level = 0, [document]
    while nested := [value for value in level if isinstance(value, dict | list)]:
        depth += 1
        level = []
        for value in nested:
            level += value.values() if isinstance(value, dict) else value
    return depth


def _has_long_number(value: object) -> bool:
    """True if a value or one in it is a whole number that Python might refuse to write in a message."""
    if isinstance(value, dict):
        return any(map(_has_long_number, value.values()))
    if isinstance(value, list):
        return any(map(_has_long_number, value))
    return isinstance(value, int) and abs(value) >= 10**MAX_DIGITS


def _long_number_message(path: str, text: str) -> str:
    number = _LONG_NUMBER.search(text)
    if number is None:
        return f"{path}: {_TOO_LONG}"
    line = text.count("\n", 0, number.start()) + 1
    return f"{path}, line {line}: {_TOO_LONG}"


def line_of(text: str, keys: Sequence[str | int], item: str = "") -> int:
    """The line, from 1, of the value at `keys`; within a value of several lines the first that contains `item`.

    The parser of TOML does not report lines. So it parses longer and longer beginnings of the text: the first one that
    is valid TOML and has the key ends with its value.

    >>> line_of("a = 1\\n[b] # c = 2\\nc = [\\n  3,\\n]", ["b", "c"]), line_of("c = [\\n 3,\\n]", ["c"], "3")
    (3, 2)
    """
    lines = text.split("\n")
    word = item or next((key for key in reversed(keys) if isinstance(key, str)), "")
    start = 0
    for stop in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:stop]) + "\n")
        except ValueError:
            continue
        if _has(table, keys):
            whole_word = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
            return start + 1 + next((i for i, line in enumerate(lines[start:stop]) if whole_word.search(line)), 0)
        start = stop
    return len(lines)


def _has(table: object, keys: Sequence[str | int]) -> bool:
    for key in keys:
        if isinstance(key, int):
            if not isinstance(table, list) or key >= len(table):
                return False
            table = table[key]
        elif not isinstance(table, dict) or key not in table:
            return False
        else:
            table = table[key]
    return True


def _syntax_message(path: str, text: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return f"{path}: {_TOO_DEEP}"
    if not isinstance(error, tomllib.TOMLDecodeError):  # the parser leaves this error of a whole number to Python
        return _long_number_message(path, text)
    position = _POSITION.search(str(error))
    if position is None:
        return f"{path}: the file must be TOML: {str(error)[:200]}"
    line = position[1] or len(text.rstrip("\n").split("\n"))
    return f"{path}, line {line}: the file must be TOML: {_POSITION.sub('', str(error))[:200]}".replace("\n", " ")
