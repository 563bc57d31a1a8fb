"""The version and the folders of the installation."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import autoauto
from autoauto.records.installation import VERSION, cache_dir, data_dir, extras, install_command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_has_the_version_of_the_project() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert version("autoauto") == VERSION == autoauto.__version__


def test_extras_are_those_of_the_project() -> None:
    of_project = {name: sorted(packages) for name, packages in PROJECT["optional-dependencies"].items()}
    assert {name: sorted(packages) for name, packages in extras().items()} == of_project


def test_extras_of_an_installed_package_are_those_of_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=1.26", "plotly>=5.24; extra == 'dashboard'", "onnxruntime-gpu[cuda]>=1.22; extra == 'cuda'"]
    monkeypatch.setattr("autoauto.records.installation._PROJECT", Path("no-checkout"))
    monkeypatch.setattr("importlib.metadata.requires", lambda _: lines)
    known = extras.__wrapped__()
    assert known["dashboard"] == ("plotly>=5.24",)
    assert known["cuda"] == ("onnxruntime-gpu[cuda]>=1.22",)


def test_an_extra_is_installed_for_the_python_that_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours, other = tmp_path / "a venv/bin", tmp_path / "other/bin"
    for folder in (ours, other):
        folder.mkdir(parents=True)
        (folder / "pip").touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(ours / "python"))
    monkeypatch.setenv("PATH", str(ours))
    assert install_command("host") == "pip install 'onnxruntime>=1.19'"
    monkeypatch.setenv("PATH", str(other))
    assert install_command("dashboard").startswith(f"'{ours}/python' -m pip install 'optuna-dashboard>=")


def test_the_data_folder_has_clusters_and_models() -> None:
    assert (data_dir() / "clusters").is_dir()
    assert (data_dir() / "models").is_dir()


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("AUTOAUTO_CACHE_DIR", raising=False)
    assert cache_dir() == tmp_path / "xdg" / "autoauto"
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
