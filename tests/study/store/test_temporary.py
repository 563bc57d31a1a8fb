"""The database of a search without storage: deleted at the end, or by the next search after a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.study.store.database import temporary_database

HOLDS = """
import time
from pathlib import Path
from autoauto.study.store.database import temporary_database
with temporary_database() as url:
    Path(url.removeprefix("sqlite:///")).write_text("trials")
    print("open", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of this process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_while_it_is_used_and_deleted_then(folder: Path) -> None:
    with temporary_database() as url:
        [made] = folder.iterdir()
        assert url == f"sqlite:///{made}/trials.db"
        assert made.stat().st_mode & 0o777 == 0o700
        Path(f"{made}/trials.db-wal").touch()
    assert list(folder.iterdir()) == []


def test_that_of_a_killed_process_is_deleted_by_the_next_and_that_of_a_living_one_is_not(folder: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        [theirs] = folder.iterdir()
        with temporary_database():
            assert len(list(folder.iterdir())) == 2
        assert list(folder.iterdir()) == [theirs]
        other.kill()
        other.wait()
        assert (theirs / "trials.db").exists()
        with temporary_database() as url:
            assert list(folder.iterdir()) == [Path(url.removeprefix("sqlite:///")).parent]


def test_what_is_no_database_of_a_search_stays(folder: Path) -> None:
    (folder / "autoauto-trials-results").mkdir()
    (folder / "autoauto-trials-results/notes").touch()
    (folder / "autoauto-trials-file").touch()
    (folder / "autoauto-trials-link").symlink_to(folder / "autoauto-trials-results")
    before = sorted(folder.rglob("*"))
    with temporary_database():
        pass
    assert sorted(folder.rglob("*")) == before
