"""Worker cycles of elementwise operators: figures of popops' cycle estimators, and which of them an ONNX operator uses.

Figures: vectors/poplibs_elementwise_tables.json (poplibs 7eac0f26), in-place variants, assembly codelets. A row is
(cycles, elements) of one inner loop for half and for float; "natural vector" rows of the source are written as
(cycles + 2, vector width), the others as (cycles, unroll).
"""

from __future__ import annotations

from typing import NamedTuple

from autoauto.records.units import Precision


class Loop(NamedTuple):
    """Cycles of one inner loop of a worker, and the elements that it finishes."""

    cycles: int
    elements: int


LOOPS: dict[str, tuple[Loop, Loop]] = {
    "absolute": (Loop(3, 4), Loop(3, 2)),
    "add": (Loop(3, 4), Loop(3, 2)),
    "cast": (Loop(3, 4), Loop(3, 2)),  # not in the table: as fast as an addition
    "compare": (Loop(9, 4), Loop(14, 4)),
    "divide": (Loop(21, 4), Loop(10, 2)),
    "erf": (Loop(13, 1), Loop(41, 1)),
    "exponent": (Loop(4, 4), Loop(6, 2)),
    "gelu": (Loop(77, 16), Loop(154, 16)),  # half: measured 462 cycles for 96 elements; float: popnn's factor of two
    "inverse": (Loop(15, 4), Loop(6, 2)),
    "logarithm": (Loop(6, 4), Loop(14, 2)),
    "maximum": (Loop(4, 4), Loop(4, 2)),
    "negate": (Loop(3, 4), Loop(3, 2)),
    "power": (Loop(325, 1), Loop(312, 1)),
    "relu": (Loop(2, 4), Loop(2, 2)),
    "round": (Loop(4, 4), Loop(4, 2)),
    "rsqrt": (Loop(19, 4), Loop(8, 2)),
    "select": (Loop(9, 4), Loop(14, 4)),  # not in the table: as slow as a comparison
    "sigmoid": (Loop(4, 4), Loop(10, 2)),
    "sine": (Loop(25, 1), Loop(2300, 1)),
    "sqrt": (Loop(23, 4), Loop(10, 2)),
    "square": (Loop(2, 4), Loop(2, 2)),
    "tanh": (Loop(2, 4), Loop(10, 2)),
}


def _uses(loops: str, operators: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(operators.split(), tuple(loops.split()))


# Compound operators are one generated codelet (popops::map): the loops of its parts, one launch.
ELEMENTWISE: dict[str, tuple[str, ...]] = {
    **_uses("absolute", "Abs"),
    **_uses("add", "Add Sub Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift Not Dropout Identity"),
    **_uses("add", "Mul"),
    **_uses("add add", "BatchNormalization Mean"),
    **_uses("cast", "Cast CastLike"),
    **_uses("compare", "Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN Sign"),
    **_uses("compare add select", "LeakyRelu PRelu ThresholdedRelu Shrink"),
    **_uses("divide", "Div"),
    **_uses("divide round add add", "Mod"),
    **_uses("add add maximum maximum", "HardSigmoid"),
    **_uses("add add add maximum maximum", "HardSwish"),
    **_uses("erf", "Erf"),
    **_uses("exponent", "Exp"),
    **_uses("exponent add compare add select", "Celu Elu Selu"),
    **_uses("exponent add exponent inverse add add", "Sinh Cosh"),
    **_uses("exponent add logarithm", "Softplus"),
    **_uses("exponent add logarithm tanh add", "Mish"),
    **_uses("gelu", "Gelu FastGelu QuickGelu"),
    **_uses("inverse", "Reciprocal"),
    **_uses("absolute add divide", "Softsign"),
    **_uses("logarithm", "Log"),
    **_uses("maximum", "Max Min"),
    **_uses("maximum maximum", "Clip"),
    **_uses("negate", "Neg"),
    **_uses("relu", "Relu"),
    **_uses("round", "Ceil Floor Round"),
    **_uses("round add add maximum maximum", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    **_uses("rsqrt", "Rsqrt"),
    **_uses("select", "Where"),
    **_uses("sigmoid", "Sigmoid"),
    **_uses("sigmoid add", "Swish Silu"),
    **_uses("sine", "Sin Cos"),
    **_uses("sine sine divide", "Tan Asin Acos Atan"),
    **_uses("logarithm sqrt square add add", "Asinh Acosh Atanh"),
    **_uses("sqrt", "Sqrt"),
    **_uses("square", "Square"),
    **_uses("tanh", "Tanh"),
}


def loop(name: str, precision: Precision) -> Loop:
    """The inner loop called `name` at a precision.

    >>> loop("relu", Precision.FP16), loop("relu", Precision.FP32)
    (Loop(cycles=2, elements=4), Loop(cycles=2, elements=2))
    """
    half, single = LOOPS[name]
    return single if precision is Precision.FP32 else half
