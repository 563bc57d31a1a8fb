"""Files that were uploaded to a server of searches, in the cache of this machine: `uploaded_path`, `uploaded_file`.

A model, a cluster or another file of a search that is named sha256: and the digest of its content is such a file, on
every machine that searches or exports it. Each lies in a folder of its own, so that none is beside another. People see
the name that the file had where it was uploaded: `named_uploads`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autoauto.records.errors import BadInput
from autoauto.records.installation import cache_dir

UPLOADED = re.compile(r"sha256:([0-9a-f]{64})")
_SUFFIXES = {"model": ".onnx", "cluster": ".toml", "inputs": ".npz", "measured": ".csv"}
_names: dict[str, str] = {}
"""Names of files by their digests, as far as this process was told."""


def uploads_dir() -> Path:
    """The folder in which this machine keeps uploaded files, each in a folder with the name of its digest."""
    return cache_dir() / "uploads"


def uploaded_path(what: str, digest: str) -> Path:
    """The path of an uploaded "model", "cluster" or other file in the cache of this machine; it may not exist."""
    return uploads_dir() / digest / f"{what}{_SUFFIXES.get(what, '')}"


def is_intact(path: Path, digest: str) -> bool:
    """True if the file is there and has the content of the digest. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


def uploaded_file(what: str, name: str) -> str:
    """The path of a file that is named by its digest; another name as it is.

    Raises BadInput if this machine does not have the file, or it is damaged.
    """
    match = UPLOADED.fullmatch(name)
    if match is None:
        return name
    path = uploaded_path(what, match[1])
    if not is_intact(path, match[1]):
        raise BadInput(
            f"the uploaded {what} must be on this machine as it was uploaded, {name} is not; use --server, or give the "
            "path of the file"
        )
    return str(path)


def upload_title(name: str | None) -> str | None:
    """The name of an uploaded model in texts: that of its file without the ending; None for a model by name or path."""
    match = UPLOADED.fullmatch(name or "")
    if match is None:
        return None
    return Path(_names.get(match[1], f"upload-{match[1][:8]}")).stem


@contextmanager
def uploads_called(names: Mapping[str, str]) -> Iterator[None]:
    """A context in which texts name uploaded files by `names`, from digest to name."""
    _names.update(names)
    try:
        yield
    finally:
        _names.clear()


def named_uploads(text: str) -> str:
    """Replace the digests of uploaded files in a text by the names of `uploads_called`; unknown digests stay."""
    return UPLOADED.sub(lambda match: _names.get(match[1], match[0]), text)
