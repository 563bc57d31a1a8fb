from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoauto.targets.host import kept
from autoauto.targets.host.kept import Kept


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def speed(numbers: Mapping[str, Any]) -> int:
    return int(numbers["speed"])


def test_what_was_written_last_is_read(cache: Path) -> None:
    assert Kept("speed").read(speed) is None
    for number in (7, 8):
        Kept("speed").write({"speed": number})
        assert Kept("speed").read(speed) == number
    assert len(list(cache.iterdir())) == 1


def test_another_machine_or_subject_has_a_file_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Kept("speed", 1).write({"speed": 7})
    assert Kept("speed", 2).read(speed) is None
    monkeypatch.setattr(kept, "identity", lambda: "another machine")
    assert Kept("speed", 1).read(speed) is None


@pytest.mark.parametrize("broken", ["", "{", "{}", "[]", '{"speed": "fast"}', "\xff"])
def test_a_broken_file_is_none_with_a_line(broken: str, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Kept("speed").write({"speed": 7})
    (path,) = cache.iterdir()
    path.write_text(broken, encoding="latin-1")
    assert Kept("speed").read(speed) is None
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "measured again" in line


def test_a_folder_that_cannot_be_written_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "file"))
    Kept("speed").write({"speed": 7})
    assert Kept("speed").read(speed) is None
