"""The version and the folders of the installation."""

import tomllib
from pathlib import Path

import pytest

import autoauto
from autoauto.records.installation import VERSION, cache_dir, data_dir


def test_the_package_has_the_version_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION == autoauto.__version__


def test_the_data_folder_has_clusters_and_models() -> None:
    assert (data_dir() / "clusters").is_dir()
    assert (data_dir() / "models").is_dir()


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("AUTOAUTO_CACHE_DIR", raising=False)
    assert cache_dir() == tmp_path / "xdg" / "autoauto"
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
