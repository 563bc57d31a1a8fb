"""Elementwise operators: the inner loops of each, forward and backward, and the cost of a pass over the output.

A compound operator is one generated codelet (`popops::map` [poplibs]): the loops of its parts in one launch.
"""

from __future__ import annotations

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import (
    CostRule,
    Family,
    OperatorContext,
    OperatorCost,
    Relayout,
    by_operator,
)

Loops = tuple[str, ...]

_SEED_BYTES = 8
_GRAIN = 8  # elements that stay together when a tensor is spread over tiles


def _uses(loops: str, operators: str) -> dict[str, Loops]:
    return dict.fromkeys(operators.split(), tuple(loops.split()))


# Names of `kernels.inner_loops.LOOPS`; a multiplication is as fast as "add".
_LOOPS: dict[str, Loops] = {
    **_uses("absolute", "Abs"),
    **_uses("add", "Add Sub Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift Not Identity"),
    **_uses("add", "Mul Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike"),
    **_uses("add add", "BatchNormalization Mean"),
    **_uses("add add", "BiasAdd Momentum Scaler"),
    **_uses("add add add", "GatedAdd GemmaRotaryEmbedding RotaryEmbedding"),
    **_uses("add add add add", "ComplexMul ComplexMulConj"),
    **_uses("add add sqrt divide", "Adam"),
    **_uses("square add sqrt divide add", "Adagrad"),
    **_uses("compare", "Binarizer"),
    **_uses("compare select", "Imputer"),
    **_uses("cast add add cast add add add add round maximum maximum", "QLinearAdd QLinearMul"),
    **_uses("cast add add compare add select add round maximum maximum", "QLinearLeakyRelu"),
    **_uses("cast add add sigmoid add round maximum maximum", "QLinearSigmoid"),
    **_uses("cast add add select add round maximum maximum", "QLinearWhere"),
    **_uses("cast", "BitCast Cast CastLike"),
    **_uses("compare", "Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN Sign"),
    **_uses("compare add select", "LeakyRelu PRelu ThresholdedRelu Shrink"),
    **_uses("divide", "Div"),
    **_uses("dropout", "Dropout"),
    **_uses("divide round add add", "Mod"),
    **_uses("add add maximum maximum", "HardSigmoid"),
    **_uses("add add add maximum maximum", "HardSwish"),
    **_uses("erf", "Erf"),
    **_uses("exponent", "Exp"),
    **_uses("exponent add compare add select", "Celu Elu Selu"),
    **_uses("exponent add exponent inverse add add", "Sinh Cosh"),
    **_uses("exponent add logarithm", "Softplus"),
    **_uses("exponent add logarithm tanh add", "Mish"),
    **_uses("gelu", "Gelu"),
    **_uses("add gelu", "BiasGelu FastGelu"),
    **_uses("add gelu add", "BiasSplitGelu"),
    **_uses("add sigmoid add", "QuickGelu ScaledSiLU"),
    **_uses("inverse", "Reciprocal"),
    **_uses("absolute add divide", "Softsign"),
    **_uses("logarithm", "Log"),
    **_uses("maximum", "Max Min"),
    **_uses("maximum maximum", "Clip"),
    **_uses("negate", "Neg"),
    **_uses("relu", "Relu"),
    **_uses("round", "Ceil Floor Round"),
    **_uses("round add add maximum maximum", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    **_uses("select", "Where"),
    **_uses("sigmoid", "Sigmoid"),
    **_uses("sigmoid add", "Swish"),
    **_uses("sigmoid add add", "SwiGLU"),
    **_uses("sine", "Sin Cos"),
    **_uses("sine sine divide", "Tan Asin Acos Atan"),
    **_uses("logarithm sqrt square add add", "Asinh Acosh Atanh"),
    **_uses("sqrt", "Sqrt"),
    **_uses("tanh", "Tanh"),
}

_GELU = _LOOPS["Gelu"]

# f'(x) dY. An operator that is not listed takes its own loops again and two products.
_DERIVATIVE_LOOPS: dict[str, Loops] = {
    "Div": ("divide", "add"),
    "Erf": ("square", "exponent", "add"),
    "Exp": ("add",),
    "Mul": ("add",),
    "Neg": ("negate",),
    "Reciprocal": ("square", "add"),
    "Relu": ("relu", "add"),
    "Sigmoid": ("add", "add", "add"),
    "Sqrt": ("divide", "add"),
    "Tanh": ("square", "add", "add"),
    "Where": ("select",),
}

PASSES_GRADIENT_ON = frozenset({"Add", "Cast", "Identity", "Mean", "Sub", "Sum"})
"""Operators whose operands all have dY as their gradient, so that no pass computes it."""


def elementwise(context: OperatorContext) -> OperatorCost:
    """One pass over the output, in place on the layout of the first operand of that size."""
    loops = loops_of(context)
    operands = context.present
    if context.layer.op in ("Sum", "Mean", "Max", "Min"):
        loops = loops * max(1, len(operands) - 1)
    share = grain_share(context, context.n_out)
    whole = [i for i in operands if context.n_elements(i) >= context.n_out]
    parts = [context.n_bytes(i) for i in operands if 1 < context.n_elements(i) < context.n_out]
    width = context.precision.n_bytes
    broadcast = sum(min(n_bytes, share * width) for n_bytes in parts)
    compute = kernels.elementwise(share, loops, len(operands), context.precision)
    if loops == _GELU and context.precision is Precision.FP16:
        compute = kernels.gelu(share)
    return OperatorCost(
        family=Family.ELEMENTWISE,
        exchange_cycles=round(float(kernels.exchange(broadcast, len(parts)))) if parts else 0,
        compute_cycles=round(compute),
        codelets=(f"{'+'.join(loops)}_{'broadcast_' if parts else ''}{context.precision.value}",),
        n_tiles=max(1, min(context.n_tiles, -(-context.n_out // _GRAIN))),
        n_sources=len(parts),
        working_bytes=sum(parts),
        follows=whole[0] if whole else -1,
        relayouts=tuple(Relayout(i, round(float(kernels.exchange(share * width)))) for i in whole[1:]),
    )


def dropout(context: OperatorContext) -> OperatorCost:
    """Dropout in training: the tiles' random numbers begin with the seed, and go on as before once it is done.

    So the backward pass makes the same mask again and nothing is stashed (`poprand::dropout`, RandomGen.cpp [poplibs]):
    three further launches keep, set and restore the state of every tile's generator; the seed comes by exchange.
    """
    cost = elementwise(context)
    return cost._replace(
        exchange_cycles=round(float(kernels.exchange(_SEED_BYTES))),
        compute_cycles=cost.compute_cycles + 3 * kernels.UNARY_LAUNCH_CYCLES,
        n_sources=1,
    )


def one_pass(context: OperatorContext, n_elements: int, loops: Loops, n_operands: int = 2) -> OperatorCost:
    """One pass over `n_elements`, in place, with the inner loops `loops`."""
    share = -(-n_elements // context.n_tiles)
    compute = round(kernels.elementwise(share, loops, n_operands, context.precision))
    codelet = f"{'+'.join(loops)}_{context.precision.value}"
    return OperatorCost(Family.ELEMENTWISE, 0, compute, (codelet,), context.n_tiles)


def loops_of(context: OperatorContext) -> Loops:
    """The inner loops of an elementwise operator.

    One of another domain has those of its namesake. Pow has those of multiplications when its exponent is a constant of
    one element, as PopART does for small integers.
    """
    name = context.layer.op.rpartition(".")[2]
    if name != "Pow":
        loops = loops_named(name)
        return ("gelu_erf",) if loops == _GELU and context.settings.erf_gelu else loops
    exponent = context.present[-1]
    constant = context.n_elements(exponent) == 1 and not context.is_activation(exponent)
    return ("square", "add") if constant else ("power",)


def loops_named(op: str) -> Loops:
    """The inner loops of an operator by its name, as an activation that another one ends with; one pass if unknown."""
    return _LOOPS.get(op, ("add",))


def derivative_loops(context: OperatorContext) -> Loops:
    """The inner loops that compute the gradient of an operand from dY."""
    return _DERIVATIVE_LOOPS.get(context.layer.op) or (*loops_of(context), "add", "add")


def grain_share(context: OperatorContext, n_elements: int) -> int:
    """Elements on the fullest tile when a tensor is spread over all tiles in grains that stay together."""
    return -(-n_elements // (context.n_tiles * _GRAIN)) * _GRAIN


COST_RULES: dict[str, CostRule] = {**dict.fromkeys(_LOOPS, elementwise), **by_operator(elementwise, "Pow")}
COST_RULES["Dropout"] = dropout
del COST_RULES["BatchNormalization"]  # elementwise in inference only: see `rows.batch_norm`
