"""The installed package: its `VERSION`, `code_version`, `DEFAULT_MODEL`, `extras`, `install_command`, folders.

The models that come with it: their files, `builtin_models`, their sizes, `builtin_sizes`, and configs of decoders,
`builtin_decoders`.

`gpu_tables_dir` is the folder of the package of the extra gpu.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

VERSION = "0.1.0"
"""The version, here alone: the build reads it from this line; every study stores it."""
DEFAULT_MODEL = "resnet50"
"""The built-in model that is used where none is named."""
_PACKAGE = Path(__file__).parents[1]
_PROJECT = _PACKAGE.parent / "pyproject.toml"
"""Of a checkout; an installed package has none."""


@cache
def code_version() -> str:
    """The version; for a checkout also a digest of the names, sizes and modification times of its files of code.

    Results that are stored under it are not mistaken for results of other code.
    """
    if not _PROJECT.exists():
        return VERSION
    states = sorted(_code_files(str(_PACKAGE)))
    return f"{VERSION} {hashlib.sha256(repr(states).encode()).hexdigest()[:16]}"


def _code_files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _code_files(entry.path)
            elif entry.name.endswith(".py"):
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns


@cache
def extras() -> Mapping[str, tuple[str, ...]]:
    """The optional dependencies by extra, from pyproject.toml of the checkout or from the installed package."""
    if _PROJECT.exists():
        import tomllib

        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        return {name: tuple(packages) for name, packages in project["optional-dependencies"].items()}
    from importlib.metadata import requires  # imports a reader of mail

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
    import shlex
    import shutil

    pip = shutil.which("pip")
    command = [sys.executable, "-m", "pip"]
    if pip is not None and Path(pip).parent == Path(sys.executable).parent:
        command = ["pip"]  # the short name is that of the Python that runs
    return shlex.join([*command, "install", *extras()[extra]])


def data_dir() -> Path:
    """The folder `data/`: inside the package when it was installed, beside it in a checkout."""
    installed = _PACKAGE / "data"
    return installed if installed.is_dir() else _PACKAGE.parent / "data"


def gpu_tables_dir() -> Path | None:
    """The folder of the package with measured times of GPU kernels, which is not imported; None without extra gpu."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.origin:
        return None
    return Path(spec.origin).parent


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


def builtin_models() -> dict[str, Path]:
    """The models that come with autoauto, by name."""
    files = (data_dir() / "models").glob("*.onnx")
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def builtin_decoders() -> dict[str, dict[str, Any]]:
    """The configs of decoders that come with autoauto, by name: what sizes and costs need of a `config.json`."""
    import csv

    configs: dict[str, dict[str, Any]] = {}
    with (data_dir() / "models" / "decoders.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, tied = row.pop("name"), row.pop("tie_word_embeddings")
            del row["source"]
            config: dict[str, Any] = {"architectures": [row.pop("architectures")], "tie_word_embeddings": tied == "yes"}
            # An empty cell is null: where a key is missing, classes have a default, for example a window of attention.
            config |= {key: int(value) if value else None for key, value in row.items()}
            configs[name] = config
    return configs


class ModelSize(NamedTuple):
    """A built-in model, as `sizes.csv` beside the models has it."""

    name: str
    n_layers: int
    n_kinds: int  # how many of the layers differ
    weight_bytes: int  # in fp16


def builtin_sizes() -> list[ModelSize]:
    """The sizes of the built-in models, none of which is read."""
    _, *lines = (data_dir() / "models" / "sizes.csv").read_text(encoding="utf-8").splitlines()
    sizes: list[ModelSize] = []
    for line in lines:
        name, *numbers, _source = line.split(",")
        sizes.append(ModelSize(name, *map(int, numbers)))
    return sizes
