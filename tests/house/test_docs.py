"""README and docs/ are executed: their commands and programs run, in order, and commands print what the page shows.

A fenced block whose info string begins with "console" holds commands after "$ ", each followed by what it prints;
"..." stands for anything, as in a doctest. The word "no-run" is for what a test must not do: the two commands for a
fresh machine come first in README. The word "fails" is for a block whose last command must end with another exit code
than 0; all others end with 0, each command of a pipe too. The word "needs:PACKAGE" is for a block that runs where that
package is installed. A block of Python is a program that must end well. Every page
has a copy of the checkout, and a database of its own.

`python tests/house/test_docs.py PAGE...` rewrites what the commands of a page print.
"""

import doctest
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
BLOCK = re.compile(r"^```(?P<language>console|python)(?P<words>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (?P<command>(?:[^\n]*\\\n)*[^\n]*)\n(?P<output>(?:(?!\$ )[^\n]*\n)*)", re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\((?P<file>[^)#:]+)(?:#[^)]*)?\)")

UNSET = {"FORCE_COLOR", "NO_COLOR", "AUTOAUTO_RUN_S"}
"""Pages show what is printed without these, and by runs as long as those of a user."""
SENTENCE = r"a stage had \d+ % of its core, other processes,.*?again on an idle machine"
DISTURBED = re.compile(rf"^ *{SENTENCE}\n|; {SENTENCE}", re.MULTILINE | re.DOTALL)
"""What a measurement says on a machine on which something else takes a core: any may, and pages show quiet ones."""


class Example(NamedTuple):
    """A command and what it should print, or a program; the words of its block, and whether it must fail."""

    command: str
    output: str
    words: frozenset[str]
    is_program: bool = False
    fails: bool = False

    @property
    def needs(self) -> list[str]:
        """The packages without which it does not run."""
        return [word.removeprefix("needs:") for word in self.words if word.startswith("needs:")]


def examples(page: str) -> Iterator[Example]:
    for block in BLOCK.finditer(page):
        words = frozenset(block["words"].split())
        if block["language"] == "python":
            yield Example(block["body"], "", words, is_program=True)
            continue
        *firsts, last = COMMAND.finditer(block["body"])
        for example in (*firsts, last):
            yield Example(example["command"], example["output"], words, fails="fails" in words and example is last)


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n"


def is_same(output: str, printed: str) -> bool:
    """Whether a page shows what is printed, but for the sentence about a busy machine where the page has none."""
    expected, printed = stripped(output), stripped(printed)
    if not DISTURBED.search(expected):
        printed = DISTURBED.sub("", printed)
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def write_command(folder: Path, name: str, *argv: str) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(argv)} "$@"\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def copy_checkout(folder: Path) -> Path:
    """A copy of the checkout to run in, with what is compiled: nothing is left behind, and nothing old is found."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in files:
        if (ROOT / path).is_file():
            copy = folder / "checkout" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy)
    for cache in (ROOT / "autoauto").rglob("__pycache__"):  # modules are of the same time, so these stay valid
        shutil.copytree(cache, folder / "checkout" / cache.relative_to(ROOT), ignore=shutil.ignore_patterns("*.pyc.*"))
    (folder / "bin").mkdir()
    write_command(folder / "bin", "autoauto", "-m", "autoauto")
    write_command(folder / "bin", "python")
    return folder / "checkout"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path)


def run(example: Example, checkout: Path) -> subprocess.CompletedProcess[str]:
    base = checkout.parent
    environment = {
        **{name: value for name, value in os.environ.items() if name not in UNSET},
        "PATH": f"{base / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(checkout),
        "PYTHONUTF8": "1",
        "COLUMNS": "80",
    }
    if example.is_program:
        (checkout / "example.py").write_text(example.command, encoding="utf-8")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", "python example.py" if example.is_program else example.command],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(360)  # a page may hold ten searches
@pytest.mark.parametrize("page", PAGES)
def test_examples_do_what_the_page_shows(page: str, checkout: Path) -> None:
    for example in examples((ROOT / page).read_text(encoding="utf-8")):
        if "no-run" not in example.words and all(map(find_spec, example.needs)):
            done = run(example, checkout)
            same = example.is_program or is_same(example.output, done.stdout)
            assert same, f"{page}: $ {example.command}\n{done.stdout}"
            assert (done.returncode != 0) is example.fails, f"{page}: {example.command}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page: str) -> None:
    links = [match["file"] for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8"))]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


def test_every_page_is_linked_from_readme() -> None:
    links = {match["file"] for match in LINK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert set(PAGES) - links == {"README.md"}


def test_readme_is_short_and_begins_with_the_two_commands_for_a_fresh_machine() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    main_job, tests = [example.command for example in examples(readme) if "no-run" in example.words][:2]
    assert "autoauto search" in main_job
    assert "pytest" in tests


def test_examples_are_found() -> None:
    page = "text\n```console no-run\n$ a \\\n  b\nout\n\nmore\n$ c\n```\n```python\nd\n```\n```text\n$ e\n```\n"
    page += "```console fails\n$ f\n$ g\nno\n```\n"
    assert list(examples(page)) == [
        Example("a \\\n  b", "out\n\nmore\n", frozenset({"no-run"})),
        Example("c", "", frozenset({"no-run"})),
        Example("d\n", "", frozenset(), is_program=True),
        Example("f", "", frozenset({"fails"})),
        Example("g", "no\n", frozenset({"fails"}), fails=True),
    ]


def test_a_busy_machine_may_say_so_where_a_page_does_not() -> None:
    sentence = "a stage had 62 % of its core, other processes, or a tenant with whom it is\nshared, the rest; measure "
    sentence += "again on an idle machine\n"
    shown, printed = "throughput: ... samples/s\nassumed: a\n", "throughput: 7 samples/s\n{}assumed: a\n"
    assert is_same(shown, printed.format(""))
    assert is_same(shown, printed.format(sentence))
    assert not is_same(shown, printed.format("another line\n"))
    assert not is_same(shown, printed.format(sentence + "another line\n"))
    assert not is_same(f"{sentence}a\n", "a\n")
    assert is_same("one device\n", f"one device; {sentence}")


def rewrite(page: Path) -> None:
    """Write what the commands print into a page; an output that still fits, with its "...", stays."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        checkout = copy_checkout(Path(folder))
        for example in examples(text):
            if "no-run" in example.words:
                continue
            printed = run(example, checkout).stdout
            if not example.is_program and not is_same(example.output, printed):
                before = f"$ {example.command}\n{example.output}"
                assert before in text, before
                text = text.replace(before, f"$ {example.command}\n{stripped(printed)}", 1)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name))
