"""What a killed `export --check` leaves is deleted by the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoauto.cli.main import main

STOPS_IN_A_CHECK = """
import sys, time
from autoauto.cli.main import main
from autoauto.exporters import onnx_stages

def stop(*_):
    print("checks", flush=True)
    time.sleep(600)

onnx_stages._run = stop
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_folders_of_a_killed_export_are_deleted_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    folder, temporary = tmp_path / "made", tmp_path / "temporary"
    temporary.mkdir()
    arguments = ["export", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--to", "onnx"]
    arguments += ["--output", str(folder), "--check"]
    command = [sys.executable, "-c", STOPS_IN_A_CHECK, *arguments]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "checks\n"
        process.send_signal(signal.SIGKILL)
    assert len(list(temporary.glob("autoauto-export-*"))) == 1
    assert len(list(tmp_path.glob(".made-autoauto-*"))) == 1
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert main(arguments[:-1]) == 0
    assert list(tmp_path.glob(".*")) == []
    assert main([*arguments[:-2], str(tmp_path / "other"), "--check"]) == 0
    assert list(temporary.glob("*autoauto-export-*")) == []
