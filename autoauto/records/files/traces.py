"""Files of requests that were recorded: `read_trace`, of four formats, also compressed with gzip.

    Azure      TIMESTAMP,ContextTokens,GeneratedTokens        a date and time
    BurstGPT   Timestamp,Model,Request tokens,Response tokens,... seconds
    plain      time_s,input_tokens,output_tokens               seconds
    Mooncake   {"timestamp": ms, "input_length", "output_length", "hash_ids"} a line

Cells of the first three are separated by commas, semicolons or tabs; with the latter two a number may have a decimal
comma. The formats are those of [azure-traces], [burstgpt] and [mooncake].
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Hashable, Iterator
from datetime import UTC, datetime
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autoauto.records.costs.traffic.load import BLOCK_TOKENS, MAX_TOKENS, Trace, cached_tokens
from autoauto.records.costs.traffic.requests import Requests
from autoauto.records.errors import BadInput
from autoauto.records.files.csv import decimal_point, named_twice, separator_of
from autoauto.records.files.packed import unpacked

MAX_REQUESTS = 200_000
MAX_BYTES = 2**28
_COLUMNS = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ("Timestamp", "Request tokens", "Response tokens"),
    ("time_s", "input_tokens", "output_tokens"),
)


class _Arrival(NamedTuple):
    time_s: float
    n_input: int
    n_output: int
    blocks: tuple[Hashable, ...] = ()


def read_trace(path: Path) -> Trace:
    """The requests of a file; rows whose answer has no token failed and are left out.

    Raises BadInput if it cannot be read, is of no known format, or has fewer than two requests at different times.
    """
    content = _content(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"a trace must be a text in UTF-8, {path} is none") from None
    read_rows = _json_rows if text.lstrip().startswith("{") else _csv_rows
    try:
        rows = list(islice(read_rows(path, text), MAX_REQUESTS + 1))
    except csv.Error as error:
        raise BadInput(f"a trace must be a CSV file, {path} is none: {error}") from None
    if len(rows) > MAX_REQUESTS:
        raise BadInput(f"a trace has at most {MAX_REQUESTS:,} requests, {path} has more; try a part of it")
    arrivals = sorted((row for row in rows if row.n_output > 0), key=lambda row: row.time_s)
    if len(arrivals) < 2 or arrivals[-1].time_s <= arrivals[0].time_s:
        raise BadInput(f"a trace must have two requests or more at different times, got {len(arrivals)} in {path}")
    start = arrivals[0].time_s
    blocks = tuple(arrival.blocks for arrival in arrivals)
    n_input = np.array([arrival.n_input for arrival in arrivals])
    all_blocks_tokens = BLOCK_TOKENS * sum(map(len, blocks))  # room for all of them: nothing is lost from the cache
    requests = Requests(
        arrival_s=np.array([arrival.time_s - start for arrival in arrivals]),
        input_tokens=n_input,
        output_tokens=np.array([arrival.n_output for arrival in arrivals]),
        cached_tokens=cached_tokens(blocks, n_input, [all_blocks_tokens]),
    )
    return Trace(
        digest=hashlib.sha256(content).hexdigest()[:16],
        requests=requests,
        blocks=blocks if all_blocks_tokens else (),
        n_left_out=len(rows) - len(arrivals),
    )


def _content(path: Path) -> bytes:
    """The bytes of the file, unpacked: a compressed copy is the same trace."""
    try:
        content = unpacked(path, MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"a trace must be a file that can be read, got {path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise BadInput(f"a trace has at most {MAX_BYTES // 2**20} MiB, {path} has more; try a part of it")
    return content


def _csv_rows(path: Path, text: str) -> Iterator[_Arrival]:
    separator = separator_of(text, path)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator, skipinitialspace=separator != "\t")
    named = reader.fieldnames or ()
    names = set(named)
    columns = next((each for each in _COLUMNS if names.issuperset(each)), None)
    if columns is None:
        forms = "; or ".join(", ".join(each) for each in _COLUMNS)
        raise BadInput(f"{path}, line 1: a trace must have the columns {forms}; or be lines of JSON as Mooncake's")
    if twice := [name for name in named_twice(named) if name in columns]:
        raise BadInput(f"{path}, line 1: a trace must have a column of a name, got {twice[0]!r} twice; leave one out")
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        time, n_input, n_output = (str(row[name] or "").strip() for name in columns)
        if separator != ",":
            time, n_input, n_output = map(decimal_point, (time, n_input, n_output))
        yield _Arrival(
            _seconds(where, columns[0], time),
            _count(where, columns[1], n_input, 1),
            _count(where, columns[2], n_output, 0),
        )


def _json_rows(path: Path, text: str) -> Iterator[_Arrival]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not {"timestamp", "input_length", "output_length"} <= row.keys():
            raise BadInput(f"{where}: a line must have timestamp, input_length and output_length, as Mooncake's")
        blocks = row.get("hash_ids") or ()
        if not isinstance(blocks, list | tuple) or not all(isinstance(block, int | str) for block in blocks):
            raise BadInput(f"{where}: hash_ids must be a list of numbers, got {blocks!r:.40}")
        n_input = _count(where, "input_length", str(row["input_length"]), 1)
        if (len(blocks) - 1) * BLOCK_TOKENS >= n_input:
            raise BadInput(
                f"{where}: hash_ids must be one for every {BLOCK_TOKENS} tokens of the prompt, as Mooncake's, got "
                f"{len(blocks)} for {n_input:,}; leave them out, or join those of smaller blocks"
            )
        yield _Arrival(
            _seconds(where, "timestamp", str(row["timestamp"])) / 1e3,
            n_input,
            _count(where, "output_length", str(row["output_length"]), 0),
            tuple(blocks),
        )


def _seconds(where: str, name: str, text: str) -> float:
    """A number, or a date and time."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise BadInput(f"{where}, {name}: must be seconds or a date and time, got {text!r:.40}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp()
    if not isfinite(seconds):
        raise BadInput(f"{where}, {name}: must be a finite time, got {text!r:.40}")
    return seconds


def _count(where: str, name: str, text: str, minimum: int) -> int:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not minimum <= number <= MAX_TOKENS or number % 1:
        raise BadInput(f"{where}, {name}: must be a whole number from {minimum} to {MAX_TOKENS:,}, got {text!r:.40}")
    return int(number)
