"""The site: every public name and every command has a page, which has each option once."""

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

import autoauto
from docs.site import docstrings, hooks
from docs.site.docstrings import fenced, separate
from docs.site.hooks import TOP, command_page, commands, generated, linked, without_words

PAGES = dict(generated())
COMMANDS = commands()


def test_every_public_name_has_a_page_and_a_line() -> None:
    for name in autoauto.__all__:
        assert f"::: autoauto.{name}\n" in PAGES[f"api/{name}.md"]
        assert PAGES["api/index.md"].count(f"[{name}]({name}.md)") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_a_command_has_every_option_once(name: str) -> None:
    parser, page = COMMANDS[name], command_page(name, COMMANDS[name])
    terms = re.findall(r"^`([^`]+)`\n:   \S", page, re.MULTILINE)
    options = [word.strip(",") for term in terms for word in term.split() if word.startswith("--")]
    assert sorted(options) == sorted(
        option for action in parser.explained for option in action.option_strings if option.startswith("--")
    )
    assert PAGES["commands/index.md"].count(f"[{name}]({name}.md)") == 1


def test_links_of_the_home_page_lead_from_the_folder_of_documents(root: Path) -> None:
    home = PAGES["index.md"]
    links = re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\":#]+)", home)
    assert len(links) > 20
    assert [link for link in links if not (root / "docs" / link).exists() and link not in PAGES] == []


def test_words_for_the_test_of_examples_are_left_out() -> None:
    assert without_words("```console no-run\n$ a\n```\n```python\n") == "```console\n$ a\n```\n```python\n"


def test_pages_that_a_text_names_are_links_and_code_stays() -> None:
    text = "(docs/plans.md), [a](docs/b.md)\n```text\ndocs/c.md\n```\n`docs/d.md`"
    assert linked(text, "api/x.md") == text.replace("docs/plans.md", "[plans](../plans.md)")


@pytest.mark.parametrize("module", [hooks, docstrings])
def test_the_examples_of_docstrings_hold(module: ModuleType) -> None:
    results = doctest.testmod(module)
    assert (results.failed, results.attempted > 0) == (0, True)


def test_doctests_are_code() -> None:
    text = "Twice.\n\n>>> f(\n...     1)\n2\n\nMore.\n\n    >>> g()"
    assert fenced(text) == (
        "Twice.\n\n```pycon\n>>> f(\n...     1)\n2\n```\n\nMore.\n\n    ```pycon\n    >>> g()\n    ```\n"
    )


def test_an_entry_of_several_names_is_one_for_each() -> None:
    text = "Args:\n    a, b: of a box,\n        or of two.\n    c: more, d: less.\n\nA, b: no entry."
    assert separate(text) == (
        "Args:\n    a: of a box,\n        or of two.\n    b: of a box,\n        or of two.\n    c: more, d: less.\n\n"
        "A, b: no entry."
    )


def test_the_navigation_has_every_page(root: Path) -> None:
    navigation = (root / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = [str(path.relative_to(root / "docs")) for path in root.glob("docs/**/*.md")]
    named = re.findall(r"(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(named) == sorted([*pages, *TOP, "notebook.md"])
