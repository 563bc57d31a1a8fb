"""`import autoauto` and `autoauto --help` are quick because they load no large library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"msgspec", "onnx", "onnxruntime", "optuna", "pandas", "rich", "scipy", "sklearn", "sqlalchemy", "torch"}

LOADED = """
import sys
try:
    {statement}
except SystemExit as end:
    assert not end.code, end.code
print(*sorted({heavy} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import autoauto",
        "from autoauto.cli.main import main; main(['--version'])",
        "from autoauto.cli.main import main; main(['--help'])",
        "from autoauto.cli.main import main; main(['search', '--help'])",
    ],
)
def test_no_large_library_is_loaded(statement: str, root: Path) -> None:
    program = LOADED.format(statement=statement, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.split()) == (0, [])


def test_the_module_is_the_command(root: Path) -> None:
    command = [sys.executable, "-m", "autoauto", "--version"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("autoauto ")


MAIN_WITH_EXEC = """
import sys, types

def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130

sys.modules["autoauto.cli.main"] = types.SimpleNamespace(main=main)
"""


def test_an_interrupt_while_a_dataclass_is_made_is_an_exit_code_like_any_other(root: Path, tmp_path: Path) -> None:
    """Python makes dataclasses with exec, whose KeyboardInterrupt would end the process by the signal."""
    (tmp_path / "sitecustomize.py").write_text(MAIN_WITH_EXEC)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    assert subprocess.run([sys.executable, "-m", "autoauto"], env=environment, check=False).returncode == 130


MAIN_WITH_DESTRUCTOR = """
import os, signal, sys, time, types

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

def main():
    Dying()
    time.sleep(60)

sys.modules["autoauto.cli.main"] = types.SimpleNamespace(main=main)
"""


def test_an_interrupt_that_falls_into_a_destructor_is_not_lost(root: Path, tmp_path: Path) -> None:
    """Python cannot raise it there: it would print that it ignores it, and go on."""
    (tmp_path / "sitecustomize.py").write_text(MAIN_WITH_DESTRUCTOR)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    done = subprocess.run([sys.executable, "-m", "autoauto"], env=environment, check=False, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (130, b"autoauto: interrupted\n")
