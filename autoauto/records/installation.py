"""The installed package: its `VERSION`, `DEFAULT_MODEL` and `extras`, `install_command`, `data_dir` and `cache_dir`.

`gpu_tables_dir` is the folder of the package of the extra gpu.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

VERSION = "0.1.0"
"""The version, here alone: the build reads it from this line; every study stores it."""
DEFAULT_MODEL = "resnet50"
"""The built-in model that is used where none is named."""
_PACKAGE = Path(__file__).parents[1]
_PROJECT = _PACKAGE.parent / "pyproject.toml"
"""Of a checkout; an installed package has none."""


@cache
def extras() -> Mapping[str, tuple[str, ...]]:
    """The optional dependencies by extra, from pyproject.toml of the checkout or from the installed package."""
    if _PROJECT.exists():
        import tomllib

        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        return {name: tuple(packages) for name, packages in project["optional-dependencies"].items()}
    packages: dict[str, tuple[str, ...]] = {}
    for line in requires("autoauto") or ():
        package, _, marker = line.partition(";")
        extra = marker.partition("extra ==")[2].strip(" '\"")
        packages[extra] = (*packages.get(extra, ()), package.strip())
    return packages


def install_command(extra: str) -> str:
    """The command that installs an extra for the Python that runs, whether autoauto came as a checkout or as a wheel.

    It names the packages, because pip finds `autoauto[extra]` in an index only.
    """
    pip = shutil.which("pip")
    is_ours = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return shlex.join([*(["pip"] if is_ours else [sys.executable, "-m", "pip"]), "install", *extras()[extra]])


def data_dir() -> Path:
    """The folder `data/`: inside the package when it was installed, beside it in a checkout."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent / "data"


def gpu_tables_dir() -> Path | None:
    """The folder of the package with measured times of GPU kernels, which is not imported; None without extra gpu."""
    spec = find_spec("aiconfigurator_core")
    return Path(spec.origin).parent if spec and spec.origin else None


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
