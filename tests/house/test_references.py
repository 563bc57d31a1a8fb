"""What documents, docstrings and comments name exists: sources, files, and no path of one machine."""

import ast
import csv
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.house.trees import nodes, parsed

REFERENCES = Path("docs/references.md")
ROW = re.compile(r"^\| `\[(?P<key>[^\]]+)\]` \| (?P<source>.+) \|$", re.MULTILINE)
CITATION = re.compile(r"(?<![\w\])}])\[(?P<key>[a-z][a-z0-9]*(?:-[a-z0-9]+)*)(?P<section>,\s[^\[\]]*)?\](?![(\w])")
PATH = re.compile(r"(?<![\w./@*:-])(?P<path>(?:[\w-]+/)*[\w-]+\.(?:py|md|toml|json))(?![\w/])")
BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"```.*?```|``[^`]+``|`[^`]*`|^\s*(?:>>>|\.\.\.).*$", re.DOTALL | re.MULTILINE)
OUTSIDE = re.compile(r"\bseed 0\d\d\b|\b(?:DESIGN|HOST|IPU|PLANNER|SEARCH)[.]md\b")
"""Documents from which autoauto was made, and which are not in the repository."""
STRINGS = (r'"{3}(?:[^\\]|\\.)*?"{3}', r"'{3}(?:[^\\]|\\.)*?'{3}", r'"(?:[^"\\\n]|\\.)*"', r"'(?:[^'\\\n]|\\.)*'")
STRING_OR_COMMENT = re.compile("|".join([*STRINGS, r"(?P<comment>#[^\n]*)"]), re.DOTALL)
"""A string of Python, or a comment; `tokenize` takes three seconds for all files."""
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|work)/")

Texts = Mapping[Path, str]


@cache
def prose(path: Path, text: str) -> str:
    """The docstrings and comments of a Python file, the comments of a TOML file, all of a Markdown file."""
    if path.suffix == ".md":
        return text
    if path.suffix == ".toml":
        return "\n".join(re.findall(r"#.*$", text, re.MULTILINE))
    if path.suffix == ".py":
        return "\n".join(python_prose(text))
    return ""


def python_prose(text: str) -> Iterator[str]:
    for node in nodes(parsed(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for match in STRING_OR_COMMENT.finditer(text):
        if match["comment"]:
            yield match["comment"]


def strings(text: str) -> Iterator[str]:
    """All texts that a program holds."""
    for node in nodes(parsed(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def cited(text: str) -> list[str]:
    """Keys in square brackets; code in backticks and doctests hold none."""
    return [match["key"] for match in CITATION.finditer(CODE.sub(" ", text))]


def named_paths(text: str) -> list[str]:
    """Files that a text names.

    Not those of a citation, which are files of its source, nor those that an example writes, nor FILE.toml, NAME.json.
    """
    paths = [match["path"] for match in PATH.finditer(CITATION.sub(" ", BLOCK.sub(" ", text)))]
    return [path for path in paths if Path(path).stem not in {"FILE", "NAME"}]


@pytest.fixture(scope="session")
def our_texts(texts: Texts) -> Texts:
    """README and texts of autoauto/, docs/, studies/ and tests/, but vectors, whose sources are written out."""
    folders = {"README.md", "autoauto", "docs", "studies", "tests"}
    return {path: text for path, text in texts.items() if path.parts[0] in folders and path.suffix != ".json"}


def test_every_key_has_one_row(texts: Texts) -> None:
    keys = [match["key"] for match in ROW.finditer(texts[REFERENCES])]
    assert len(keys) == len(set(keys)) > 30


def test_every_citation_has_a_row_in_the_references(our_texts: Texts) -> None:
    keys = {match["key"] for match in ROW.finditer(our_texts[REFERENCES])}
    unknown = {(str(path), key) for path, text in our_texts.items() for key in cited(prose(path, text))}
    assert sorted((path, key) for path, key in unknown if key not in keys) == []


def test_citations_are_recognised() -> None:
    text = 'See [zero-bubble] and [popart-pipelining, "Stages"], not `[knobs]`, x[i], [0, 2] or [link](a.md).'
    assert cited(text) == ["zero-bubble", "popart-pipelining"]


def test_docstrings_and_comments_are_recognised() -> None:
    program = (
        '''"""A docstring."""\nx = "#1", '#2', r"\\"#3", f"""\n#4 {x}"""  # a comment\ny = """\\"""#5"""  # [key]\n'''
    )
    assert list(python_prose(program)) == ["A docstring.", "# a comment", "# [key]"]


def test_no_file_cites_a_document_outside_the_repository(texts: Texts) -> None:
    outside = {str(path): sorted(set(OUTSIDE.findall(text))) for path, text in texts.items()}
    assert {path: names for path, names in outside.items() if names} == {}


def test_every_file_that_a_text_names_exists(our_texts: Texts, files: list[Path]) -> None:
    """A path may leave out its first folders: `estimate/table.py`, `table.py`; exporters write others."""
    known = {"/".join(path.parts[i:]) for path in files for i in range(len(path.parts))}
    exporters = [text for path, text in our_texts.items() if path.parts[:2] == ("autoauto", "exporters")]
    known |= {value for text in exporters for value in strings(text)}
    missing = {
        (str(path), name)
        for path, text in our_texts.items()
        if path != REFERENCES  # whose paths are those of the sources
        for name in named_paths(prose(path, text))
        if name not in known
    }
    assert sorted(missing) == []


def test_named_paths_are_recognised() -> None:
    text = "`estimate/table.py`, table.py, [megatron, core/schedules.py], tests/vectors/NAME.json and autoauto.plan"
    assert named_paths(text) == ["estimate/table.py", "table.py"]


def test_every_data_file_names_its_source(texts: Texts, files: list[Path]) -> None:
    assert [str(path) for path in files if path.parts[0] == "data" and not source(path, texts)] == []


def source(path: Path, texts: Texts) -> str:
    """What a data file says about its origin; that of binary files and of other projects stands in a README."""
    if path.parts[1] == "profiles" and len(path.parts) > 3:
        lines = texts[Path("data/profiles/README.md")].splitlines()
        return next((line for line in lines if f"`{path.parts[2]}`" in line), "")
    match path.suffix:
        case ".json":
            return str(json.loads(texts[path]).get("source", ""))
        case ".toml":
            return str(tomllib.loads(texts[path]).get("source", ""))
        case ".csv":
            return next(csv.DictReader(texts[path].splitlines())).get("source", "")
        case ".onnx" | ".gz":
            lines = texts.get(path.with_name("README.md"), "").splitlines()
            return next((line for line in lines if path.stem in line), "")
        case _:
            return path.name if path.name == "README.md" else ""


def test_no_file_names_a_path_of_one_machine(texts: Texts) -> None:
    assert [str(path) for path, text in texts.items() if MACHINE_PATH.search(text)] == []
