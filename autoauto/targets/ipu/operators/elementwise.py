"""Elementwise operators: the inner loops of each, forward and backward, and the cost of a pass over the output.

A compound operator is one generated codelet (`popops::map` [poplibs]): the loops of its parts in one launch.
"""

from __future__ import annotations

from autoauto.records.units import Precision
from autoauto.targets.ipu import kernels
from autoauto.targets.ipu.operator_cost import CostRule, Family, OperatorContext, OperatorCost, Relayout

Loops = tuple[str, ...]

_SEED_BYTES = 8
_GRAIN = 8  # elements that stay together when a tensor is spread over tiles


_OPERATORS: tuple[tuple[str, str], ...] = (
    ("absolute", "Abs"),
    ("add", "Add Sub Sum And Or Xor BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitShift Not Identity"),
    ("add", "Mul Bernoulli RandomNormal RandomNormalLike RandomUniform RandomUniformLike"),
    ("add add", "BatchNormalization Mean"),
    ("add add", "BiasAdd Momentum Scaler"),
    ("add add add", "GatedAdd GemmaRotaryEmbedding RotaryEmbedding"),
    ("add add add add", "ComplexMul ComplexMulConj"),
    ("add add sqrt divide", "Adam"),
    ("square add sqrt divide add", "Adagrad"),
    ("compare", "Binarizer"),
    ("compare select", "Imputer"),
    ("cast add add cast add add add add round maximum maximum", "QLinearAdd QLinearMul"),
    ("cast add add compare add select add round maximum maximum", "QLinearLeakyRelu"),
    ("cast add add sigmoid add round maximum maximum", "QLinearSigmoid"),
    ("cast add add select add round maximum maximum", "QLinearWhere"),
    ("cast", "BitCast Cast CastLike"),
    ("compare", "Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN Sign"),
    ("compare add select", "LeakyRelu PRelu ThresholdedRelu Shrink"),
    ("divide", "Div"),
    ("dropout", "Dropout"),
    ("divide round add add", "Mod"),
    ("add add maximum maximum", "HardSigmoid"),
    ("add add add maximum maximum", "HardSwish"),
    ("erf", "Erf"),
    ("exponent", "Exp"),
    ("exponent add compare add select", "Celu Elu Selu"),
    ("exponent add exponent inverse add add", "Sinh Cosh"),
    ("exponent add logarithm", "Softplus"),
    ("exponent add logarithm tanh add", "Mish"),
    ("gelu", "Gelu"),
    ("add gelu", "BiasGelu FastGelu"),
    ("add gelu add", "BiasSplitGelu"),
    ("add sigmoid add", "QuickGelu ScaledSiLU"),
    ("inverse", "Reciprocal"),
    ("absolute add divide", "Softsign"),
    ("logarithm", "Log"),
    ("maximum", "Max Min"),
    ("maximum maximum", "Clip"),
    ("negate", "Neg"),
    ("relu", "Relu"),
    ("round", "Ceil Floor Round"),
    ("round add add maximum maximum", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    ("select", "Where"),
    ("sigmoid", "Sigmoid"),
    ("sigmoid add", "Swish"),
    ("sigmoid add add", "SwiGLU"),
    ("sine", "Sin Cos"),
    ("sine sine divide", "Tan Asin Acos Atan"),
    ("logarithm sqrt square add add", "Asinh Acosh Atanh"),
    ("sqrt", "Sqrt"),
    ("tanh", "Tanh"),
)
"""Inner loops, by their names in `kernels.LOOPS`, and the operators that run them one after the other.

A multiplication is as fast as "add".
"""

_LOOPS: dict[str, Loops] = {op: tuple(loops.split()) for loops, operators in _OPERATORS for op in operators.split()}

_GELU = _LOOPS["Gelu"]

# For f'(x) dY. An operator that is not listed runs its own loops again, then two products.
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
    """One pass over the output, in place on the layout of the first operand that has its size."""
    loops = loops_of(context)
    operands = context.present
    if context.layer.op in ("Sum", "Mean", "Max", "Min"):
        loops = loops * max(1, len(operands) - 1)
    share = grain_share(context, context.n_out)
    compute = kernels.elementwise(share, loops, len(operands), context.precision)
    if loops == _GELU and context.precision is Precision.FP16:
        compute = kernels.gelu(share)
    codelet = "+".join(loops)
    share_bytes = share * context.precision.n_bytes
    # Smaller operands are broadcast: a tile receives those elements that its share of the output needs.
    broadcast_bytes = [context.n_bytes(i) for i in operands if 1 < context.n_elements(i) < context.n_out]
    exchange = 0
    if broadcast_bytes:
        received = sum(min(n_bytes, share_bytes) for n_bytes in broadcast_bytes)
        exchange = round(float(kernels.exchange(received, len(broadcast_bytes))))
        codelet += "_broadcast"
    # The output has the layout of the first operand of its size; further ones are brought into that layout.
    whole = [i for i in operands if context.n_elements(i) >= context.n_out]
    relayout_cycles = round(float(kernels.exchange(share_bytes)))
    return OperatorCost(
        family=Family.ELEMENTWISE,
        exchange_cycles=exchange,
        compute_cycles=round(compute),
        codelets=(f"{codelet}_{context.precision.value}",),
        n_tiles=max(1, min(context.n_tiles, -(-context.n_out // _GRAIN))),
        n_sources=len(broadcast_bytes),
        working_bytes=sum(broadcast_bytes),
        follows=next(iter(whole), -1),
        relayouts=tuple(Relayout(i, relayout_cycles) for i in whole[1:]),
    )


def dropout(context: OperatorContext) -> OperatorCost:
    """Dropout in training: every tile starts its random numbers at the seed.

    So the backward pass makes the mask again from the seed, and nothing is stashed (`poprand::dropout`, RandomGen.cpp
    [poplibs]). Three further launches save, set and restore the state of every tile's generator; the seed comes by
    exchange.
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
    """The inner loops of an elementwise operator; the domain of the operator does not matter.

    Pow multiplies when its exponent is a constant of one element, as PopART does for small integers.
    """
    name = context.layer.op.rpartition(".")[2]
    if name == "Pow":
        exponent = context.present[-1]
        if context.n_elements(exponent) == 1 and not context.is_activation(exponent):
            return ("square", "add")
        return ("power",)
    loops = loops_named(name)
    if loops == _GELU and context.settings.erf_gelu:
        return ("gelu_erf",)
    return loops


def loops_named(op: str) -> Loops:
    """The inner loops of an operator by its name; one addition if the name is unknown."""
    return _LOOPS.get(op, ("add",))


def derivative_loops(context: OperatorContext) -> Loops:
    """The inner loops that compute the gradient of an operand from dY."""
    listed = _DERIVATIVE_LOOPS.get(context.layer.op)
    if listed is not None:
        return listed
    return (*loops_of(context), "add", "add")


def grain_share(context: OperatorContext, n_elements: int) -> int:
    """Elements on the fullest tile when a tensor is spread over all tiles in grains that stay together."""
    return -(-n_elements // (context.n_tiles * _GRAIN)) * _GRAIN


COST_RULES: dict[str, CostRule] = dict.fromkeys(_LOOPS, elementwise)
COST_RULES["Pow"] = elementwise
COST_RULES["Dropout"] = dropout
del COST_RULES["BatchNormalization"]  # elementwise in inference only: see `rows.batch_norm`
