"""Conditions on a configuration or on its results, as expressions: `Constraint`."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from keyword import iskeyword
from math import inf, isfinite, isnan
from typing import NamedTuple

from autoauto.records.costs.traffic.requests import PERCENTS
from autoauto.records.errors import BadInput, did_you_mean
from autoauto.records.units import digits
from autoauto.space.numbers import RESULT_NAMES, TIMES_OF_REQUESTS
from autoauto.space.table import KNOB_NAMES

MAX_CHARACTERS = 500  # of an expression
MAX_DEPTH = 40  # expressions within expressions
MAX_CONSTRAINTS = 100  # of a search
MIN_VIOLATION = 1e-9
"""The violation of a comparison that does not hold although both sides are equal, for example 1 < 1."""

_ARITHMETIC: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.AST], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ConstraintCheck(NamedTuple):
    """Whether an expression holds, and its margin relative to the numbers that it compares.

    The `violation` is above 0 when it does not hold, else at most 0.
    """

    holds: bool
    violation: float


@dataclass(frozen=True, slots=True)
class Constraint:
    """An expression that must hold: numbers, names, `+ - * /`, comparisons, `and`, `or`, `not`, and brackets.

    A number may have a unit, and "latency", "ttft", "tpot" and "request_latency" are seconds. So are percentiles over
    requests: "ttft_p99", "tpot_p90", "latency_p95".

    Attributes:
        text: the expression in seconds and bytes as Python formats it, so that units, spaces and redundant brackets
            make no difference.

    Raises:
        BadInput: it is no such expression, or contains an unknown name.

    >>> bound = Constraint("latency_s<=0.02")
    >>> bound.text, bound.over_knobs, Constraint("n_ipu * replicas <= 16").over_knobs
    ('latency_s <= 0.02', False, True)
    >>> round(bound.violation({"latency_s": 0.03}), 6), bound.violation({"latency_s": 0.01})
    (0.5, -1.0)
    >>> bound.reason({"latency_s": 0.03})
    'latency_s <= 0.02 does not hold: latency_s is 0.03'
    >>> Constraint("tpot < 50ms and peak_memory_bytes <= 2 GiB").text
    'tpot_s < 0.05 and peak_memory_bytes <= 2147483648.0'
    >>> Constraint("ttft_p99 <= 500ms").text
    'ttft_p99_s <= 0.5'
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise BadInput(f'a constraint is an expression like "latency_s <= 0.02", got {self.text!r}')
        if len(self.text) > MAX_CHARACTERS:
            raise BadInput(
                f"a constraint has at most {MAX_CHARACTERS} characters, got {len(self.text)}; try several constraints"
            )
        object.__setattr__(self, "text", ast.unparse(_parsed(_in_base_units(self.text))))
        if not self.names:
            raise _bad(self.text, "it names nothing")

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the expression, each once, in order."""
        nodes = [node for node in ast.walk(_parsed(self.text)) if isinstance(node, ast.Name)]
        nodes.sort(key=lambda node: node.col_offset)  # `walk` is breadth first
        return tuple(dict.fromkeys(node.id for node in nodes))

    @property
    def over_knobs(self) -> bool:
        """True if the constraint names knobs only, so that it is checked before a configuration is estimated."""
        return set(self.names) <= set(KNOB_NAMES)

    def bounds(self, name: str) -> tuple[float, ...]:
        """The numbers that `name` alone is compared with in comparisons that must all hold."""
        tree = _parsed(self.text)
        parts = [tree]
        if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
            parts = tree.values
        numbers = []
        for part in parts:
            if isinstance(part, ast.Compare):
                for left, right in pairwise([part.left, *part.comparators]):
                    for named, number in ((left, right), (right, left)):
                        if isinstance(named, ast.Name) and named.id == name and isinstance(number, ast.Constant):
                            numbers.append(_number(number, {}))
        return tuple(numbers)

    def violation(self, values: Mapping[str, float]) -> float:
        """Distance from holding, relative to the numbers compared: above 0 when it does not hold.

        Of parts joined by `and` the largest violation counts, of parts joined by `or` the smallest. An expression that
        divides by 0 does not hold.
        """
        try:
            check = _check(_parsed(self.text), values)
        except ZeroDivisionError:
            return 1.0
        # Equal sides have a difference of 0 whether a comparison holds or not: the sign says whether it does.
        if check.holds:
            return min(check.violation, 0.0)
        return max(check.violation, MIN_VIOLATION)

    def reason(self, values: Mapping[str, float]) -> str:
        """A line that says that it does not hold, and for which values."""
        shown = ", ".join(f"{name} is {digits(values[name], 4)}" for name in self.names)
        return f"{self.text} does not hold: {shown}"


_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_UNITS = {**_TIMES, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_NUMBER_AND_WORD = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+) ?(?![eE][+-]?\d)([a-zA-Z]+)\b")
_IN_SECONDS = re.compile(rf"\b((?:{'|'.join(TIMES_OF_REQUESTS)})(?:_(?:{'|'.join(PERCENTS)}))?|request_latency)\b")
_OF_TIME = re.compile(rf"{'|'.join(TIMES_OF_REQUESTS)}|[a-zA-Z]\w*(?<!_per)_s\b")
_OF_BYTES = re.compile(r"\b\w*bytes")


def _in_base_units(text: str) -> str:
    """The expression in seconds and bytes, with the names of results."""

    def converted(match: re.Match[str]) -> str:
        number, word = match.groups()
        if iskeyword(word):  # "1 and": it belongs to the expression
            return match[0]
        if word not in _UNITS:
            raise _bad(text, f"there is no unit {word}; units are {', '.join(_UNITS)}", "")
        return repr(float(f"{float(number) * _UNITS[word]:.12g}"))

    in_units = _NUMBER_AND_WORD.sub(converted, text)
    for comparison in re.split(r"\b(?:and|or)\b", text):
        _check_units(text, comparison)
    return _IN_SECONDS.sub(r"\1_s", in_units)


def _check_units(text: str, comparison: str) -> None:
    """Refuse units that are not of what they are compared with: the number would be converted, and mean nothing."""
    units = {match[2] for match in _NUMBER_AND_WORD.finditer(comparison)}.intersection(_UNITS)
    time = _IN_SECONDS.search(comparison)
    if time is not None and units.isdisjoint(_TIMES):
        raise _bad(text, f"{time[1]} needs a number with its unit; try for example {time[1]} <= 50ms", "")
    for unit in sorted(units):
        what, names = ("a time", _OF_TIME) if unit in _TIMES else ("a number of bytes", _OF_BYTES)
        if names.search(comparison) is None:
            raise _bad(text, f"{unit} is the unit of {what}, and no name beside it is one; leave it out", "")


@lru_cache(maxsize=1_000)
def _parsed(text: str) -> ast.expr:
    """The tree of an expression with a truth value, in which all nodes are allowed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example for "1or 2"
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        problem = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _bad(text, problem or "it is nested too deeply") from None
    _check_truth(tree, text, 0)
    return tree


def _check_truth(node: ast.AST, text: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _bad(text, f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check_truth(part, text, depth + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_truth(node.operand, text, depth + 1)
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        for part in (node.left, *node.comparators):
            _check_number(part, text, depth + 1)
    else:
        raise _bad(text, f"{_shown(node)} is no comparison")


def _check_number(node: ast.AST, text: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _bad(text, f"it is nested more than {MAX_DEPTH} deep")
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        _check_number(node.left, text, depth + 1)
        _check_number(node.right, text, depth + 1)
        # What has no finite value whatever the names are: with it no configuration, or every one, would hold.
        if isinstance(node.op, ast.Div) and _constant(node.right) == 0:
            raise _bad(text, f"{_shown(node)} divides by 0")
        value = _constant(node)
        if value is not None and not isfinite(value):
            raise _bad(text, f"{_shown(node)} is no finite number")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        _check_number(node.operand, text, depth + 1)
    elif isinstance(node, ast.Name):
        known = (*KNOB_NAMES, *RESULT_NAMES)
        if node.id not in known:
            hint = did_you_mean(node.id, known, f"there are {', '.join(known)}")
            raise _bad(text, f"there is no {node.id}; {hint}", "")
    elif not (isinstance(node, ast.Constant) and _is_number(node.value)):
        raise _bad(text, f"{_shown(node)} is neither a number nor a sum, product or quotient of numbers")


def _constant(node: ast.expr) -> float | None:
    """The value of an expression without names; None with names."""
    if any(isinstance(part, ast.Name) for part in ast.walk(node)):
        return None
    return _number(node, {})


def _is_number(value: object) -> bool:
    """True if a constant is a number that fits a float; infinity and True, which Python counts as an int, are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _bad(text: str, problem: str, hint: str = '; try for example "latency_s <= 0.02"') -> BadInput:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return BadInput(f"a constraint compares numbers and names of knobs and results, got {shown!r}: {problem}{hint}")


def _shown(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return "it"
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _check(node: ast.expr, values: Mapping[str, float]) -> ConstraintCheck:
    if isinstance(node, ast.BoolOp):
        parts = [_check(part, values) for part in node.values]
        violations = [part.violation for part in parts]
        if isinstance(node.op, ast.And):
            return ConstraintCheck(all(part.holds for part in parts), max(violations))
        return ConstraintCheck(any(part.holds for part in parts), min(violations))
    if isinstance(node, ast.UnaryOp):
        check = _check(node.operand, values)
        return ConstraintCheck(not check.holds, -check.violation)
    assert isinstance(node, ast.Compare)
    numbers = [_number(part, values) for part in (node.left, *node.comparators)]
    # As in Python, a < b < c is a < b and b < c.
    links = [_compare(op, left, right) for op, (left, right) in zip(node.ops, pairwise(numbers), strict=True)]
    return ConstraintCheck(all(link.holds for link in links), max(link.violation for link in links))


def _compare(op: ast.cmpop, left: float, right: float) -> ConstraintCheck:
    """The violation is the difference relative to the smaller number: 0.03 violates a bound of 0.02 by half."""
    holds = _COMPARISONS[type(op)](left, right)
    smaller, larger = sorted((abs(left), abs(right)))
    share = (left - right) / (smaller or larger or 1.0)
    if isnan(share):  # both sides are infinite, or one is no number
        violation = -inf if holds else inf
    elif isinstance(op, ast.Eq | ast.NotEq):
        violation = -abs(share) if holds else max(abs(share), MIN_VIOLATION)
    elif isinstance(op, ast.Lt | ast.LtE):
        violation = share
    else:
        violation = -share
    return ConstraintCheck(holds, violation)


def _number(node: ast.expr, values: Mapping[str, float]) -> float:
    """The value of a node as a float, which overflows to infinity, where an int would grow without bound."""
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_number(node.left, values), _number(node.right, values))
    if isinstance(node, ast.UnaryOp):
        number = _number(node.operand, values)
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Name):
        return float(values[node.id])
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return float(node.value)
