"""The installed package: its `VERSION`, its `DEFAULT_MODEL`, `data_dir` and `cache_dir`."""

from __future__ import annotations

import os
from pathlib import Path

VERSION = "0.1.0"
"""The version in pyproject.toml; every study stores it."""
DEFAULT_MODEL = "resnet50"
"""The built-in model that is used where none is named."""
_PACKAGE = Path(__file__).parents[1]


def data_dir() -> Path:
    """The folder `data/`: inside the package when it was installed, beside it in a checkout."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent / "data"


def cache_dir() -> Path:
    """The folder for compiled profiles: `AUTOAUTO_CACHE_DIR`, else `autoauto` in the user's cache folder.

    It may be one that cannot be written, also because the user has no home.
    """
    chosen = os.environ.get("AUTOAUTO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autoauto"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return Path(os.devnull) / "autoauto"
