"""A TOML file whose mistakes are told with their line: `TomlFile`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput

MOST_BYTES = 100_000
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """What a file says.

    Attributes:
        path: as it was given.
        text: all of it.
        table: the same, parsed.
    """

    path: str
    text: str
    table: dict[str, Any]

    def bad(self, keys: Sequence[str], message: str, said: str = "") -> BadInput:
        """What is wrong with the value at `keys`, each the name of a table but the last; `said` is in its line."""
        return BadInput(f"{self.path}, line {line_of(self.text, keys, said)}: {message}")


def read_toml(path: Path) -> TomlFile:
    """Read a TOML file.

    Raises:
        BadInput: it cannot be read, is too large, or no TOML; the message tells the line where it is known.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)  # a device may never end
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"a search is written in a file that can be read, {path}: {reason}; check the path") from None
    if len(content) > MOST_BYTES:
        raise BadInput(f"a search is written in at most {MOST_BYTES:,} bytes, {path} has more; check the path")
    try:
        text = content.decode()
        return TomlFile(str(path), text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}, line {line}: a TOML file is UTF-8 text, got byte {content[error.start]:#x}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(_told(str(path), text, error)) from None


def line_of(text: str, keys: Sequence[str], said: str = "") -> int:
    """The line, from 1, that gives `keys` a value; within a value of several lines the first with `said` in it.

    The parser tells no lines, so that it is asked of ever longer beginnings: the first that parses and has the key
    ends with its value.

    >>> line_of("a = 1\\n[b] # c = 2\\nc = [\\n  3,\\n]", ["b", "c"]), line_of("c = [\\n 3,\\n]", ["c"], "3")
    (3, 2)
    """
    lines = text.split("\n")
    start = 0
    for stop in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("\n".join(lines[:stop]) + "\n")
        except ValueError:
            continue
        if _has(table, keys):
            value = lines[start:stop]
            return start + 1 + next((i for i, line in enumerate(value) if _says(line, said or keys[-1])), 0)
        start = stop
    return len(lines)


def _has(table: object, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def _says(line: str, said: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(said)}(?!\w)", line) is not None


def _told(path: str, text: str, error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return f"{path}: its lists or tables are nested too deeply"
    place = _PLACE.search(str(error))
    if place is None:
        return f"{path}: the file must be TOML: {str(error)[:200]}"
    line = place[1] or len(text.rstrip("\n").split("\n"))
    return f"{path}, line {line}: the file must be TOML: {_PLACE.sub('', str(error))[:200]!s}".replace("\n", " ")
