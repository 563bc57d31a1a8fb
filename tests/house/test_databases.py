"""What differs between databases is in `autoauto/database/` only: elsewhere no code names one, or needs its SQL."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.house.trees import nodes

NAMES = re.compile(r"sqlite|postgres|psycopg|mysql|mariadb|oracle|mssql", re.IGNORECASE)
EXAMPLE = re.compile(r"(?:sqlite|postgresql):/{2,4}\w")
"""A whole URL, as users copy one; one that is put together has nothing behind its slashes."""
SQL = re.compile(r"\bRETURNING\b|\bON CONFLICT\b|\bPRAGMA\b|\bSKIP LOCKED\b|advisory|\bSELECT (?!1$)")
"""Statements as text say what SQLAlchemy would say to each database in its words, and quote where it has to."""
ATTRIBUTES = re.compile(r"returning|on_conflict\w*|with_for_update|dialect|get_(?:backend|driver)_name|drivername")
TYPES = {"Text", "LargeBinary", "Uuid", "JSON"}
"""Columns of SQLAlchemy whose sizes differ; `registry.py` has those that hold anything."""
PACKAGES = Path("records/installation.py")
"""What pip installs for an extra."""


def named(tree: ast.Module) -> Iterator[str]:
    """What a file says of a database: its name, its own SQL, an attribute that only some statements have."""
    for node in nodes(tree):
        match node:
            case ast.Constant(value=str(text)) if NAMES.search(EXAMPLE.sub("", text)) or SQL.search(text):
                yield text
            case ast.Attribute(attr=name) if ATTRIBUTES.fullmatch(name):
                yield name
            case ast.Import(names=aliases) if any(NAMES.search(alias.name) for alias in aliases):
                yield ast.unparse(node)
            case ast.ImportFrom(module=str(module), names=aliases):
                is_ours = module.startswith("autoauto.")
                if (not is_ours and NAMES.search(module)) or (
                    module.startswith("sqlalchemy") and TYPES & {alias.name for alias in aliases}
                ):
                    yield ast.unparse(node)


def test_no_other_room_names_a_database(package: Mapping[Path, ast.Module]) -> None:
    others = {path: tree for path, tree in package.items() if path.parts[0] != "database" and path != PACKAGES}
    assert [f"{path}: {text}" for path, tree in others.items() for text in named(tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import sqlite3",
        "from sqlalchemy.dialects.postgresql import insert",
        "from sqlalchemy import Column, LargeBinary",
        "url.startswith('postgresql')",
        "url = f'sqlite:///{folder}/trials.db'",
        "text('SELECT pg_advisory_xact_lock(:key)')",
        "text('SELECT extract(epoch FROM now())')",
        "text('SELECT key FROM attributes')",
        "update(table).returning(table.c.key)",
        "engine.dialect",
        "def wait():\n    '''MySQL takes no lock.'''",
    ],
)
def test_what_names_a_database_is_recognised(line: str) -> None:
    assert list(named(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "hint = 'try sqlite:///studies/autoauto.db'",
        "text('SELECT 1')",
        "from sqlalchemy import Column, String, select",
        "from autoauto.database.sqlite import file_url",
    ],
)
def test_other_lines_are_free(line: str) -> None:
    assert list(named(ast.parse(line))) == []
