"""A stand-in for vLLM on PATH, `StandInEngine`: a real process that reads its options and speaks its protocol."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.running import is_running

ROOT = Path(__file__).parents[2]


class StandInEngine:
    """The program `vllm`, and what is true of it.

    Args:
        folder: where it is made.
        monkeypatch: puts it on PATH.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "bin").mkdir()
        program = folder / "bin" / "vllm"
        script = ROOT / "tests" / "launch" / "stand_in_engine.py"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {script} vllm "$@"\n')
        program.chmod(0o755)
        self._file = folder / "truth.json"
        monkeypatch.setenv("STAND_IN", str(self._file))
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        self.set()

    def set(self, **truth: object) -> None:
        """Make something true, and nothing else; see `stand_in_engine.py`."""
        self._file.write_text(json.dumps(truth))

    @property
    def starts(self) -> list[tuple[int, int]]:
        """The processes that were started, and the sequences of each."""
        log = Path(f"{self._file}.log")
        lines = log.read_text().splitlines() if log.exists() else []
        return [(int(pid), int(most)) for _, pid, most in map(str.split, lines)]

    @property
    def running(self) -> list[int]:
        """Those that run."""
        return [pid for pid, _ in self.starts if is_running(pid)]
