"""Outputs whose lengths depend on data: their upper bounds, `BOUNDS`, and which operators make such outputs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx
from onnx import TensorProto

from autoauto.graph.shapes.values import Value

Bound = tuple[int, tuple[int, ...]]

_SHAPED_BY_DATA = (
    "CenterCropPad Compress ConstantOfShape Expand NonMaxSuppression NonZero OneHot Pad Range Reshape Resize Slice "
    "Split Tile TopK Unique Upsample"
)
SHAPED_BY_DATA = frozenset(_SHAPED_BY_DATA.split())
"""Operators whose outputs have lengths that follow from elements of an operand."""


def bound(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """The element type and the largest shape of every output; none where nothing bounds them."""
    rule = BOUNDS.get(node.op_type) if not node.domain else None
    return () if rule is None else rule(node, operands)


def _non_zero(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """All elements may differ from zero."""
    shape = _shape(operands, 0)
    return [(TensorProto.INT64, (max(len(shape), 1), prod(shape)))]


def _non_max_suppression(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """At most as many boxes as are asked for, in every class of every sample."""
    n_samples, n_classes, n_boxes = _shape(operands, 1)
    most = operands[2] if len(operands) > 2 else None
    asked = 0 if most is None else n_boxes if most.data is None else int(most.data.reshape(-1)[0])
    return [(TensorProto.INT64, (n_samples * n_classes * min(max(asked, 0), n_boxes), 3))]


def _unique(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """All entries may differ."""
    shape, axis = _shape(operands, 0), _axis(node)
    length = prod(shape) if axis is None else shape[axis]
    values = (length,) if axis is None else shape
    return [(_dtype(operands, 0), values), *[(TensorProto.INT64, (length,))] * 3]


def _compress(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """All entries may be kept."""
    shape = _shape(operands, 0)
    return [(_dtype(operands, 0), shape if _axis(node) is not None else (prod(shape),))]


def _like_first(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """Slice: nothing may be cut off."""
    return [(_dtype(operands, 0), _shape(operands, 0))]


def _top_k(node: onnx.NodeProto, operands: Sequence[Value | None]) -> Sequence[Bound]:
    """All entries may be asked for."""
    shape = _shape(operands, 0)
    return [(_dtype(operands, 0), shape), (TensorProto.INT64, shape)]


def _value(operands: Sequence[Value | None], index: int) -> Value:
    value = operands[index]
    if value is None:
        raise ValueError(f"operand {index} is missing")
    return value


def _shape(operands: Sequence[Value | None], index: int) -> tuple[int, ...]:
    return _value(operands, index).shape


def _dtype(operands: Sequence[Value | None], index: int) -> int:
    return _value(operands, index).dtype


def _axis(node: onnx.NodeProto) -> int | None:
    return next((int(entry.i) for entry in node.attribute if entry.name == "axis"), None)


BOUNDS = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Slice": _like_first,
    "TopK": _top_k,
    "Unique": _unique,
}
