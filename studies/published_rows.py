"""Rows of published measurements from a file: `read_rows`. Their fields are in `data/measurements/README.md`.

What a row of training was run with and does not say in its settings: `framework_of`, `as_run`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.files.json import read_json
from autoauto.targets.ipu.step import Framework

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


def framework_of(row: Row) -> Framework:
    """What ran a row, by a word of its name or else of its source; PyTorch where neither says one.

    Paddle runs PopART's programs on IPUs [graphcore-mlperf].
    """
    for text in (row["name"], row.get("source", "")):
        for word, framework in _WORDS.items():
            if word in text.lower():
                return framework
    return Framework.POPTORCH


def as_run(row: Row) -> Row:
    """A row with what its `differs` says is modelled otherwise, though it need not be.

    LAMB that was left out had its states in streaming memory where the row says so, else on the chip, sharded but with
    TensorFlow 2 (`replicated_tensor_sharding` and `enable_rts` of [graphcore-examples]). Images in 16 bits instead of 8
    had 8.
    """
    left_out, settings = row.get("differs", ""), row["settings"]
    row = {"byte_images": "16 bits instead of 8" in left_out, **row}
    if "att_ffn" in row:
        row["head_on_first"] = True
    if "LAMB" not in left_out or settings.get("optimizer", "sgd") != "sgd":
        return row
    location = {"shard_optimizer": True, "optimizer_state": "on-chip"}
    if "streaming memory" in left_out:
        is_sharded = not _TENSORFLOW_2.search(row["name"])
        location = {"optimizer_state": "streaming-sharded" if is_sharded else "streaming"}
    return {**row, "settings": {**settings, "optimizer": "lamb", **location}}


_TENSORFLOW_2 = re.compile(r"\bTF2|TensorFlow ?2", re.IGNORECASE)
_WORDS = {
    "paddle": Framework.POPART,
    "popart": Framework.POPART,
    "pytorch": Framework.POPTORCH,
    "tensorflow": Framework.TENSORFLOW,
    "tf1": Framework.TENSORFLOW,
    "tf2": Framework.TENSORFLOW,
}
