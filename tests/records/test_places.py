from pathlib import Path

import pytest

from autoauto.records.places import cache_dir, data_dir


def test_the_data_is_there() -> None:
    assert (data_dir() / "clusters").is_dir()
    assert (data_dir() / "models").is_dir()


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("AUTOAUTO_CACHE_DIR", raising=False)
    assert cache_dir() == tmp_path / "xdg" / "autoauto"
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
