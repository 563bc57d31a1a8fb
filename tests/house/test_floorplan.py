"""The architecture: which room may import which, what a folder holds, and what has a docstring.

    records  <-  graph targets profile estimate plan schedule
    engines  <---------- |                          |
                         +--  space  ---------------+
                                |
                                +--  report  <---------------------------------+
                                +--  exporters  <-  evaluate  <-  study  <-----+-  cli
                                +--  programs  <-------------------------------+
                                +--  serve (targets, exporters)  <-------------+
                                +--  server (study, report)  <-----------------+

Arrows point at the room that is imported; every room also imports `records`, and `cli` may import all of them. Seven
lie below the rooms that use them: `engines` (load, targets, exporters, evaluate), `load` (launch, space,
targets, evaluate, serve), `launch` (engines that are started, for evaluate), `processes`
(targets, profile, programs, exporters, study, serve, server), `http` (serve, server), `database` (profile, study,
server) and `memo` (profile, evaluate, study). `space` gathers what may vary of `targets` and `schedule`; `plugins` lies
below all that it names the values of (engines, targets, profile, exporters). `plugin` is what packages of others import
of ours; nothing of ours imports it.
A room is a folder of the package, or a file beside these folders. An inner room is a folder or a file in a room.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.house.trees import nodes

ROOMS = frozenset({"graph", "targets", "profile", "estimate", "plan", "schedule"})
ALL_BUT_CLI = ROOMS | {
    *("records", "engines", "processes", "database", "space", "report"),
    *("exporters", "evaluate", "study", "programs", "load", "launch", "serve", "server", "http"),
}
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "records": frozenset(),
    "processes": frozenset(),
    "database": frozenset({"records"}),
    "plugins": frozenset({"records"}),
    "plugin": frozenset({"records", "engines", "graph", "targets", "profile", "exporters"}),
    "memo": frozenset(),
    "engines": frozenset({"records", "plugins"}),
    "load": frozenset({"records", "engines"}),
    "launch": frozenset({"records", "engines", "load"}),
    **{room: frozenset({"records"}) for room in ROOMS},
    "targets": frozenset({"records", "engines", "load", "processes", "plugins"}),
    "profile": frozenset({"records", "database", "memo", "plugins", "processes"}),
    "space": frozenset({"records", "load", "targets", "schedule"}),
    "report": frozenset({"records", "space"}),
    "programs": ROOMS | {"records", "processes"},
    "exporters": ROOMS | {"records", "engines", "space", "processes", "plugins"},
    "evaluate": ROOMS | {"records", "engines", "load", "launch", "space", "exporters", "memo"},
    "study": frozenset({"records", "space", "launch", "evaluate", "processes", "database", "memo"}),
    "http": frozenset({"records"}),
    "serve": frozenset({"records", "load", "targets", "exporters", "processes", "http"}),
    "server": ROOMS | {"exporters", "records", "space", "evaluate", "study", "processes", "database", "http", "report"},
    "cli": ALL_BUT_CLI | {"__init__"},
    "__main__": frozenset({"cli", "processes"}),
    "__init__": ALL_BUT_CLI - {"programs", "load", "launch", "serve", "http"},
}
TOP_LEVEL = {
    *("pyproject.toml", "mkdocs.yml", "autoauto", "tests", "studies", "data", "docs", "optunahub"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"),
}
MAX_ENTRIES = 14

Package = Mapping[Path, ast.Module]
Function = ast.FunctionDef | ast.AsyncFunctionDef
ImportGraph = Mapping[str, set[str]]


def room(path: Path) -> str:
    """`estimate/table.py` is in "estimate"; a file beside the folders is a room with its own name."""
    return path.parts[0].removesuffix(".py")


def module(path: Path) -> tuple[str, ...]:
    """The dotted name of a file as parts, without "autoauto"; `plan/__init__.py` is ("plan", "__init__")."""
    return path.with_suffix("").parts


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a file imports, at its top or inside a function."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(tree: ast.Module, modules: set[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The modules of the package, one of `modules` each, that a file imports; ("__init__",) for the package itself."""
    for name in imports(tree):
        first, *parts = name.split(".")
        if first == "autoauto":
            while (*parts,) not in modules and (*parts, "__init__") not in modules:
                parts.pop()
            yield (*parts,) if (*parts,) in modules else (*parts, "__init__")


def inner_rooms(package: Package) -> Mapping[tuple[str, ...], ImportGraph]:
    """For every folder of the package, which of its folders and files import which others."""
    modules = {module(path) for path in package}
    folders: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in package.items():
        importer = module(path)
        for imported in imported_modules(tree, modules):
            n_common = next(i for i, (a, b) in enumerate(zip((*importer, ""), (*imported, ""), strict=False)) if a != b)
            folders[importer[:n_common]][importer[n_common]].add(imported[n_common])
    return folders


def cycle(graph: ImportGraph) -> list[str]:
    """One circle of the graph, its first node repeated at the end; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        nodes: list[str] = error.args[1]
        return nodes
    return []


def public(tree: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """Public functions, classes, and the public members of those classes."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


def test_the_top_level_holds_what_the_design_lists(files: list[Path]) -> None:
    assert {path.parts[0] for path in files if not path.parts[0].startswith(".")} <= TOP_LEVEL


def test_every_room_is_known(package: Package) -> None:
    assert {room(path) for path in package} == set(MAY_IMPORT)


def test_rooms_import_only_what_they_may(package: Package) -> None:
    modules = {module(path) for path in package}
    wrong = [
        f"{path} imports {'.'.join(imported)}"
        for path, tree in package.items()
        for imported in imported_modules(tree, modules)
        if imported[0] not in MAY_IMPORT[room(path)] | {room(path)}
    ]
    assert wrong == []


def test_the_package_does_not_import_tests_or_studies(package: Package) -> None:
    firsts = {name.partition(".")[0] for tree in package.values() for name in imports(tree)}
    assert not firsts & {"tests", "studies"}


@pytest.mark.parametrize(
    ("line", "imported"),
    [
        ("import autoauto.plan.optimal as o", [("plan", "optimal")]),
        ("from autoauto.plan import optimal", [("plan", "optimal")]),
        ("from autoauto.plan.optimal import Bound", [("plan", "optimal")]),
        ("from autoauto.plan import phased, Plan", [("plan", "phased", "__init__"), ("plan", "__init__")]),
        ("from autoauto import plan, __version__", [("plan", "__init__"), ("__init__",)]),
        ("def f():\n    import numpy, autoauto", [("__init__",)]),
        ("import autoautomatic", []),
    ],
)
def test_imports_are_resolved_to_modules(line: str, imported: list[tuple[str, ...]]) -> None:
    modules = {("__init__",), ("plan", "__init__"), ("plan", "optimal"), ("plan", "phased", "__init__")}
    assert list(imported_modules(ast.parse(line), modules)) == imported


def test_inner_rooms_do_not_import_each_other_in_a_circle(package: Package) -> None:
    cycles = {"/".join(folder): cycle(graph) for folder, graph in inner_rooms(package).items()}
    assert {folder: " -> ".join(nodes) for folder, nodes in cycles.items() if nodes} == {}


def test_a_circle_between_inner_rooms_is_found() -> None:
    """a/x/one imports a/y, which imports a/x/two: no circle of modules, but one of inner rooms."""
    lines = {
        "a/x/one.py": "import autoauto.a.y",
        "a/y.py": "from autoauto.a.x import two",
        "a/x/two.py": "import math",
        "a/z.py": "from autoauto.a import y",
    }
    graphs = inner_rooms({Path(name): ast.parse(line) for name, line in lines.items()})
    assert graphs == {("a",): {"x": {"y"}, "y": {"x"}, "z": {"y"}}}
    assert set(cycle(graphs["a",])) == {"x", "y"}


def test_the_listing_of_a_room_is_short(files: list[Path]) -> None:
    entries: dict[Path, set[str]] = defaultdict(set)
    for path in (path.relative_to("autoauto") for path in files if path.parts[0] == "autoauto"):
        for folder in path.parents:
            entries[folder].add(path.relative_to(folder).parts[0])
    n_entries = {folder: len(names - {"__init__.py"}) for folder, names in entries.items() if folder != Path()}
    assert {str(f): n for f, n in n_entries.items() if n > MAX_ENTRIES} == {}


def test_every_class_name_is_defined_once(package: Package) -> None:
    definitions: dict[str, list[str]] = defaultdict(list)
    for path, tree in package.items():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                definitions[node.name].append(str(path))
    assert {name: paths for name, paths in definitions.items() if len(paths) > 1} == {}


def test_no_class_that_another_extends_is_instantiated(package: Package) -> None:
    """Classes are abstract or final; errors, which are caught by their bases, are not."""
    others = [node for path, tree in package.items() if path.name != "errors.py" for node in nodes(tree)]
    classes = [node for node in others if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    called = {node.func.id for node in others if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert bases & called & {node.name for node in classes} == set()


def test_init_files_of_rooms_hold_a_docstring_and_nothing_else(package: Package) -> None:
    inits = {path: tree for path, tree in package.items() if path.name == "__init__.py" and path.parent != Path()}
    assert [str(path) for path, tree in inits.items() if len(tree.body) != 1 or not ast.get_docstring(tree)] == []


def is_override(node: Function | ast.ClassDef) -> bool:
    """An override does what the method of the base class says."""
    return any(isinstance(decorator, ast.Name) and decorator.id == "override" for decorator in node.decorator_list)


def test_everything_public_has_a_docstring(package: Package) -> None:
    undocumented = [
        f"{path} {node.name}"
        for path, tree in package.items()
        for node in public(tree)
        if not ast.get_docstring(node) and not is_override(node)
    ]
    assert undocumented == []
    assert [str(path) for path, tree in package.items() if not ast.get_docstring(tree)] == []


WITH_NAMES = frozenset({"TemporaryDirectory", "mkdtemp"})


def test_temporary_folders_are_those_that_a_later_process_deletes(package: Package) -> None:
    """A folder of the standard library stays for ever where its process is killed."""
    makers = {
        str(path)
        for path, tree in package.items()
        for node in nodes(tree)
        if (isinstance(node, ast.Attribute) and node.attr in WITH_NAMES)
        or (isinstance(node, ast.alias) and node.name in WITH_NAMES)
    }
    assert makers == {"processes/folders.py"}
