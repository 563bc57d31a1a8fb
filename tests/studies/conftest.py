"""Run a script of studies/ as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RunScript = Callable[..., list[str]]


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Run `studies/NAME.py` with arguments in an empty folder; the lines of its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(name: str, *arguments: str, exit_codes: Collection[int] = (0,)) -> list[str]:
        command = [sys.executable, str(ROOT / "studies" / f"{name}.py"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in exit_codes, done.stdout + done.stderr
        return [*done.stdout.splitlines(), *(done.stderr.splitlines() if done.returncode == 2 else ())]

    return run
