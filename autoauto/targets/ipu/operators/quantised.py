"""Operators that ONNX Runtime's quantiser writes: to numbers, what the standard operator does, and back to bytes.

A device whose vectors hold halves and floats computes no bytes, so every number is cast, shifted and scaled before and
after; products take the integers as they are. How Graphcore's tools run them is not public: an assumption.
"""

from __future__ import annotations

from autoauto.targets.ipu.operator_cost import CostRule, OperatorContext, OperatorCost, by_operator, together
from autoauto.targets.ipu.operators import convolutions, data_movement, products, rows
from autoauto.targets.ipu.operators.contrib import as_standard, embedding, merged_attention
from autoauto.targets.ipu.operators.elementwise import one_pass

TO_NUMBERS = ("cast", "add", "add")
TO_BYTES = ("add", "round", "maximum", "maximum")


def rounded(rule: CostRule, op: str, *positions: int) -> CostRule:
    """The cost of the standard operator `op`, of casts of its first operand before, and of the output after."""

    def cost(context: OperatorContext) -> OperatorCost:
        inner = rule(as_standard(context, op, *positions))
        read = one_pass(context, context.n_elements(context.layer.operands[positions[0]]), TO_NUMBERS)
        return together(inner, read, one_pass(context, context.n_out, TO_BYTES))

    return cost


def concat(context: OperatorContext) -> OperatorCost:
    """QLinearConcat: every part is brought to the scale of the output."""
    moved = data_movement.move(context)
    return together(one_pass(context, context.n_out, (*TO_NUMBERS, *TO_BYTES)), moved)


def gemm(context: OperatorContext) -> OperatorCost:
    """QGemm: a product of integers, a term, and the scale of the output."""
    product = products.gemm(as_standard(context, "Gemm", 0, 3, 6))
    return together(product, one_pass(context, context.n_out, TO_BYTES))


def scaled_matmul(context: OperatorContext) -> OperatorCost:
    """MatMulIntegerToFloat: a product of integers, then scales and a bias."""
    product = products.matmul(as_standard(context, "MatMulInteger", 0, 1))
    return together(product, one_pass(context, context.n_out, (*TO_NUMBERS, "add")))


def dynamic_matmul(context: OperatorContext) -> OperatorCost:
    """DynamicQuantizeMatMul: the extremes of the left operand, its bytes, then a product of integers."""
    return together(scaled_matmul(context), *_quantised(context))


def dynamic_lstm(context: OperatorContext) -> OperatorCost:
    """DynamicQuantizeLSTM: an LSTM on inputs that are quantised first."""
    return together(products.recurrent(context), *_quantised(context))


def _quantised(context: OperatorContext) -> tuple[OperatorCost, OperatorCost]:
    n_elements = context.n_elements(context.layer.operands[0])
    return rows.reduce_to(context, n_elements, 1, "reduceMax"), one_pass(context, n_elements, TO_BYTES)


def attention(context: OperatorContext) -> OperatorCost:
    """QAttention: an attention whose projection is a product of integers."""
    scaled = one_pass(context, 3 * context.n_elements(context.layer.outputs[0]), TO_NUMBERS)
    return together(merged_attention(context), scaled)


def quantised_embedding(context: OperatorContext) -> OperatorCost:
    """QEmbedLayerNormalization: rows of bytes."""
    scaled = one_pass(context, 3 * context.n_elements(context.layer.outputs[0]), TO_NUMBERS)
    return together(embedding(context), scaled)


COST_RULES: dict[str, CostRule] = by_operator(
    {
        concat: "QLinearConcat",
        dynamic_lstm: "DynamicQuantizeLSTM",
        dynamic_matmul: "DynamicQuantizeMatMul",
        gemm: "QGemm",
        products.matmul: "MatMulInteger16",
        quantised_embedding: "QEmbedLayerNormalization",
        rounded(convolutions.pool, "AveragePool", 0): "QLinearAveragePool",
        rounded(rows.reduction, "GlobalAveragePool", 0): "QLinearGlobalAveragePool",
        rounded(rows.reduction, "ReduceMean", 0): "QLinearReduceMean",
        rounded(rows.softmax, "Softmax", 0): "QLinearSoftmax",
        rows.reduction: "ReduceSumInteger",
        attention: "QAttention",
        scaled_matmul: "MatMulIntegerToFloat",
        convolutions.convolution: "com.microsoft.QLinearConv",
    }
)
