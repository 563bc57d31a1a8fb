"""The options that an engine's parser defines, read from its wheel without running it: `data/engines/*.csv`.

    pip download vllm==0.33.0 sglang==0.5.23 --no-deps --dest wheels
    python -m studies.engine_options vllm wheels/vllm-0.33.0-*.whl >data/engines/vllm.csv
    python -m studies.engine_options sglang wheels/sglang-0.5.23-*.whl >data/engines/sglang.csv

One row an option, with its kind (flag, int, float, text) and the values that it accepts, where they are listed in the
source. Variables are those of uneven stages and of the transfer of caches. TensorRT-LLM has no wheel on the registry:
`data/engines/tensorrt_llm.csv` was read by hand from the source that it names.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

_VARIABLE = re.compile(r'"([A-Z]+_PP_LAYER_PARTITION|VLLM_NIXL_SIDE_CHANNEL_(?:HOST|PORT))"')
_KINDS = {"int": "int", "float": "float", "bool": "flag"}
_MOST_CHOICES = 64


class Row(NamedTuple):
    """An option: its name, its kind, and the values that it accepts, or none where all are."""

    name: str
    kind: str
    choices: tuple[str, ...] = ()


class Sources:
    """Modules of a wheel as syntax trees."""

    def __init__(self, wheel: Path, pattern: str) -> None:
        """Read the modules whose path matches a pattern."""
        with ZipFile(wheel) as files:
            names = [name for name in files.namelist() if re.fullmatch(pattern, name)]
            self.texts = {name: files.read(name).decode("utf-8") for name in names}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        nodes = [node for tree in self.trees.values() for node in ast.walk(tree)]
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        self.values = {
            node.targets[0].id: node.value
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def fields(self, name: str) -> dict[str, ast.expr]:
        """The annotations of the fields of a class and of the classes that it extends."""
        known: dict[str, ast.expr] = {}
        if name not in self.classes:
            return known
        for base in self.classes[name].bases:
            known |= self.fields(ast.unparse(base))
        for each in self.classes[name].body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                known[each.target.id] = each.annotation
        return known

    def texts_of(self, node: ast.expr | None) -> tuple[str, ...]:
        """A list of texts, or those of a `Literal`; also by the name of a module's constant. () where it is neither."""
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.texts_of(self.values[node.id])
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            node = node.slice if isinstance(node.slice, ast.Tuple) else ast.Tuple([node.slice], ast.Load())
        if not isinstance(node, ast.List | ast.Tuple):
            return ()
        values = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        return tuple(map(str, values)) if len(values) == len(node.elts) else ()

    def row(self, name: str, annotation: ast.expr, choices: tuple[str, ...] = ()) -> Row:
        """The option of a field: None beside a type means that it may be left out, str that others may add values."""
        parts = [part for part in _parts(annotation) if ast.unparse(part) != "None"]
        kinds = [_KINDS.get(ast.unparse(part), "text") for part in parts]
        listed = choices or tuple(text for part in parts for text in self.texts_of(part))
        kind = kinds[0] if len({*kinds}) == 1 else "text"
        return Row(name, kind, listed if len(listed) <= _MOST_CHOICES else ())


def _parts(annotation: ast.expr) -> list[ast.expr]:
    """The members of a union."""
    if isinstance(annotation, ast.BinOp):
        return [*_parts(annotation.left), *_parts(annotation.right)]
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Optional":
        return _parts(annotation.slice)
    return [annotation]


def _dashed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _calls(tree: ast.AST) -> Iterator[tuple[list[str], ast.Call]]:
    """Calls of `add_argument`, with the long names of their options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
            yield [text for text in texts if isinstance(text, str) and text.startswith("--")], node


def _called(sources: Sources, name: str, call: ast.Call) -> Row:
    """An option whose kind is said where it is added."""
    given = {each.arg: each.value for each in call.keywords if each.arg}
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_true" in action or "StoreTrue" in action or "BooleanOptional" in action:
        return Row(name, "flag")
    kind = _KINDS.get(ast.unparse(given["type"]), "text") if "type" in given else "text"
    return Row(name, kind, sources.texts_of(given.get("choices")))


def vllm(wheel: Path) -> Iterator[Row]:
    """Options of `vllm serve`: fields of configurations, those of the front end, and a few of their own."""
    pattern = (
        r"vllm/(config/\w+|engine/arg_utils|envs|entrypoints/common/cli_args|\w+/layers/quantization/__init__)\.py"
    )
    sources = Sources(wheel, pattern.replace(r"\w+/layers", "model_executor/layers"))
    tree = sources.trees["vllm/engine/arg_utils.py"]
    classes: dict[str, str] = {}
    for node in ast.walk(tree):
        made = node.value if isinstance(node, ast.Assign) else None
        if isinstance(made, ast.Call) and ast.unparse(made.func) == "get_kwargs" and isinstance(node, ast.Assign):
            classes[ast.unparse(node.targets[0])] = ast.unparse(made.args[0])
    front_end = sources.trees["vllm/entrypoints/common/cli_args.py"]
    for names, call in [*_calls(tree), *_calls(front_end)]:
        field = _field(sources, classes, call)
        for name in names:
            yield _called(sources, name, call) if field is None else sources.row(name, field)
    for name, annotation in sources.fields("FrontendArgs").items():
        yield sources.row(_dashed(name), annotation)
    yield from _variables(sources)


def _field(sources: Sources, classes: Mapping[str, str], call: ast.Call) -> ast.expr | None:
    """The annotation of the field whose arguments a call spreads: `**of_a_class["field"]`."""
    for node in ast.walk(call):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            fields = sources.fields(classes.get(ast.unparse(node.value), ""))
            if str(node.slice.value) in fields:
                return fields[str(node.slice.value)]
    return None


def sglang(wheel: Path) -> Iterator[Row]:
    """Options of `sglang.launch_server`: annotated fields, and those that are added by themselves."""
    sources = Sources(wheel, r"sglang/srt/(arg_groups/fields/\w+|arg_groups/choices|server_args|distributed/utils)\.py")
    for name in sources.classes:
        for field, annotation in sources.fields(name).items():
            yield from _annotated(sources, field, annotation)
    for names, call in _calls(sources.trees["sglang/srt/server_args.py"]):
        for option in names:
            yield _called(sources, option, call)
    yield from _variables(sources)


def _annotated(sources: Sources, field: str, annotation: ast.expr) -> Iterator[Row]:
    """The options of a field `A[type, help]` or `A[type, Arg(...)]`."""
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "A"):
        return
    assert isinstance(annotation.slice, ast.Tuple)
    type_, *others = annotation.slice.elts
    given: dict[str | None, ast.expr] = {}
    for each in others:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "Arg":
            given = {keyword.arg: keyword.value for keyword in each.keywords}
        elif isinstance(each, ast.Call):
            return  # it is derived
    if "no_cli" in given:
        return
    own = given.get("cli_name")
    name = str(own.value) if isinstance(own, ast.Constant) else _dashed(field)
    for option in (name, *sources.texts_of(given.get("aliases"))):
        if "action" in given:
            yield Row(option, "text")
        else:
            yield sources.row(option, type_, sources.texts_of(given.get("choices")))


def _variables(sources: Sources) -> Iterator[Row]:
    known = {name for text in sources.texts.values() for name in _VARIABLE.findall(text)}
    yield from (Row(name, "variable") for name in sorted(known))


Reader = Callable[[Path], Iterator[Row]]
READERS: Mapping[str, Reader] = {"vllm": vllm, "sglang": sglang}


def main() -> None:
    """Print the table of an engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=READERS)
    parser.add_argument("wheel", type=Path)
    args = parser.parse_args()
    package, version = args.wheel.name.split("-")[:2]
    rows = {row.name: row for row in READERS[args.engine](args.wheel)}
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((*Row._fields, "source"))
    source = f"package {package} {version}; Apache-2.0; names and kinds by studies/engine_options.py"
    for row in sorted(rows.values()):
        writer.writerow((row.name, row.kind, " ".join(row.choices), source))
        source = ""  # in the first row


if __name__ == "__main__":
    main()
