"""Tables of layers as CSV, `read_layer_table`: a row a layer, for people who have only layers.

    name,forward_s,backward_s,parameter_bytes,activation_bytes,output_bytes
    stem,0.004,0.008,37632,12845056,3211264

Of these, name, forward_s and output_bytes are needed. Two more columns may follow. `input_bytes` is what a stage that
starts here receives; by default the output of the layer before, and nothing for the first. With `batch_size` a row is
the layer at that batch size, and the layers come once for each. Separators are commas, semicolons or tabs; with the
latter two a number may have a decimal comma.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

from autoauto.profile.importers.importer import Importer
from autoauto.profile.importers.recorded import (
    MAX_S,
    RecordedLayer,
    RecordedProfile,
    number_in,
    read_text,
)
from autoauto.records.errors import BadInput
from autoauto.records.files.csv import decimal_point, separator_of
from autoauto.records.files.fields import MAX_NUMBER

_NEEDED = ("name", "forward_s", "output_bytes")
_COLUMNS = (
    "name",
    "forward_s",
    "backward_s",
    "parameter_bytes",
    "activation_bytes",
    "output_bytes",
    "input_bytes",
    "batch_size",
)
_SUM = re.compile(r"\b(totale?|sum(me|a)?|somme|gesamt|overall|all|model)\b|[合总總]计|合計|総計", re.IGNORECASE)
_ROUNDED = 0.01
"""How far rounding may move a sum of times."""
_WHAT = "a table of layers"
Line = tuple[int, list[str]]
"""The number of a line, and its cells."""


def read_layer_table(path: Path, details: Path | None = None, batch_size: int | None = None) -> RecordedProfile:
    """The layers of a table, which may have a column of batch sizes; else they are of `batch_size`, by default 1.

    Raises BadInput that names the line.
    """
    if details is not None:
        raise BadInput(f"a CSV table has all of its layers, got --profile-details {details} too; leave it out")
    columns, lines = _rows(path)
    if batch_size is not None and "batch_size" in columns:
        raise BadInput(f"{path} has batch sizes in a column, got {batch_size}={path}; give the file without a number")
    rows: dict[int, dict[int, RecordedLayer]] = {}  # by batch size, the layers by their lines
    for line, row in lines:
        if len(row) != len(columns):
            raise BadInput(f"{path}, line {line}: a row has {len(columns)} cells, got {len(row)}; correct it there")
        cells = dict(zip(columns, row, strict=True))
        size = _batch_size(path, line, cells) if "batch_size" in columns else batch_size or 1
        of_size = rows.setdefault(size, {})
        bytes_before = of_size[max(of_size)].output_bytes if of_size else 0.0
        of_size[line] = _layer(f"{path}, line {line}", cells, bytes_before)
    for of_size in rows.values():
        _refuse_sums(path, of_size)
    return RecordedProfile(path.stem, {size: tuple(of_size.values()) for size, of_size in rows.items()})


def _rows(path: Path) -> tuple[list[str], Iterator[Line]]:
    text = read_text(path, _WHAT)
    separator = separator_of(text, path)
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True)
    lines = _lines(path, reader, decimal_comma=separator != ",")
    line, columns = next(lines, (1, []))
    columns = [name.strip().lower() for name in columns]
    for name in _NEEDED:
        if name not in columns:
            raise BadInput(
                f"{path}, line {line}: {_WHAT} needs the columns {', '.join(_NEEDED)}, {name} is missing; add it"
            )
    for name in columns:
        if name not in _COLUMNS or columns.count(name) > 1:
            raise BadInput(
                f"{path}, line {line}: columns are {', '.join(_COLUMNS)}, once each, got {name[:40]!r}; rename it, or "
                "leave it out"
            )
    return columns, lines


def _lines(path: Path, reader: csv._reader, *, decimal_comma: bool) -> Iterator[Line]:  # type: ignore[name-defined]
    """The lines that are not empty; in numbers, decimal commas become points."""
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if decimal_comma:  # not in the first column, which has names
                cells[1:] = map(decimal_point, cells[1:])
            if any(cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: {_WHAT} is CSV, {error}; correct it there") from error


def _batch_size(path: Path, line: int, cells: Mapping[str, str]) -> int:
    text = cells["batch_size"]
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:10]) <= 10**9 and len(text) <= 10):
        raise BadInput(f"{path}, line {line}: batch_size must be a whole number from 1, got {text[:40]!r}; correct it")
    return int(text)


def _layer(where: str, cells: Mapping[str, str], bytes_before: float) -> RecordedLayer:
    """The layer of a row; `bytes_before` are those that the layer before it writes."""

    def number(name: str, default: float = 0.0) -> float:
        text = cells.get(name, "")
        if not text and name not in _NEEDED:
            return default
        value = number_in(text, f"{where}: {name}", MAX_S if name.endswith("_s") else MAX_NUMBER)
        if name.endswith("_bytes") and value % 1:  # 1.234 may be meant as 1234
            raise BadInput(f"{where}: {name} must be a whole number, got {text[:40]!r}; write it without separators")
        return value

    if not cells["name"]:
        raise BadInput(f"{where}: a layer must have a name; add it")
    inputs = number("input_bytes", bytes_before)
    outputs = number("output_bytes")
    activations = number("activation_bytes")
    return RecordedLayer(
        name=cells["name"],
        forward_s=number("forward_s"),
        backward_s=number("backward_s"),
        parameter_bytes=number("parameter_bytes"),
        activation_bytes=activations,
        temporary_bytes=inputs + max(activations, outputs),
        input_bytes=inputs,
        output_bytes=outputs,
    )


def _refuse_sums(path: Path, rows: Mapping[int, RecordedLayer]) -> None:
    """Refuse a row that adds up others: the total of a spreadsheet, or a module beside those that it consists of."""
    names = {layer.name for layer in rows.values()}
    parts_s: dict[str, list[float]] = {}  # by module, the times of the rows next inside it
    for layer in rows.values():
        module = _module(layer.name)
        while module and module not in names:
            module = _module(module)
        parts_s.setdefault(module, []).append(layer.forward_s)
    before_s: list[float] = []
    for line, layer in rows.items():
        added = {"all its parts": parts_s.get(layer.name, [])}
        if _SUM.search(layer.name) and not _module(layer.name):  # model.layers.0 is none
            added["all rows above it"] = before_s
            added["all other rows"] = [other.forward_s for other in rows.values() if other is not layer]
        for what, times in added.items():
            total_s = sum(times)
            if len(times) > 1 and total_s > 0 and abs(layer.forward_s - total_s) <= _ROUNDED * total_s:
                raise BadInput(
                    f"{path}, line {line}: a row must be a layer, {layer.name[:40]!r} has the time of {what}, "
                    f"{total_s:g} s; leave it out"
                )
        before_s.append(layer.forward_s)


def _module(name: str) -> str:
    """The name of a module up to its last part; "" where it has one part only.

    >>> _module("encoder.layer.0"), _module("encoder/attention"), _module("stem")
    ('encoder.layer', 'encoder', '')
    """
    return name[: max(name.rfind("."), name.rfind("/"), 0)]


IMPORTER = Importer("csv", read_layer_table)
