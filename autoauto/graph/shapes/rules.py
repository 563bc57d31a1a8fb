"""Shape rules of operators for which onnx has none, or a wrong one: `SHAPE_RULES`.

A rule reads a node and the values of its operands, and returns the element type and the shape of every output in order.
It raises `ValueError` with the reason where the operands do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from autoauto.graph.shapes.values import Value

Output = tuple[int, tuple[int, ...]]
"""The element type of an output, a `TensorProto.DataType`, and its shape."""
ShapeRule = Callable[[onnx.NodeProto, Sequence[Value | None]], Sequence[Output]]
"""Operands in the order of the node, None for an omitted one."""


def like_first(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Output]:
    """The output has the type and the shape of the first operand."""
    first = operands[0] if operands else None
    if first is None:
        raise ValueError("the first operand is missing")
    return [(first.dtype, first.shape)] * len(node.output)


SHAPE_RULES: dict[tuple[str, str], ShapeRule] = {
    ("", "GroupNormalization"): like_first,
    ("", "MeanVarianceNormalization"): like_first,
}
"""By domain and operator."""
