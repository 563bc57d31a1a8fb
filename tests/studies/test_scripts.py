"""No script and no search config of studies/ is left out of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for path in (ROOT / "studies").glob("*.py") if "__main__" in path.read_text(encoding="utf-8")]
CONFIGS = sorted((ROOT / "studies").glob("*.toml"))


def test_a_test_runs_every_script() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert set(re.findall(r'run_script\(\s*"(\w+)"', tests)) == {path.stem for path in SCRIPTS}


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_every_search_config_plans_a_search(config: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "autoauto", "search", "--config", str(config), "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "configurations" in done.stdout
