"""Files that gzip may have packed, as PyTorch's `tensorboard_trace_handler(use_gzip=True)` writes them."""

from __future__ import annotations

import gzip
import zlib
from errno import EIO
from pathlib import Path

_MAGIC = b"\x1f\x8b"


def unpacked(path: Path, most: int = -1) -> bytes:
    """The bytes of a file, at most so many, unpacked where they are packed; raises OSError, also for a damaged one."""
    with path.open("rb") as file:  # once: a pipe has its bytes once
        if file.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
            return file.read(most)
        try:
            with gzip.GzipFile(fileobj=file) as packed:
                return packed.read(most)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise OSError(EIO, f"damaged, as gzip says: {error}") from error
