"""What must hold of a configuration or of what came of it, as an expression: `Constraint`."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from math import inf, isnan
from typing import NamedTuple

from autoauto.records.errors import BadInput

KNOB_NAMES = (
    "n_ipu",
    "memory_proportion",
    "batch_size",
    "recompute",
    "n_micro_batches",
    "replicas",
    "n_devices",
    "n_samples",
)
"""What a constraint may say of a configuration; `recompute` is 0 or 1."""
RESULT_NAMES = (
    "samples_per_s",
    "latency_s",
    "compute_cycles",
    "transfer_cycles",
    "cost_cycles",
    "peak_memory_bytes",
)
"""What a constraint may say of what came of a configuration."""

LONGEST = 500  # characters of an expression
DEEPEST = 40  # expressions within expressions
LEAST = 1e-9
"""How far from holding is what misses by nothing, for example 1 < 1."""

_SUMS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARED: dict[type[ast.AST], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Held(NamedTuple):
    """Whether something holds, and how far it is from the other answer, as a share of what is compared.

    `miss` is above 0 for what does not hold, and at most 0 for what does.
    """

    holds: bool
    miss: float


@dataclass(frozen=True, slots=True)
class Constraint:
    """An expression that must hold: numbers, names, `+ - * /`, comparisons, `and`, `or`, `not`, and brackets.

    Attributes:
        text: as Python writes it, so that spaces and needless brackets make no other constraint.

    Raises:
        BadInput: it is no such expression, or has a name that means nothing.

    >>> bound = Constraint("latency_s<=0.02")
    >>> bound.text, bound.over_knobs, Constraint("n_ipu * replicas <= 16").over_knobs
    ('latency_s <= 0.02', False, True)
    >>> round(bound.miss({"latency_s": 0.03}), 6), bound.miss({"latency_s": 0.01})
    (0.5, -1.0)
    >>> bound.reason({"latency_s": 0.03})
    'latency_s <= 0.02 does not hold: latency_s is 0.03'
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise BadInput(f'a constraint is an expression like "latency_s <= 0.02", got {self.text!r}')
        if len(self.text) > LONGEST:
            raise BadInput(
                f"a constraint has at most {LONGEST} characters, got {len(self.text)}; try several constraints"
            )
        object.__setattr__(self, "text", ast.unparse(_parsed(self.text)))
        if not self.names:
            raise _bad(self.text, "it names nothing")

    @property
    def names(self) -> tuple[str, ...]:
        """What it speaks of, each once, in the order in which it is named."""
        found = (node for node in ast.walk(_parsed(self.text)) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(node.id for node in sorted(found, key=lambda node: node.col_offset)))

    @property
    def over_knobs(self) -> bool:
        """Whether it speaks of the configuration alone, so that nothing need be known of what comes of it."""
        return set(self.names) <= set(KNOB_NAMES)

    def miss(self, values: Mapping[str, float]) -> float:
        """How far it is from holding, as a share of what is compared: above 0 when it does not hold.

        Of what holds only together the worst counts, of what may hold instead the best. What divides by 0 does not
        hold.
        """
        try:
            held = _held(_parsed(self.text), values)
        except ZeroDivisionError:
            return 1.0
        return max(held.miss, LEAST) if not held.holds else min(held.miss, 0.0)

    def reason(self, values: Mapping[str, float]) -> str:
        """That it does not hold, and for which values."""
        said = ", ".join(f"{name} is {values[name]:.4g}" for name in self.names)
        return f"{self.text} does not hold: {said}"


@cache
def _parsed(text: str) -> ast.expr:
    """The expression, all of whose parts are allowed, and which is true or false."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "1or 2"
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        told = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _bad(text, told or "it is nested too deeply") from None
    _check_truth(tree, text, 0)
    return tree


def _check_truth(node: ast.AST, text: str, depth: int) -> None:
    """Refuse what is neither true nor false."""
    if depth > DEEPEST:
        raise _bad(text, f"it is nested more than {DEEPEST} deep")
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check_truth(part, text, depth + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_truth(node.operand, text, depth + 1)
    elif isinstance(node, ast.Compare) and all(type(op) in _COMPARED for op in node.ops):
        for part in (node.left, *node.comparators):
            _check_number(part, text, depth + 1)
    else:
        raise _bad(text, f"{_shown(node)} is no comparison")


def _check_number(node: ast.AST, text: str, depth: int) -> None:
    """Refuse what is no number."""
    if depth > DEEPEST:
        raise _bad(text, f"it is nested more than {DEEPEST} deep")
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        _check_number(node.left, text, depth + 1)
        _check_number(node.right, text, depth + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        _check_number(node.operand, text, depth + 1)
    elif isinstance(node, ast.Name):
        _check_name(node.id, text)
    elif not (isinstance(node, ast.Constant) and _is_number(node.value)):
        raise _bad(text, f"{_shown(node)} is neither a number nor a sum, product or quotient of numbers")


def _is_number(value: object) -> bool:
    """Infinity is none, nor are whole numbers that are no floats; nor True, which Python counts among numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _check_name(name: str, text: str) -> None:
    known = (*KNOB_NAMES, *RESULT_NAMES)
    if name not in known:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise _bad(text, f"there is no {name}; {hint}", "")


def _bad(text: str, told: str, hint: str = '; try for example "latency_s <= 0.02"') -> BadInput:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return BadInput(f"a constraint compares numbers and names of knobs and results, got {shown!r}: {told}{hint}")


def _shown(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        return "it"
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _held(node: ast.expr, values: Mapping[str, float]) -> Held:
    if isinstance(node, ast.BoolOp):
        parts = [_held(part, values) for part in node.values]
        together = isinstance(node.op, ast.And)
        misses = (part.miss for part in parts)
        return Held((all if together else any)(part.holds for part in parts), (max if together else min)(misses))
    if isinstance(node, ast.UnaryOp):
        held = _held(node.operand, values)
        return Held(not held.holds, -held.miss)
    assert isinstance(node, ast.Compare)
    numbers = [_number(part, values) for part in (node.left, *node.comparators)]
    links = [_compared(op, left, right) for op, (left, right) in zip(node.ops, pairwise(numbers), strict=True)]
    return Held(all(link.holds for link in links), max(link.miss for link in links))


def _compared(op: ast.cmpop, left: float, right: float) -> Held:
    """A difference as a share of the smaller of the two: 0.03 misses a bound of 0.02 by half."""
    holds = _COMPARED[type(op)](left, right)
    sizes = sorted((abs(left), abs(right)))
    share = (left - right) / (sizes[0] or sizes[1] or 1.0)
    if isnan(share):
        return Held(holds, -inf if holds else inf)
    if isinstance(op, ast.Eq | ast.NotEq):
        return Held(holds, -abs(share) if holds else max(abs(share), LEAST))
    return Held(holds, share if isinstance(op, ast.Lt | ast.LtE) else -share)


def _number(node: ast.expr, values: Mapping[str, float]) -> float:
    """Numbers are all floats: these overflow to infinity, whole numbers would grow without bound."""
    if isinstance(node, ast.BinOp):
        return _SUMS[type(node.op)](_number(node.left, values), _number(node.right, values))
    if isinstance(node, ast.UnaryOp):
        number = _number(node.operand, values)
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Name):
        return float(values[node.id])
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int | float)
    return float(node.value)
