"""`import autoauto` and commands are quick because they load no large library that they do not need."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = (
    *("aiohttp", "asyncio", "email", "google.protobuf", "msgspec", "numpy", "onnx", "onnxruntime", "optuna", "pandas"),
    *("rich", "scipy", "sklearn", "sqlalchemy", "ssl", "torch"),
)
"""Libraries that take long to import, some of them of Python."""
LOADED = """
import sys
try:
    {statement}
except SystemExit as end:
    assert not end.code, end.code
ours = sum(name.partition(".")[0] == "autoauto" for name in sys.modules)
print("LOADED", ours, *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""
MAIN = "from autoauto.__main__ import main; sys.argv[1:] = {words}; assert main() == 0"
OF_PLUGINS = {"email"}
"""What the standard library imports to find entry points."""
OF_DATABASES = OF_PLUGINS | {"asyncio", "msgspec", "numpy", "sqlalchemy", "ssl"}
"""What SQLAlchemy imports, too."""


def loaded(statement: str, root: Path, **environment: str) -> tuple[int, set[str]]:
    """How many modules of ours a process has at its end, and which of `HEAVY`."""
    program = LOADED.format(statement=statement, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_modules, *heavy = next(line for line in done.stderr.splitlines() if line.startswith("LOADED")).split()[1:]
    return int(n_modules), set(heavy)


@pytest.mark.parametrize(
    ("statement", "n_modules", "needed"),
    [
        ("import autoauto", 5, set()),
        (MAIN.format(words=["--version"]), 15, set()),
        (MAIN.format(words=["models", "--json"]), 45, {"numpy"} | OF_PLUGINS),
        (MAIN.format(words=["models"]), 45, {"numpy", "rich"} | OF_PLUGINS),
        (MAIN.format(words=["clusters", "--target", "ipu", "--json"]), 97, {"msgspec", "numpy"} | OF_PLUGINS),
    ],
)
def test_a_command_loads_no_library_that_it_does_not_need(
    statement: str, n_modules: int, needed: set[str], root: Path
) -> None:
    """Those of ours are counted, too: most of them are records with classes that take long to make."""
    ours, heavy = loaded(statement, root)
    assert heavy == needed
    assert ours <= n_modules


@pytest.mark.parametrize("words", [["--help"], ["search", "--help"]])
def test_a_help_loads_no_library_of_a_search(words: list[str], root: Path) -> None:
    _, heavy = loaded(MAIN.format(words=words), root)
    assert not heavy & {"msgspec", "onnx", "optuna", "pandas", "rich", "scipy", "sklearn", "sqlalchemy"}


def test_a_search_and_what_reads_it_load_what_they_need(root: Path, tmp_path: Path) -> None:
    """A model is read once: an estimate of it, a search and reports of that then need no onnx."""
    environment = {"AUTOAUTO_CACHE_DIR": str(tmp_path), "AUTOAUTO_SERVER": ""}
    storage = ["--storage", f"sqlite:///{tmp_path}/trials.db", "--json"]
    cell = ["resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--batch-size"]
    of_model = OF_DATABASES | {"google.protobuf", "onnx"}
    expected = {
        ("predict", *cell, "2", "--json"): (310, of_model),
        ("predict", *cell, "3", "--json"): (260, OF_DATABASES),
        ("search", *cell, "1:2", "--replicas", "1", *storage): (325, OF_DATABASES | {"optuna"}),
        ("report", *storage): (380, OF_DATABASES | {"optuna", "rich"}),
        ("explain", *storage): (250, OF_DATABASES | {"optuna", "rich"}),
        ("studies", *storage): (145, OF_DATABASES | {"optuna"}),
    }
    for words, (n_modules, needed) in expected.items():
        ours, heavy = loaded(MAIN.format(words=list(words)), root, **environment)
        assert heavy == needed, words
        assert ours <= n_modules, words


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="extra gpu is not installed")
def test_a_forecast_on_gpus_reads_no_onnx(root: Path) -> None:
    words = ["predict", "Qwen/Qwen3-8B", "--cluster", "h100_sxm-1", "--batch-size", "8", "--isl", "128", "--osl", "16"]
    _, heavy = loaded(MAIN.format(words=words), root)
    assert not heavy & {"aiohttp", "google.protobuf", "onnx", "optuna", "pandas", "scipy", "sklearn", "torch"}


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
