"""What the tests of a room find: subtle mutants of its code, each against the default tests of that room.

    python studies/mutants.py targets/ipu [--seed 0] [--n 12] [--json]

ROOM is a folder or a file of `autoauto/`. A seed decides its mutants: first a kind (`KINDS`), then a position in the
code, so that kinds are alike however often they can be. Docstrings, type hints, decorators, texts and what is logged or
raised stay as they are. Tests run in a copy of the working tree, those of `tests/ROOM` and the docstrings of
`autoauto/ROOM`; tests named as the changed file come first. A mutant is killed when they fail, or do not end in
`TIMES_AS_LONG` times what the unchanged code takes. The share that is killed has Wilson's 95 % interval (Wilson,
Probable inference, J. Am. Stat. Assoc. 22, 1927). Survivors are shown as diffs: each asks for a test, or changes
nothing that can be seen; those are listed with the reason in `studies/recorded/equivalent_mutants.csv`, and are not
drawn again.
"""

from __future__ import annotations

import argparse
import ast
import csv
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
EQUIVALENT = ROOT / "studies" / "recorded" / "equivalent_mutants.csv"
TIMES_AS_LONG, MIN_LIMIT_S, FIRST_LIMIT_S, INTERRUPT_S = 3, 60.0, 1800.0, 20.0
NORMAL_95 = 1.959964
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult},
    **{ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
}
OTHER_NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}
KINDS = ("comparison", "constant", "name", "and-or", "not", "operator", "arguments", "condition", "drop", "empty")
SYMMETRIC = frozenset({"min", "max", "gcd", "isclose", "array_equal", "minimum", "maximum", "and_", "or_"})
SAID = frozenset({"log", "_log", "print", "warn", "debug", "info", "warning", "error", "add_argument"})


class Mutant(NamedTuple):
    """Bytes of a file, from `start` to `end`, that are replaced by `text`."""

    path: str
    kind: str
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file with the mutant in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """The lines that change, as they are and as they become, without spaces around them."""
        first = source.rfind(b"\n", 0, self.start) + 1
        rest = len(source) - source.find(b"\n", self.end)
        changed = self.applied(source)
        return source[first:-rest].decode().strip(), changed[first:-rest].decode().strip()

    def diff(self, source: bytes) -> str:
        """As `patch -p1` reads it."""
        before, after = (text.decode().splitlines(keepends=True) for text in (source, self.applied(source)))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", n=2))


class Result(NamedTuple):
    """Whether tests saw a mutant: "killed", "timeout" or "survived"."""

    mutant: Mutant
    verdict: str


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of its code.

    >>> [mutant.text for mutant in mutants_of("autoauto/memo.py", b"def f(a: int = 1):\\n    return a < min(a, 2)\\n")]
    ['0', '2', 'a <= min(a, 2)', 'max', '1', '3']
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    made = []
    for node in _changeable(ast.parse(source)):
        for kind, part, text in (*_of_expression(node), *_of_statement(node)):
            start = starts[part.lineno - 1] + part.col_offset
            made.append(Mutant(path, kind, start, starts[part.end_lineno - 1] + part.end_col_offset, text))
    return made


def _changeable(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a tree, but for docstrings, type hints, decorators, texts, and what is logged or raised."""
    if isinstance(node, ast.JoinedStr) or _is_said(node):
        return
    yield node
    if isinstance(node, ast.Raise):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_types(child):
                yield from _changeable(child)


def _is_for_types(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.Import | ast.ImportFrom)


def _has_order(call: ast.Call) -> bool:
    """Whether one can swap two arguments of a call, and that may matter."""
    return not any(isinstance(each, ast.Starred) for each in call.args) and _name(call) not in SYMMETRIC


def _is_said(node: ast.AST) -> bool:
    """Whether a node writes a message or a help text."""
    return isinstance(node, ast.Call) and _name(node) in SAID


def _name(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _of_expression(node: ast.AST) -> Iterator[tuple[str, Any, str]]:
    """The mutants of an expression: a kind, the node that is replaced, and the text that replaces it."""
    match node:
        case ast.Compare(ops=ops):
            for index, operator in enumerate(ops):
                yield "comparison", node, _written(node, ops=_with(ops, index, COMPARISONS[type(operator)]()))
        case ast.Constant(value=bool(value)):
            yield "constant", node, str(not value)
        case ast.Constant(value=int(value)):
            for other in (value - 1, value + 1):
                yield "constant", node, str(other) if other >= 0 else f"({other})"
        case ast.Name(id=name) if name in OTHER_NAMES:
            yield "name", node, OTHER_NAMES[name]
        case ast.BoolOp(op=ast.And()):
            yield "and-or", node, f"({_written(node, op=ast.Or())})"
        case ast.BoolOp():
            yield "and-or", node, f"({_written(node, op=ast.And())})"
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, f"({ast.unparse(node.operand)})"
        case ast.BinOp(op=operation) if type(operation) in OPERATORS and not _is_text(node):
            yield "operator", node, f"({_written(node, op=OPERATORS[type(operation)]())})"
        case ast.Call(args=args) if _has_order(node):
            for index in range(len(args) - 1):
                swapped = _with(_with(args, index, args[index + 1]), index + 1, args[index])
                yield "arguments", node, _written(node, args=swapped)


def _of_statement(node: ast.AST) -> Iterator[tuple[str, Any, str]]:
    """The mutants of a statement, or of a condition."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.AugAssign(op=operator):
            if type(operator) in OPERATORS:
                yield "operator", node, _written(node, op=OPERATORS[type(operator)]())
            yield "drop", node, "pass"
        case ast.Expr(value=ast.Call() as call) if not _is_said(call):
            yield "drop", node, "pass"
        case ast.Raise() | ast.Break() | ast.Continue() | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "drop", node, "pass"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _emptied(node)


def _with(items: Sequence[Any], index: int, item: Any) -> list[Any]:
    """A list with another item at a position."""
    return [*items[:index], item, *items[index + 1 :]]


def _emptied(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, Any, str]]:
    """A function that returns at its start, where its type hint says that it gives nothing, a list or a dict."""
    returns = "" if node.returns is None else ast.unparse(node.returns)
    empty = {"None": "return", "list": "return []", "dict": "return {}"}.get(returns.partition("[")[0])
    first = node.body[bool(ast.get_docstring(node)) :]
    if empty is None or not first or isinstance(first[0], ast.Pass | ast.Raise | ast.Expr):
        return
    yield "empty", _StartOf(first[0]), f"{empty}\n{' ' * first[0].col_offset}"


class _StartOf:
    """The position before a node."""

    def __init__(self, node: ast.stmt) -> None:
        self.lineno = self.end_lineno = node.lineno
        self.col_offset = self.end_col_offset = node.col_offset


def _is_text(node: ast.BinOp) -> bool:
    """Whether a sum is of texts or lists, as far as one can see."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.JoinedStr | ast.List | ast.Tuple)]
    return bool(parts) or any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(node))


def _written(node: ast.AST, **fields: Any) -> str:
    """The code of a node with other fields."""
    other = deepcopy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return ast.unparse(other)


def drawn(mutants: Sequence[Mutant], seed: int, n: int) -> list[Mutant]:
    """`n` mutants, of a kind each, on lines of their own."""
    random = Random(seed)
    chosen: list[Mutant] = []
    taken: set[tuple[str, int]] = set()
    left = {kind: [mutant for mutant in mutants if mutant.kind == kind] for kind in KINDS}
    while len(chosen) < n and any(left.values()):
        kind = random.choice([kind for kind, some in left.items() if some])
        mutant = left[kind].pop(random.randrange(len(left[kind])))
        if (mutant.path, mutant.start) not in taken:
            chosen.append(mutant)
            taken.add((mutant.path, mutant.start))
    return chosen


def equivalent() -> set[tuple[str, str, str]]:
    """The path, the line and the changed line of mutants that change nothing that can be seen."""
    with EQUIVALENT.open(encoding="utf-8", newline="") as file:
        return {(row["path"], row["before"], row["after"]) for row in csv.DictReader(file)}


def wilson(n_killed: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson.

    >>> [round(end, 3) for end in wilson(8, 10)]
    [0.49, 0.943]
    """
    share, square = n_killed / n, NORMAL_95**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = NORMAL_95 * sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def run_tests(copy: Path, room: str, changed: str, limit_s: float) -> int | None:
    """The exit code of the default tests of a room in a copy of the working tree, None when they do not end."""
    tests = copy / "tests" / Path(room).with_suffix("")
    while not tests.is_dir():  # a file, or an inner room, whose tests are those of the room around it
        tests = tests.parent
    named = sorted(tests.rglob(f"test_{Path(changed).stem}.py"))
    targets = [*map(str, named), str(tests), str(copy / "autoauto" / room)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *targets]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that fixtures end the processes that they started
        with suppress(subprocess.TimeoutExpired):
            process.wait(INTERRUPT_S)
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_mutants(room: str, mutants: Sequence[Mutant]) -> list[Result]:
    """Run the tests of a room for each mutant, in a copy of the working tree.

    Raises:
        SystemExit: they fail without a mutant.
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder, "tree")
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        started_s = time.monotonic()
        if run_tests(copy, room, room, FIRST_LIMIT_S) != 0:
            raise SystemExit(f"mutants: the default tests of {room} must pass without a mutant, and fail; repair them")
        limit_s = max(MIN_LIMIT_S, TIMES_AS_LONG * (time.monotonic() - started_s))
        for mutant in mutants:
            file = copy / mutant.path
            source = file.read_bytes()
            file.write_bytes(mutant.applied(source))
            code = run_tests(copy, room, mutant.path, limit_s)
            file.write_bytes(source)
            verdict = {None: "timeout", 0: "survived"}.get(code, "killed")
            results.append(Result(mutant, verdict))
    return results


def main() -> None:
    """Draw mutants, run the tests, and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", help="a folder or a file of autoauto/, as targets/ipu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=12, help="mutants")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    room = ROOT / "autoauto" / arguments.room
    files = sorted(room.rglob("*.py")) if room.is_dir() else [room]
    if not files or not all(file.is_file() for file in files):
        parser.error(f"ROOM must be a folder or a file of autoauto/ with code, got {arguments.room!r}")
    sources = {str(file.relative_to(ROOT)): file.read_bytes() for file in files}
    known = equivalent()
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    every = [mutant for mutant in every if (mutant.path, *mutant.lines(sources[mutant.path])) not in known]
    results = run_mutants(arguments.room, drawn(every, arguments.seed, arguments.n))
    if not results:
        parser.error(f"{arguments.room} has nothing to change; choose another room")
    n_killed = sum(result.verdict != "survived" for result in results)
    low, high = wilson(n_killed, len(results))
    survivors = [each.mutant.diff(sources[each.mutant.path]) for each in results if each.verdict == "survived"]
    if arguments.json:
        numbers = {"room": arguments.room, "seed": arguments.seed, "n": len(results), "killed": n_killed}
        print(json.dumps({**numbers, "interval": [low, high], "survivors": survivors}))
        return
    print(*survivors, sep="\n", end="")
    print(f"{arguments.room} seed {arguments.seed}: {n_killed} of {len(results)} killed, {low:.0%} to {high:.0%}")


if __name__ == "__main__":
    main()
