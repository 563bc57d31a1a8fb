"""The checkout that the house tests look at."""

import ast
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file that is, or would be, committed: paths relative to the top."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(Path(name) for name in listed if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def package(files: list[Path]) -> Mapping[Path, ast.Module]:
    """Every source file of the package, parsed; paths relative to the package."""
    sources = [path for path in files if path.parts[0] == "autoauto" and path.suffix == ".py"]
    return {path.relative_to("autoauto"): ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in sources}
