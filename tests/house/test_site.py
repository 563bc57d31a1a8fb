"""The site: every public name and every command has a page, which has each option once."""

import re
from pathlib import Path

import pytest

import autoauto
from docs.site.doctests import fenced
from docs.site.hooks import command_page, commands, generated, on_page_markdown, plain

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
    assert on_page_markdown("```console no-run\n$ a\n```\n```python\n") == "```console\n$ a\n```\n```python\n"


def test_help_is_no_markup() -> None:
    assert plain("a_b <x> `c_d` [e]") == "a\\_b \\<x\\> `c_d` \\[e\\]"


def test_doctests_are_code() -> None:
    text = "Twice.\n\n>>> f(\n...     1)\n2\n\nMore.\n\n    >>> g()"
    assert fenced(text) == (
        "Twice.\n\n```pycon\n>>> f(\n...     1)\n2\n```\n\nMore.\n\n    ```pycon\n    >>> g()\n    ```\n"
    )
