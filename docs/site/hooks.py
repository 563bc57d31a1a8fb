"""What `mkdocs build` makes of the program itself, so that no copy of it can be out of date.

A page for every command, of its own help; a page for every public name, of its docstring; the notebook; the home page,
of README; and the pages of files that lie at the top of the checkout.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import autoauto
from autoauto.cli.main import GROUPS, build_parser
from autoauto.cli.options.parser import Parser

ROOT = Path(__file__).parents[2]
TOP = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
"""Pages, and the files at the top of the checkout that they are made of."""
_FENCE = re.compile(r"^(```(?:console|python)) [^\n]*$", re.MULTILINE)
"""The first line of a block with words for the test that runs it."""
_CODE = re.compile(r"(^```.*?^```|`[^`]*`)", re.MULTILINE | re.DOTALL)
_NAMED_PAGE = re.compile(r"(?<!\]\()(?<![\w/])docs/(\w+)\.md")
_MARKUP = re.compile(r"([\\*_<>\[\]{}|#~^])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    groups = [{title.capitalize(): [f"commands/{name}.md" for name in names]} for title, names in GROUPS.items()]
    names = [f"api/{name}.md" for name in autoauto.__all__]
    assert config.nav is not None
    config.nav += [{"Commands": ["commands/index.md", *groups]}, {"API": ["api/index.md", *names]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, content in generated():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Show the notebook as a page, make links of pages that a text names, and leave out words for tests."""
    return without_words(linked(markdown.replace("(notebook.ipynb)", "(notebook.md)"), page.file.src_uri))


def without_words(markdown: str) -> str:
    """The text of a page without what only the test of its examples reads."""
    return _FENCE.sub(r"\1", markdown)


def linked(markdown: str, path: str) -> str:
    """The text of a page in which the names of others, as in a terminal, are links; code stays.

    >>> linked("see docs/search.md, `docs/search.md`", "commands/NAME.md")
    'see [search](../search.md), `docs/search.md`'
    """
    top = "../" * path.count("/")
    texts = _CODE.split(markdown)
    texts[::2] = [_NAMED_PAGE.sub(rf"[\1]({top}\1.md)", text) for text in texts[::2]]
    return "".join(texts)


def generated() -> Iterator[tuple[str, str]]:
    """Paths and texts of all generated pages."""
    for path, name in TOP.items():
        yield path, _from_top((ROOT / name).read_text(encoding="utf-8"))
    yield "notebook.md", notebook_page(json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8")))
    parsers = commands()
    yield "commands/index.md", _commands_index(parsers)
    for name, parser in parsers.items():
        yield f"commands/{name}.md", command_page(name, parser)
    yield "api/index.md", _api_index()
    for name in autoauto.__all__:
        yield f"api/{name}.md", f"---\ntitle: {name}\n---\n\n::: autoauto.{name}\n"


def _from_top(text: str) -> str:
    """A text from the top of the checkout with links as from docs/."""
    pages = {name: path for path, name in TOP.items()} | {"CONTRIBUTING.md": "contributing.md"}
    text = re.sub(r"(\]\(|src=\"|srcset=\")docs/", r"\1", text)
    return re.sub(r"\]\(([A-Z]+\.md)\)", lambda match: f"]({pages.get(match[1], match[1])})", text)


def notebook_page(notebook: dict[str, Any]) -> str:
    """The cells of a notebook, and what they show."""
    return "\n\n".join(part for cell in notebook["cells"] for part in _cell(cell)) + "\n"


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "text/html" in data:
            html = re.sub(r"\n\s*", " ", "".join(data["text/html"]))  # an empty line would end the block
            yield f'<div class="output">{html}</div>'
        else:
            yield f"```text\n{''.join(output.get('text', data.get('text/plain', ''))).rstrip()}\n```"


def commands() -> dict[str, Parser]:
    """The parser of every command."""
    (subparsers,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(subparsers.choices)


def _commands_index(parsers: dict[str, Parser]) -> str:
    lines = ["# Commands", "", "`autoauto COMMAND --help` prints what these pages say.", ""]
    for title, names in GROUPS.items():
        lines += [f"## {title.capitalize()}", "", "| command | what it does |", "|---|---|"]
        lines += [f"| [{name}]({name}.md) | {_first_sentence(str(parsers[name].description))} |" for name in names]
        lines.append("")
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    return plain(text.partition(". ")[0].removesuffix(".")) + "."


def command_page(name: str, parser: Parser) -> str:
    """The help of a command as a page: what it does, an example, and all options in their groups."""
    lines = [f"---\ntitle: {name}\n---\n", f"# autoauto {name}", "", plain(str(parser.description)), ""]
    lines += ["```console", f"$ {parser.epilog}", "```", ""]
    for title, actions in parser.sections(parser.explained):
        lines += [f"## {str(title).capitalize()}", ""]
        for action in actions:
            lines += [f"`{_invocation(parser, action)}`", f":   {plain(_help(parser, action))}", ""]
    return "\n".join(lines)


def _invocation(parser: Parser, action: argparse.Action) -> str:
    """An option with its value, as the help shows it."""
    return parser._get_formatter()._format_action_invocation(action)


def _help(parser: Parser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action)


def plain(text: str) -> str:
    """Text in which Markdown finds nothing but code between backticks.

    >>> plain("10**9 of `a_b`, see <x>")
    '10\\\\*\\\\*9 of `a_b`, see \\\\<x\\\\>'
    """
    parts = text.split("`")
    return "`".join(part if index % 2 else _MARKUP.sub(r"\\\1", part) for index, part in enumerate(parts))


def _api_index() -> str:
    lines = ["# API", "", "The public names of the package. `import autoauto` loads each when it is first used.", ""]
    for name in autoauto.__all__:
        summary = (getattr(autoauto, name).__doc__ or "").strip().partition("\n")[0]
        lines.append(f"- [{name}]({name}.md): {plain(summary)}")
    return "\n".join([*lines, ""])
