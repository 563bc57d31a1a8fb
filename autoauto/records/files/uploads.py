"""Files that were uploaded to a server of searches, in the cache of this machine: `uploaded_path`, `uploaded_file`.

A model or cluster that is named sha256: and the digest of its content is such a file, on every machine that searches or
exports it; where it lies there is nobody's concern.
"""

from __future__ import annotations

import re
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.installation import cache_dir

UPLOADED = re.compile(r"sha256:([0-9a-f]{64})")
_SUFFIXES = {"model": ".onnx", "cluster": ".toml"}


def uploaded_path(what: str, digest: str) -> Path:
    """The path of an uploaded "model" or "cluster" in the cache of this machine; the file may not exist."""
    return cache_dir() / "uploads" / f"{what}-{digest[:16]}{_SUFFIXES[what]}"


def uploaded_file(what: str, name: str | None) -> str | None:
    """The path of a model or cluster that is named by its digest; another name as it is.

    Raises:
        BadInput: this machine does not have the file.
    """
    match = UPLOADED.fullmatch(name or "")
    if match is None:
        return name
    path = uploaded_path(what, match[1])
    if not path.is_file():
        raise BadInput(
            f"the uploaded {what} must be on this machine, {name} is not; use --server, or give the path of the file"
        )
    return str(path)
