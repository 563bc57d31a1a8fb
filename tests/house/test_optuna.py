"""Private names of Optuna are in one file only, for versions that it was tested with."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

from tests.house.trees import nodes

FILE = Path("study/store/trial_storage.py")
ATTRIBUTES = {"_storage", "_backend", "_study_id", "_trial_id", "_version_manager"}
"""Private attributes of Optuna's studies, trials and storages."""


def private_names(tree: ast.Module) -> Iterator[str]:
    """Private modules and names of Optuna that a file imports, and private attributes of objects that are not its."""
    for node in nodes(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases) if module.split(".")[0] == "optuna":
                for alias in aliases:
                    if "._" in f"{module}.{alias.name}":
                        yield f"{module}.{alias.name}"
            case ast.Attribute(value=value, attr=name) if name in ATTRIBUTES:
                if not (isinstance(value, ast.Name) and value.id == "self"):
                    yield ast.unparse(node)


def test_one_file_has_private_names_of_optuna(package: Mapping[Path, ast.Module]) -> None:
    files = {path for path, tree in package.items() if list(private_names(tree))}
    assert files == {FILE}


def test_the_versions_of_optuna_have_a_bound_above(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [optuna] = [each for each in map(Requirement, project["dependencies"]) if each.name == "optuna"]
    assert {each.operator for each in optuna.specifier} == {">=", "<"}
    assert optuna.specifier.contains(version("optuna"))
