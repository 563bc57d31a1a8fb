"""The package that docs/extend.md shows, installed by pip into an environment of its own, does what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.house.test_docs import examples, is_same

ROOT = Path(__file__).parents[1]
SECTION = re.search(r"^## A package of your own\n(.*?)^## ", (ROOT / "docs" / "extend.md").read_text(), re.M | re.S)
FILES = re.compile(r"^```(?:toml|python no-run)\n# (\S+)\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the package; it finds this checkout and what it needs by a .pth file."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("plugin")
    assert SECTION is not None
    for name, text in FILES.findall(SECTION[1]):
        (folder / name).write_text(text, encoding="utf-8")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    (packages / "ours.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, *offline, folder], check=True, cwd=folder)
    assert (packages / "autoauto_paper.py").is_file()
    return python


@pytest.mark.slow
def test_its_commands_print_what_the_page_shows(python: Path, tmp_path: Path) -> None:
    assert SECTION is not None
    (tmp_path / "autoauto").write_text(f'#!/bin/sh\nexec "{python}" -m autoauto "$@"\n')
    (tmp_path / "autoauto").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    commands = [example for example in examples(SECTION[1]) if "no-run" in example.words and not example.is_program]
    assert len(commands) == 2
    for example in commands:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", example.command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert is_same(example.output, done.stdout), done.stdout + done.stderr
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_search_and_help_know_it_and_an_unknown_name_lists_it(python: Path, tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "autoauto", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    text = run("search", "--help-all").stdout
    assert "--target {cpu,gpu,host,ipu,paper}" in text
    assert "for --target paper:" in text
    assert "--paper-rate N" in text
    searched = run(
        "search", "resnet50", "--target", "paper", "--batch-size", "1,2", "--json", "--storage", "sqlite:///s.db"
    )
    assert (searched.returncode, searched.stderr.count("Traceback")) == (0, 0), searched.stderr
    assert '"modelled"' in searched.stdout
    for words in (("--target", "stone"), ("--target", "paper", "--to", "stone", "--output", "x")):
        refused = run("export", "resnet50", *words)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert ("paper" if "--to" not in words else "layer-table") in refused.stderr


def test_the_page_shows_forty_lines_of_code() -> None:
    assert SECTION is not None
    [program] = [text for name, text in FILES.findall(SECTION[1]) if name.endswith(".py")]
    lines = [line for line in program.splitlines() if line.strip() and not line.startswith(("from ", "import "))]
    assert len(lines) <= 45
