"""Messages without the paths of the machine that wrote them: `without_paths`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir

from autoauto.records.files.uploads import uploaded_path
from autoauto.records.installation import cache_dir, data_dir


def without_paths(text: str, uploads: Mapping[str, str]) -> str:
    """A message as a client reads it: files of another machine are no concern of his, but for what he has uploaded.

    Args:
        uploads: digests of uploaded files by what they are, as in `Submission.uploads`.

    >>> without_paths(f"no space in {gettempdir()}/autoauto-x/stage0.onnx; the node /layer1/Conv", {})
    'no space in stage0.onnx; the node /layer1/Conv'
    """
    for what, digest in uploads.items():
        text = text.replace(str(uploaded_path(what, digest)), f"sha256:{digest}")
    own: list[str | Path] = [
        cache_dir(),
        data_dir(),
        gettempdir(),
        os.path.expanduser("~"),
        os.getcwd(),
        sys.prefix,
        *sys.path,
    ]
    folders = {Path(folder) for folder in own}
    known = [str(folder) for folder in folders if folder.is_absolute() and folder != folder.parent]
    known.sort(key=len, reverse=True)  # a folder in another one first, since the first that matches is taken
    pattern = rf"({'|'.join(map(re.escape, known))})(/[^\s'\",;:()]*)?(?![\w-])"
    return re.sub(pattern, lambda match: Path(match[0]).name, text)
