"""README is executed: its commands run, in order, and what they print is what README shows.

A fenced block whose info string begins with "console" holds commands after "$ ", each followed by what it prints;
"..." stands for anything, as in a doctest. The word "no-run" is for what a test must not do: the two commands for a
fresh machine come first, then what serves until it is stopped.
"""

import doctest
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

BLOCK = re.compile(r"^```console(?P<words>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)


class Example(NamedTuple):
    """A command, what it should print, and the words of its block."""

    command: str
    output: str
    words: frozenset[str]


def examples(readme: str) -> Iterator[Example]:
    for block in BLOCK.finditer(readme):
        for example in COMMAND.finditer(block["body"]):
            yield Example(example["command"], example["output"], frozenset(block["words"].split()))


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"


def write_command(folder: Path, name: str, *argv: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(argv)} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def checkout(tmp_path: Path, files: list[Path], root: Path) -> Path:
    """A copy of the checkout to run in, so that nothing is left behind and nothing old is found."""
    for path in files:
        copy = tmp_path / "checkout" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, copy)
    (tmp_path / "bin").mkdir()
    write_command(tmp_path / "bin", "autoauto", "-m", "autoauto")
    write_command(tmp_path / "bin", "python")
    return tmp_path / "checkout"


def run(command: str, checkout: Path) -> subprocess.CompletedProcess[str]:
    base = checkout.parent
    environment = {
        **{name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "NO_COLOR"}},
        "PATH": f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "PYTHONUTF8": "1",
        "COLUMNS": "80",
        "AUTOAUTO_CACHE_DIR": str(base / "cache"),
    }
    return subprocess.run(
        ["bash", "-c", command],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(360)  # some thirty commands, of which some go on with what others have found
def test_commands_print_what_readme_shows(root: Path, checkout: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    for example in examples(readme):
        if "no-run" not in example.words:
            done = run(example.command, checkout)
            same = doctest.OutputChecker().check_output(
                stripped(example.output), stripped(done.stdout), doctest.ELLIPSIS
            )
            assert same, f"$ {example.command}\n{done.stdout}"
            assert done.returncode == 0 or "autoauto: " in example.output, f"{example.command}: exit {done.returncode}"


@pytest.mark.slow
def test_the_call_from_python_runs(root: Path, checkout: Path) -> None:
    section = (root / "README.md").read_text(encoding="utf-8").partition("## From Python")[2]
    program = section.partition("```python\n")[2].partition("```")[0]
    (checkout / "call.py").write_text(program, encoding="utf-8")
    done = run("python call.py", checkout)
    *trials, best = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert all("Knobs(n_ipu=" in line for line in [*trials, best])
    assert trials


def test_the_first_two_commands_are_for_a_fresh_machine(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    main_job, tests = [example.command for example in examples(readme) if "no-run" in example.words][:2]
    assert "autoauto" in main_job
    assert "search" in main_job
    assert "pytest" in tests


def test_examples_are_found() -> None:
    readme = "text\n```console no-run\n$ a \\\n  b\nout\n\nmore\n$ c\n```\n```python\n$ d\n```\n"
    assert list(examples(readme)) == [
        Example("a \\\n  b", "out\n\nmore\n", frozenset({"no-run"})),
        Example("c", "", frozenset({"no-run"})),
    ]
