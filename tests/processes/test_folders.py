"""Temporary folders: those of killed processes are deleted by the next, those of living ones are not."""

import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.processes.folders import temporary_folder

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
