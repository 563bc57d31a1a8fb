"""The floor plan: who may import whom, how large things may be, and what lies where."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOMS = frozenset({"graph", "targets", "profile", "estimate", "plan", "schedule", "report"})
MAY_IMPORT = {
    "records": frozenset(),
    "spawning": frozenset(),
    **{room: frozenset({"records"}) for room in ROOMS},
    "targets": frozenset({"records", "spawning"}),
    "flow": ROOMS | {"records"},
    "load": ROOMS | {"records", "flow"},
    "search": frozenset({"records", "flow", "load", "spawning"}),
    "cli": ROOMS | {"records", "flow", "load", "search", "autoauto"},
    "__main__": frozenset({"cli"}),
    "__init__": ROOMS | {"records", "flow", "load", "search"},
}
TOP_LEVEL = {"pyproject.toml", "README.md", "LICENSE", "autoauto", "tests", "studies", "data"}

Package = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def room(path: Path) -> str:
    """`estimate/table.py` is in "estimate"; `load.py` is a room of its own."""
    return path.parts[0].removesuffix(".py")


def imported_rooms(tree: ast.Module) -> Iterator[str]:
    """The rooms that a file imports, at its top or inside a function; "autoauto" for the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for first, _, rest in (name.partition(".") for name in names):
            inner = rest.partition(".")[0]
            if first == "autoauto":
                yield inner if inner in MAY_IMPORT else "autoauto"


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def n_lines(function: Function) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def public(tree: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """Public functions, classes, and the public members of those classes."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_every_room_is_known(package: Package) -> None:
    assert {room(path) for path in package} <= set(MAY_IMPORT)


def test_rooms_import_only_what_they_may(package: Package) -> None:
    wrong = [
        f"{path} imports {imported}"
        for path, tree in package.items()
        for imported in imported_rooms(tree)
        if imported not in MAY_IMPORT[room(path)] | {room(path)}
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("import autoauto.plan.optimal as o", ["plan"]),
        ("from autoauto.plan import optimal", ["plan"]),
        ("from autoauto import plan, __version__", ["plan", "autoauto"]),
        ("def f():\n    import numpy, autoauto", ["autoauto"]),
        ("import autoautomatic", []),
    ],
)
def test_imports_are_seen(line: str, imported: list[str]) -> None:
    assert list(imported_rooms(ast.parse(line))) == imported


def test_no_file_is_over_400_lines(files: list[Path], root: Path) -> None:
    sources = [path for path in files if path.suffix == ".py"]
    assert [path for path in sources if len((root / path).read_text(encoding="utf-8").splitlines()) > 400] == []


def test_functions_are_short(package: Package) -> None:
    sizes = {
        f"{path} {function.name}": n_lines(function) for path, tree in package.items() for function in functions(tree)
    }
    assert [name for name, size in sizes.items() if size > 60] == []
    assert quantiles(sizes.values(), n=10)[-1] <= 30
    assert median(sizes.values()) < 8


def test_everything_public_has_a_docstring(package: Package) -> None:
    bare = [
        f"{path} {node.name}" for path, tree in package.items() for node in public(tree) if not ast.get_docstring(node)
    ]
    assert bare == []
    assert [path for path, tree in package.items() if not ast.get_docstring(tree)] == []


def test_the_top_level_holds_what_the_design_lists(files: list[Path]) -> None:
    assert {path.parts[0] for path in files if not path.parts[0].startswith(".")} <= TOP_LEVEL


def test_every_source_file_has_its_test_file(package: Package, files: list[Path]) -> None:
    sources = [path for path in package if path.name not in {"__init__.py", "__main__.py"}]
    twins = {path: Path("tests") / path.with_name(f"test_{path.name}") for path in sources}
    assert [str(twin) for twin in twins.values() if twin not in files] == []


def test_every_data_file_names_its_source(files: list[Path], root: Path) -> None:
    data = [root / path for path in files if path.parts[0] == "data"]
    assert [str(path.relative_to(root)) for path in data if not source(path)] == []


def source(path: Path) -> str:
    """What a data file says of where it comes from; an ONNX file's source stands in the README beside it."""
    match path.suffix:
        case ".json":
            return str(json.loads(path.read_text(encoding="utf-8")).get("source", ""))
        case ".toml":
            return str(tomllib.loads(path.read_text(encoding="utf-8")).get("source", ""))
        case ".onnx":
            readme = path.with_name("README.md")
            lines = readme.read_text(encoding="utf-8").splitlines() if readme.is_file() else []
            return next((line for line in lines if path.stem in line), "")
        case _:
            return path.name if path.name == "README.md" else ""


def test_no_file_names_a_path_of_one_machine(files: list[Path], root: Path) -> None:
    machine_path = re.compile(r"(?<![\w.])/(?:home|root|work)/")
    text_files = [path for path in files if path.suffix not in {".onnx", ".png"}]
    found = [str(path) for path in text_files if machine_path.search((root / path).read_text(encoding="utf-8"))]
    assert found == []
