"""The version is told once to Python and once to the packager."""

import tomllib
from pathlib import Path

import autoauto
from autoauto.records.version import VERSION


def test_the_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION == autoauto.__version__
