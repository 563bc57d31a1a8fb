"""Outputs whose lengths depend on data: their upper bounds, `BOUNDS`, and which operators make such outputs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx
from onnx import TensorProto

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.shape_rule import Operands, Output, ShapeRule, given, like_first, needed

_SHAPED_BY_DATA = (
    "CenterCropPad Compress ConstantOfShape Expand NonMaxSuppression NonZero OneHot Pad Range Reshape Resize Slice "
    "Split Tile TopK Unique Upsample"
)
SHAPED_BY_DATA = frozenset(_SHAPED_BY_DATA.split())
"""Operators whose outputs have lengths that follow from elements of an operand."""


def _non_zero(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """All elements may differ from zero."""
    shape = needed(operands, 0).shape
    return [(TensorProto.INT64, (max(len(shape), 1), prod(shape)))]


def _non_max_suppression(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """At most as many boxes as are asked for, in every class of every sample."""
    n_samples, n_classes, n_boxes = needed(operands, 1).shape
    most = given(operands, 2)
    n_chosen = n_boxes
    if most is None:
        n_chosen = 0
    elif most.data is not None:
        asked = int(most.data.reshape(-1)[0])
        n_chosen = min(max(asked, 0), n_boxes)
    return [(TensorProto.INT64, (n_samples * n_classes * n_chosen, 3))]


def _unique(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """All entries may differ."""
    first = needed(operands, 0)
    axis = attribute_named(node, "axis")
    if axis is None:  # of all elements, in one row
        length = prod(first.shape)
        values: tuple[int, ...] = (length,)
    else:
        length = first.shape[axis.i]
        values = first.shape
    indices = (TensorProto.INT64, (length,))
    return [(first.dtype, values), indices, indices, indices]


def _compress(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """All entries may stay."""
    first = needed(operands, 0)
    if attribute_named(node, "axis") is None:
        return [(first.dtype, (prod(first.shape),))]
    return [(first.dtype, first.shape)]


def _top_k(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """All entries may be asked for."""
    first = needed(operands, 0)
    return [(first.dtype, first.shape), (TensorProto.INT64, first.shape)]


BOUNDS: dict[str, ShapeRule] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Slice": like_first,  # nothing may be cut off
    "TopK": _top_k,
    "Unique": _unique,
}
