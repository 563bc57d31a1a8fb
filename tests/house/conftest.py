"""The checkout that the house tests look at."""

import ast
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.trees import parsed

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    """Every file that is, or would be, committed: paths relative to the top."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted({Path(name) for name in names if name and (ROOT / name).is_file()})


@pytest.fixture(scope="session")
def texts(files: list[Path]) -> Mapping[Path, str]:
    """The content of every text file."""
    return {
        path: (ROOT / path).read_text(encoding="utf-8") for path in files if path.suffix not in {".gz", ".onnx", ".png"}
    }


@pytest.fixture(scope="session")
def sources(texts: Mapping[Path, str]) -> Mapping[Path, ast.Module]:
    """Every Python file of autoauto/, studies/ and tests/, parsed."""
    folders = {"autoauto", "studies", "tests"}
    return {path: parsed(text) for path, text in texts.items() if path.suffix == ".py" and path.parts[0] in folders}


@pytest.fixture(scope="session")
def package(texts: Mapping[Path, str]) -> Mapping[Path, ast.Module]:
    """Every source file of the package, parsed; paths relative to the package."""
    ours = {path: text for path, text in texts.items() if path.suffix == ".py" and path.parts[0] == "autoauto"}
    return {path.relative_to("autoauto"): parsed(text) for path, text in ours.items()}
