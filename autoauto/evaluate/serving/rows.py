"""Rows that somebody measured, from a CSV file with a line of column names: `read_rows`, `measured_of`.

`rows_of_study` makes such rows of what a search measured on engines.

Columns in any order, separated by commas, semicolons or tabs; with the latter two a number may have a decimal comma.
Others than these are not read. The other words for options are names, too, as `tp`, `pp`, `isl`, `attention_dp`:

    model               a bundled name, or the folder of a config
    engine              one of `ENGINES`
    system              the GPUs, for example h100_sxm
    precision           the format of matrices, for example fp8; empty is that of the checkpoint
    tensor_parallel     GPUs of a group
    n_ipu               stages of a pipeline; may be missing, then 1
    replicas            pipelines; may be missing, then 1
    batch_size          sequences of a micro-batch: requests in flight / (stages x replicas); or
    n_requests          that all wait at the beginning; tokens/s are the most over batch sizes
    input_tokens        of a prompt
    output_tokens       of an answer
    kv_cache_precision  may be missing; empty is that of the checkpoint
    expert_parallel     may be missing, then 1
    attention_data_parallel     may be missing, then 1
    tpot_s              seconds between two tokens of an answer, in the mean
    ttft_s              seconds from a request to its first token
    tokens_per_s        tokens of answers of all replicas

and of the last three one or more in every row. The columns of `systems/silicon_sample.csv` [aiconfigurator] are read
too, where batch_size are all requests in flight of a rank of the attention, and a cache is fp8 where weights are fp8 or
nvfp4.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autoauto.records.errors import BadInput
from autoauto.records.files.csv import decimal_point, named_twice, separator_of

if TYPE_CHECKING:
    from autoauto.space.engine_measurements import EngineMeasurements

_OF_PACKAGE = "model_path"
"""A column that tells the form of the package's rows."""
_NAMES_OF_PACKAGE = {
    "model": "model_path",
    "engine": "backend",
    "precision": "gemm_quant_mode",
    "tensor_parallel": "tp_size",
    "n_ipu": "pp_size",
    "input_tokens": "isl",
    "output_tokens": "osl",
}
_OTHER_NAMES = {
    "tp": "tensor_parallel",
    "pp": "n_ipu",
    "pipeline_parallel": "n_ipu",
    "ep": "expert_parallel",
    "attention_dp": "attention_data_parallel",
    "isl": "input_tokens",
    "osl": "output_tokens",
}
"""Columns that are named as the other words for options are."""
_MISNAMED = {
    "n_replicas": "replicas",
    "expert_parallel_size": "expert_parallel",
    "attention_data_parallel_size": "attention_data_parallel",
    "pipeline_parallel_size": "n_ipu",
    "kv_cache_dtype": "kv_cache_precision",
    **{f"tpot{unit}": "tpot_s" for unit in ("", "_ms", "_us", "_seconds")},
    **{f"ttft{unit}": "ttft_s" for unit in ("", "_ms", "_us", "_seconds")},
}
"""Columns of other tools that mean one that may be missing, in another unit or with other words."""
_NEEDED = ("model", "engine", "system", "precision", "tensor_parallel", "input_tokens", "output_tokens")
RESULTS = ("tpot_s", "ttft_s", "tokens_per_s")
RESULTS_OF_PACKAGE = {"tpot_s": "silicon_tpot_ms", "ttft_s": "silicon_ttft_ms"}
"""How the package's rows name some of them; times are in milliseconds there."""
PREFILL, DECODE = "prefill_", "decode_"
"""How columns of rows of two pools begin."""
_MAX_COUNT = 2**31
_OF_KNOBS = (
    *("engine", "precision", "kv_cache_precision", "tensor_parallel", "expert_parallel"),
    *("attention_data_parallel", "n_ipu", "replicas", "input_tokens", "output_tokens"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file, as texts by column; it ends in `line`, counted from 1."""

    path: Path
    line: int
    cells: Mapping[str, str]

    @property
    def is_of_package(self) -> bool:
        """Whether it has the columns of the package's own rows."""
        return _OF_PACKAGE in self.cells

    @property
    def has_pools(self) -> bool:
        """Whether servers of their own computed prompts."""
        return self.is_of_package and self.text("mode") != "agg"

    def of_pool(self, pool: str) -> Row:
        """The row of one of two pools, `PREFILL` or `DECODE`, as if its replicas computed whole requests."""
        own = {name.removeprefix(pool): cell for name, cell in self.cells.items() if name.startswith(pool)}
        own["replicas"] = own.get("num_workers", "")
        return Row(self.path, self.line, {**self.cells, **own, "mode": "agg"})

    def column(self, name: str) -> str:
        """How the file names what we name so."""
        return _NAMES_OF_PACKAGE.get(name, name) if self.is_of_package else name

    def text(self, name: str) -> str:
        """A cell, by our name; empty where the column is missing."""
        return self.cells.get(self.column(name), "")

    def error(self, name: str, problem: str) -> BadInput:
        """The error of a cell: its file, line and column, and the problem."""
        return BadInput(f"{self.path}, line {self.line}, column {self.column(name)}: {problem}")

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Says where a cell is that cannot be read."""
        try:
            yield
        except BadInput as error:
            raise self.error(name, str(error)) from None

    def number(self, name: str) -> float | None:
        """A number above 0; None where the cell is empty; raises BadInput if it is another text."""
        text = self.text(name)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not (number > 0 and isfinite(number)):
            raise self.error(name, f"must be a number above 0, got {text!r:.40}")
        return number

    def count(self, name: str, missing: int | None = None) -> int:
        """A whole number from 1, or `missing` where the cell is empty; raises BadInput for another text.

        An empty cell is refused, too, if `missing` is None.
        """
        text = self.text(name)
        if not text and missing is not None:
            return missing
        number = self.number(name)
        if number is None or number % 1 or number > _MAX_COUNT:
            raise self.error(name, f"must be a whole number from 1, got {text!r:.40}")
        return int(number)


class Measured(NamedTuple):
    """Measured times and throughput of a configuration; None where one was not measured."""

    tpot_s: float | None
    ttft_s: float | None
    tokens_per_s: float | None


def rows_of_study(measured: EngineMeasurements, model: str, system: str) -> list[dict[str, object]]:
    """What a study measured on engines, as cells of such a file, one row a configuration that was measured."""
    rows: list[dict[str, object]] = []
    for number, row in enumerate(measured.rows):
        if not row.is_measured:
            continue
        knobs = row.knobs.values
        cells: dict[str, object] = {name: knobs[name] or "" for name in _OF_KNOBS if name in knobs}
        in_flight = row.n_clients / (row.knobs.n_ipu * row.knobs.replicas)
        cells |= {"model": model, "system": system, "batch_size": max(round(in_flight), 1)}
        for name, value in (("tpot_s", row.tpot_s), ("ttft_s", row.ttft_s), ("tokens_per_s", row.tokens_per_s)):
            cells[name] = f"{value:.6g}" if value > 0 else ""
        rows.append({**cells, "source": f"row {number} of the measurements, {measured.where}".removesuffix(", ")})
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows of a file; raises BadInput if it cannot be read, is no table, or lacks columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
        separator = separator_of(text, path)
        reader = csv.DictReader(StringIO(text, newline=""), restval="", delimiter=separator)
        columns = _named(reader.fieldnames or ())
        reader.fieldnames = columns
        rows: list[Row] = []
        for cells in reader:
            if None in cells:
                raise BadInput(f"{path}, line {reader.line_num}: a row must have a cell for every column, got more")
            stripped = {str(name): str(cell).strip() for name, cell in cells.items()}
            if separator != ",":
                stripped = {name: decimal_point(cell) for name, cell in stripped.items()}
            rows.append(Row(path, reader.line_num, stripped))
    except OSError as error:
        raise BadInput(f"measured rows must be in a file that can be read, got {path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"measured rows must be a CSV file in UTF-8, {path} is none: {error}") from None
    _check_columns(path, columns)
    if not rows:
        raise BadInput(f"{path} must have a row below its columns, got none")
    return rows


def _named(columns: Sequence[str]) -> list[str]:
    """The columns by our names; those of the package keep theirs."""
    named = [column.strip() for column in columns]
    if _OF_PACKAGE in named:
        return named
    return [_OTHER_NAMES.get(column, column) for column in named]


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    given = set(columns)
    twice = named_twice(columns)
    if twice:
        raise BadInput(
            f"{path}, line 1: columns must have names of their own, got {min(twice)!r:.40} twice; leave one out"
        )
    needed, known = list(_NEEDED), list(RESULTS)
    if _OF_PACKAGE in given:
        needed = [_NAMES_OF_PACKAGE.get(name, name) for name in _NEEDED]
        known = [RESULTS_OF_PACKAGE.get(name, name) for name in RESULTS]
    for column in columns:
        meant = _MISNAMED.get(column)
        if _OF_PACKAGE not in given and meant is not None and meant not in given:
            raise BadInput(
                f"{path}, line 1: columns must have the names and units of docs/gpu.md, got {column!r:.40}, which is "
                f"not read; did you mean {meant!r}?"
            )
    missing = [name for name in needed if name not in given]
    if not given & {"batch_size", "n_requests"}:
        missing.append("batch_size")
    if missing:
        raise BadInput(f"{path}, line 1: measured rows must have the columns {', '.join(missing)}; add them")
    if not given & set(known):
        raise BadInput(f"{path}, line 1: measured rows must have one of the columns {', '.join(known)}; add one")


def measured_of(row: Row) -> Measured:
    """The measurements of a row; raises BadInput if there is none, or a number that cannot be."""
    if row.is_of_package:
        tpot_ms, ttft_ms = row.number("silicon_tpot_ms"), row.number("silicon_ttft_ms")
        measured = Measured(tpot_ms and tpot_ms / 1e3, ttft_ms and ttft_ms / 1e3, None)
    else:
        measured = Measured(*map(row.number, RESULTS))
    if measured == (None, None, None):
        raise row.error(RESULTS[0], f"a row must have one of {', '.join(RESULTS)}, got none")
    return measured
