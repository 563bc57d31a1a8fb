"""Types stay small: how many fields a class has, and how many parameters a function.

What is larger than the bounds is listed, so that a list can only become shorter.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.trees import nodes, parsed

Package = Mapping[Path, ast.Module]
MAX_FIELDS, MAX_PARAMETERS = 12, 8
LARGE_CLASSES = {
    *("Trial", "StageFile", "TargetTraits", "Phase", "CostTable", "StageTask", "NamedTarget", "Decoder"),
}
LARGE_FUNCTIONS = {
    *("search", "search_flow", "search_for_max_throughput", "run_search", "load_flow", "export"),  # for users
    *("make_schedule",),
    *("batch_serialise", "batch_serialise_fwd_and_grad"),
    *("OpenPlan.__init__", "Pipelines.__init__"),
}
RUNTIMES = re.compile(r"onnxruntime|openvino|cuda", re.IGNORECASE)


def n_fields(node: ast.ClassDef) -> int:
    fields = (item for item in node.body if isinstance(item, ast.AnnAssign))
    return sum("ClassVar" not in ast.unparse(item.annotation) for item in fields)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions with their names; methods with the name of their class where that says more."""
    for node in nodes(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{item.name}" if item.name == "__init__" else item.name, item
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node


def n_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return sum(each.arg not in ("self", "cls") for each in every)


def test_only_listed_classes_have_many_fields(package: Package) -> None:
    classes = [node for tree in package.values() for node in nodes(tree) if isinstance(node, ast.ClassDef)]
    assert {node.name for node in classes if n_fields(node) > MAX_FIELDS} == LARGE_CLASSES


def test_only_listed_functions_have_many_parameters(package: Package) -> None:
    every = [pair for tree in package.values() for pair in functions(tree)]
    assert {name for name, node in every if n_parameters(node) > MAX_PARAMETERS} == LARGE_FUNCTIONS


def test_records_name_no_runtime(files: list[Path]) -> None:
    """Only what pip installs for an extra does."""
    records = [path for path in files if path.parts[:2] == ("autoauto", "records") and path.name != "installation.py"]
    root = Path(__file__).parents[2]
    code = {path: parsed((root / path).read_text(encoding="utf-8")) for path in records if path.suffix == ".py"}
    named = {
        str(path)
        for path, tree in code.items()
        for node in nodes(tree)
        if isinstance(node, ast.Name | ast.Attribute | ast.ClassDef | ast.FunctionDef)
        and RUNTIMES.search(getattr(node, "name", "") or getattr(node, "id", "") or getattr(node, "attr", ""))
    }
    assert named == set()
