"""The public names of the package: what `dir`, `help`, completion and type checkers see."""

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

import autoauto
from autoauto import plugin
from autoauto.study.search import search


def imported_for_type_checkers(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The names that a module imports under TYPE_CHECKING, with their modules."""
    tree = ast.parse(inspect.getsource(module))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        yield from ((alias.name, str(node.module)) for alias in node.names)


@pytest.mark.parametrize("module", [autoauto, plugin])
def test_type_checkers_and_python_see_the_same_names(module: ModuleType) -> None:
    assert dict(imported_for_type_checkers(module)) == module._MODULES
    assert sorted(module._MODULES) == sorted(module.__all__)
    assert all(getattr(module, name) is getattr(import_module(of), name) for name, of in module._MODULES.items())


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


def test_the_page_for_packages_imports_ours_by_one_name(root: Path) -> None:
    page = (root / "docs/extend.md").read_text(encoding="utf-8")
    imported = set(re.findall(r"(?:from|import) (autoauto[\w.]*)", page))
    assert imported == {"autoauto.plugin"}
    named = {name for names in re.findall(r"from autoauto\.plugin import (.*)", page) for name in names.split(", ")}
    assert named <= set(plugin.__all__)


def test_the_names_for_packages_load_no_large_library() -> None:
    program = "import sys; from autoauto.plugin import NamedTarget, Session, Knob; print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
