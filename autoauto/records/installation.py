"""The installed package: its `VERSION`, `DEFAULT_MODEL` and `EXTRAS`, `install_command`, `data_dir` and `cache_dir`.

`gpu_tables_dir` is the folder of the package of the extra gpu.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

VERSION = "0.1.0"
"""The version, here alone: the build reads it from this line; every study stores it."""
DEFAULT_MODEL = "resnet50"
"""The built-in model that is used where none is named."""
EXTRAS = {
    "completion": ("shtab>=1.7",),
    "cuda": ("onnxruntime-gpu[cuda,cudnn]>=1.22",),
    "dask": ("distributed>=2024.8",),
    "dashboard": ("optuna-dashboard>=0.17", "plotly>=5.24"),
    "gpu": ("aiconfigurator-core>=0.11,<0.13",),
    "host": ("onnxruntime>=1.19",),
    "openvino": ("openvino>=2025.0",),
    "parquet": ("pyarrow>=14",),
    "plot": ("plotly>=5.24",),
    "postgres": ("psycopg[binary]>=3.1",),
    "server": ("aiohttp>=3.10", "prometheus-client>=0.20"),
    "serve": ("aiohttp>=3.10", "prometheus-client>=0.20", "onnxruntime>=1.19"),
}
"""What the optional dependencies of pyproject.toml install."""
_PACKAGE = Path(__file__).parents[1]


def install_command(extra: str) -> str:
    """The command that installs an extra for the Python that runs, whether autoauto came as a checkout or as a wheel.

    It names the packages, because pip finds `autoauto[extra]` in an index only.
    """
    pip = shutil.which("pip")
    is_ours = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return shlex.join([*(["pip"] if is_ours else [sys.executable, "-m", "pip"]), "install", *EXTRAS[extra]])


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
