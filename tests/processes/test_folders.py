"""Temporary folders: those of killed processes are deleted by the next, those of living ones are not."""

import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.processes.folders import delete_left, temporary_folder

LIVING = """
from autoauto.processes.folders import temporary_folder
with temporary_folder("autoauto-try-") as folder:
    (folder / "weights").write_text("large")
    print(folder, flush=True)
    input()
"""


def test_what_a_killed_process_left_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command, pipe = [sys.executable, "-c", LIVING], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        living = Path(process.stdout.readline().strip())
        with temporary_folder("autoauto-try-") as own:
            assert own.is_dir()
            assert (living / "weights").exists()
        assert not own.exists()
        process.kill()
    assert living.exists()
    with temporary_folder("autoauto-try-"):
        assert not living.exists()


def test_what_was_left_is_deleted_also_where_no_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "autoauto-x-left").mkdir()
    with temporary_folder("autoauto-x-", parent=tmp_path) as held:
        (tmp_path / "autoauto-x-later").mkdir()
        delete_left("autoauto-x-", parent=tmp_path)
        assert list(tmp_path.iterdir()) == [held]


def test_only_what_is_ours_is_deleted_in_another_folder(tmp_path: Path) -> None:
    """Names that a pattern would read otherwise are names; what holds other files is the user's."""

    def is_ours(folder: Path) -> bool:
        return [path.name for path in folder.iterdir()] == ["files"]

    parent = tmp_path / "parent"
    left, theirs, other = (parent / name for name in (".o[1]-left", ".o[1]-theirs", ".o1-left"))
    for folder in (left, theirs, other):
        (folder / "files").mkdir(parents=True)
    (theirs / "notes").touch()
    with temporary_folder(".o[1]-", is_ours, parent) as own:
        assert own.parent == parent
        assert own.name.startswith(".o[1]-")
    assert [folder.exists() for folder in (own, left, theirs, other)] == [False, False, True, True]


def test_a_file_system_without_locks_has_folders_that_nobody_else_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("fcntl.flock", refuse)
    with temporary_folder("autoauto-try-") as folder, temporary_folder("autoauto-try-") as other:
        assert folder.is_dir()
        assert other.is_dir()
    assert list(tmp_path.iterdir()) == []


UNTIL_EXIT = """
from autoauto.processes.folders import folder_until_exit
folder = folder_until_exit("autoauto-try-")
(folder / "config").write_text("one decoder")
print(folder, flush=True)
input()
"""


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_folder_until_exit_is_deleted_at_the_end_or_by_the_next(
    is_killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command, pipe = [sys.executable, "-c", UNTIL_EXIT], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env={"TMPDIR": str(tmp_path)}) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert (folder / "config").exists()
        if is_killed:
            process.kill()
        else:
            process.communicate("\n")
    assert folder.exists() is is_killed
    with temporary_folder("autoauto-try-"):
        assert not folder.exists()
