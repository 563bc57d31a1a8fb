"""Shape rules of what ONNX Runtime's quantiser writes: `RULES`.

Every number has a scale and a zero point behind it: an operand of a standard operator lies three positions further,
and the type of a quantised output is that of its zero point [onnxruntime-contrib].
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto

from autoauto.graph.shapes.contrib import MICROSOFT, matmul
from autoauto.graph.shapes.shape_rule import (
    Operands,
    Output,
    ShapeRule,
    as_standard,
    axis_of,
    broadcast,
    channels_last,
    checked,
    count,
    elements,
    given,
    integer,
    like,
    like_first,
    needed,
    ranked,
    standard_shape,
)


def quantised(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """QuantizeLinear: of the type of the zero point, bytes without one."""
    zero = given(operands, 2)
    return [(zero.dtype if zero else TensorProto.UINT8, needed(operands, 0).shape)]


def gemm(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """QGemm: quantised where a zero point of the output is there, else floats."""
    zero = given(operands, 8)
    shape = standard_shape("Gemm", [needed(operands, 0), needed(operands, 3)], node.attribute)
    return [(zero.dtype if zero else needed(operands, 1).dtype, shape)]


def concatenated(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """QLinearConcat: the scale and the zero point of the output, then every part with its own."""
    parts = operands[2::3]
    return [(needed(operands, 1).dtype, standard_shape("Concat", parts, node.attribute))]


def summed(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """ReduceSumInteger: sums in four bytes."""
    ((dtype, shape),) = _REDUCED(node, operands)
    return [(TensorProto.UINT32 if dtype == TensorProto.UINT8 else TensorProto.INT32, shape)]


def recurrent(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """DynamicQuantizeLSTM: all states, the last one, and the last of the cell."""
    first = needed(operands, 0)
    n_steps, batch, _ = ranked(first, 3)
    n_directions, hidden = needed(operands, 1).shape[0], count(node, "hidden_size")
    state = (first.dtype, (n_directions, batch, hidden))
    return [(first.dtype, (n_steps, n_directions, batch, hidden)), state, state]


def gathered(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """GatherBlockQuantized: rows of a table whose bytes hold one or several numbers."""
    table, indices = needed(operands, 0), needed(operands, 1)
    quantised_axis = axis_of(node, "quantize_axis", 1, table.shape)
    is_packed = table.dtype == TensorProto.UINT8
    n_in_byte = 8 // count(node, "bits", 4) if is_packed else 1
    shape = [n * n_in_byte if axis == quantised_axis else n for axis, n in enumerate(table.shape)]
    axis = axis_of(node, "gather_axis", 0, table.shape)
    return [(needed(operands, 2).dtype, (*shape[:axis], *indices.shape, *shape[axis + 1 :]))]


def by_blob(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """MatMulFpQ4: the shape of its weight, a blob, is an operand."""
    first = needed(operands, 0)
    weight = first._replace(shape=checked(tuple(elements(operands, 2).reshape(-1).tolist())))
    return matmul(0, 1)(node, [first, weight])


def ordered_product(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """QOrderedMatMul: a product with a matrix that may be turned."""
    first, right = needed(operands, 0), needed(operands, 2)
    columns = right.shape[0] if integer(node, "order_B") == 0 else right.shape[-1]
    return [(first.dtype, (*first.shape[:-1], columns))]


def ordered(dtype: int) -> ShapeRule:
    """QuantizeWithOrder and DequantizeWithOrder: like the operand, of another type."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        return [(integer(node, "to", dtype), needed(operands, 0).shape)]

    return rule


_REDUCED = as_standard("ReduceMean", 0, version=13)  # then its axes were an attribute

_QUANTISED: dict[str, ShapeRule] = {
    "DequantizeLinear": like(dtype_of=1),
    "DequantizeWithOrder": ordered(TensorProto.FLOAT),
    "DynamicQuantizeLSTM": recurrent,
    "DynamicQuantizeMatMul": matmul(0, 1),
    "GatherBlockQuantized": gathered,
    "MatMulFpQ4": by_blob,
    "MatMulInteger16": matmul(0, 1, dtype=TensorProto.INT32),
    "MatMulIntegerToFloat": matmul(0, 1, dtype_of=2),
    "QGemm": gemm,
    "QLinearAdd": broadcast(0, 3),
    "QLinearAveragePool": channels_last(as_standard("AveragePool", 0), if_asked=True),
    "QLinearConcat": concatenated,
    "QLinearConv": channels_last(as_standard("Conv", 0, 3, dtype_of=7), if_asked=True),
    "QLinearGlobalAveragePool": channels_last(as_standard("GlobalAveragePool", 0), if_asked=True),
    "QLinearLeakyRelu": like_first,
    "QLinearMul": broadcast(0, 3),
    "QLinearReduceMean": _REDUCED,
    "QLinearSigmoid": like_first,
    "QLinearSoftmax": like(dtype_of=4),
    "QLinearWhere": broadcast(0, 1, 4),
    "QOrderedGelu": like_first,
    "QOrderedLayerNormalization": like_first,
    "QOrderedMatMul": ordered_product,
    "QuantizeLinear": quantised,
    "QuantizeWithOrder": ordered(TensorProto.INT8),
    "ReduceSumInteger": summed,
}

RULES: dict[tuple[str, str], ShapeRule] = {(MICROSOFT, op): rule for op, rule in _QUANTISED.items()}
"""By domain and operator."""
