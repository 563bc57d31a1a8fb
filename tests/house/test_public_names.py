"""The public names of the package: what `dir`, `help`, completion and type checkers see."""

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import autoauto
from autoauto.study.search import search


def imported_for_type_checkers(root: Path) -> Iterator[tuple[str, str]]:
    """The names that autoauto/__init__.py imports under TYPE_CHECKING, with their modules."""
    tree = ast.parse((root / "autoauto/__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        yield from ((alias.name, str(node.module)) for alias in node.names)


def test_type_checkers_and_python_see_the_same_names(root: Path) -> None:
    assert dict(imported_for_type_checkers(root)) == autoauto._MODULES
    assert sorted(autoauto._MODULES) == sorted(autoauto.__all__)


def test_dir_has_the_public_names_and_no_others() -> None:
    assert [name for name in dir(autoauto) if not name.startswith("__")] == sorted(autoauto.__all__)
    assert {"__doc__", "__file__", "__path__", "__version__"} <= set(dir(autoauto))


@pytest.mark.parametrize("name", autoauto.__all__)
def test_a_public_name_is_defined_where_it_is_looked_up(name: str) -> None:
    value = getattr(autoauto, name)
    assert value.__name__ == name
    assert value.__module__ == autoauto._MODULES[name]
    assert inspect.getdoc(value)


def test_an_unknown_name_is_an_attribute_error() -> None:
    name = "serach"
    with pytest.raises(AttributeError, match=r"^module 'autoauto' has no attribute 'serach'$"):
        getattr(autoauto, name)


def test_help_of_the_package_has_every_public_name() -> None:
    text = pydoc.plain(pydoc.render_doc(autoauto))
    assert [name for name in autoauto.__all__ if name not in text] == []


def test_help_of_search_is_its_own() -> None:
    assert inspect.signature(autoauto.search) == inspect.signature(search)
    assert list(inspect.signature(autoauto.search).parameters)[:3] == ["model", "cluster", "space"]
    text = pydoc.plain(pydoc.render_doc(autoauto.search))
    assert "function search in module autoauto.study.search" in text
    described = text.partition("Args:")[2].partition("Raises:")[0]
    assert [
        name for name in inspect.signature(autoauto.search).parameters if not re.search(rf"\b{name}\b", described)
    ] == []


@pytest.mark.parametrize("name", ["search", "search_flow", "load_flow", "trials_dataframe"])
def test_type_hints_can_be_read(name: str) -> None:
    assert get_type_hints(getattr(autoauto, name))["return"]
