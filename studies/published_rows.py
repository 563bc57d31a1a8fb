"""Rows of published measurements from a file: `read_rows`. Their fields are in `data/measurements/README.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.files.json import read_json

Row = dict[str, Any]


def read_rows(path: Path, lists: Sequence[str], needed: Sequence[str]) -> list[Row]:
    """The rows of a file, in the first list that it has of `lists`; paths in them begin at the file's folder.

    Args:
        path: of a JSON file.
        lists: names that the list of rows may have.
        needed: fields that every row must have.

    Raises:
        BadInput: no such file, no such list, or a row without a field.
    """
    content = read_json(path)
    named = [content[name] for name in lists if isinstance(content, dict) and name in content]
    if not named or not isinstance(named[0], list) or not all(isinstance(row, dict) for row in named[0]):
        raise BadInput(f"{path} must have a list of rows named {' or '.join(lists)}; write one")
    for number, row in enumerate(named[0]):
        if missing := [name for name in needed if name not in row]:
            raise BadInput(f"{path}: row {number} must have {', '.join(needed)}, lacks {', '.join(missing)}; add it")
    return [{**row, **_paths(row, path.resolve().parent)} for row in named[0]]


def _paths(row: Row, folder: Path) -> dict[str, str]:
    """The model and the cluster that are files of the folder, or of one beside it."""
    named = {name: folder / row[name] for name in ("model", "cluster") if isinstance(row.get(name), str)}
    return {name: str(path) for name, path in named.items() if path.is_file()}
