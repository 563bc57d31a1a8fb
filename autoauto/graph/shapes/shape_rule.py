"""What a shape rule is, `ShapeRule`, what rules read of a node, and rules that many operators share.

Most contrib operators are standard ones that read more operands or compute in integers: `as_standard` asks onnx for
the shape of the standard one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from autoauto.graph.onnx_file import attribute_named
from autoauto.graph.shapes.values import Value
from autoauto.records.units import Array

Shape = tuple[int, ...]
Output = tuple[int, Shape | None]
"""The element type of an output, a `TensorProto.DataType`, and its shape, None where it depends on data."""
Operands = Sequence[Value | None]
"""In the order of the node, None for an omitted one."""
ShapeRule = Callable[[onnx.NodeProto, Operands], Sequence[Output]]

_STANDARD_VERSION = 22
"""The operator set of which `as_standard` reads definitions."""
_UNCHANGED = frozenset({TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64})
"""Types of positions, masks and shapes; any other operand stands for numbers."""


class NotConstantError(ValueError):
    """The elements of an operand decide a shape, and are known only when the model runs."""


def or_open(rule: ShapeRule) -> ShapeRule:
    """A rule whose outputs are open where their lengths depend on data; they have the type of the first operand."""

    def opened(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        try:
            return rule(node, operands)
        except NotConstantError:
            return [(needed(operands, 0).dtype, None)] * len(node.output)

    return opened


def given(operands: Operands, index: int) -> Value | None:
    """The operand at `index`, None when the node leaves it out."""
    return operands[index] if index < len(operands) else None


def needed(operands: Operands, index: int) -> Value:
    """The operand at `index`, which a node must have."""
    value = given(operands, index)
    if value is None:
        raise ValueError(f"operand {index} is missing")
    return value


def elements(operands: Operands, index: int) -> Array:
    """The elements of an operand, which decide a shape."""
    data = needed(operands, index).data
    if data is None:
        raise NotConstantError(f"operand {index} decides the shape and is not constant")
    return data


def number(operands: Operands, index: int) -> int:
    """The only element of an operand, which decides a shape."""
    (only,) = elements(operands, index).reshape(-1).tolist()
    return int(only)


def integer(node: onnx.NodeProto, name: str, default: int | None = None) -> int:
    """An attribute that is one integer; one without a default must be there."""
    attribute = attribute_named(node, name)
    if attribute is not None:
        return int(attribute.i)
    if default is None:
        raise ValueError(f"attribute {name!r} is missing")
    return default


def count(node: onnx.NodeProto, name: str, default: int | None = None) -> int:
    """An attribute that counts something, so it is at least 1."""
    value = integer(node, name, default)
    if value < 1:
        raise ValueError(f"attribute {name!r} must be at least 1, it is {value}")
    return value


def integers(node: onnx.NodeProto, name: str) -> Shape:
    """An attribute that is a list of integers, () when there is none."""
    attribute = attribute_named(node, name)
    return () if attribute is None else tuple(attribute.ints)


def axis_of(node: onnx.NodeProto, name: str, default: int | None, shape: Shape) -> int:
    """An attribute that is an axis of `shape`, counted from the front."""
    axis = integer(node, name, default)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"attribute {name!r} must be an axis of {list(shape)}, it is {axis}")
    return axis % len(shape)


def ranked(value: Value, *ranks: int) -> Shape:
    """The shape of an operand, which must have one of these numbers of axes."""
    if len(value.shape) not in ranks:
        raise ValueError(f"an operand must have {' or '.join(map(str, ranks))} axes, its shape is {list(value.shape)}")
    return value.shape


def checked(shape: Shape) -> Shape:
    """A shape that was computed, none of whose lengths may be negative."""
    if any(length < 0 for length in shape):
        raise ValueError(f"the output would be {list(shape)}")
    return shape


def like_first(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
    """Every output has the type and the shape of the first operand."""
    first = needed(operands, 0)
    return [(first.dtype, first.shape)] * len(node.output)


def like(dtype_of: int) -> ShapeRule:
    """The output has the shape of the first operand, and the type of that at `dtype_of`."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        return [(needed(operands, dtype_of).dtype, needed(operands, 0).shape)]

    return rule


def broadcast(*positions: int) -> ShapeRule:
    """The output has the shape to which the operands at `positions` are broadcast, and the type of the last of them."""

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        read = [needed(operands, index) for index in positions]
        return [(read[-1].dtype, tuple(np.broadcast_shapes(*(value.shape for value in read))))]

    return rule


def as_standard(op: str, *positions: int, dtype_of: int = 0, version: int = _STANDARD_VERSION) -> ShapeRule:
    """The output is that of the standard operator `op` that reads the operands at `positions`.

    It has the type of the operand at `dtype_of`. Attributes that the standard operator does not have are left out.
    """

    def rule(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        read = [given(operands, index) for index in positions]
        shape = standard_shape(op, read, node.attribute, version)
        return [(needed(operands, dtype_of).dtype, shape)]

    return rule


def standard_shape(
    op: str, read: Operands, attributes: Sequence[onnx.AttributeProto], version: int = _STANDARD_VERSION
) -> Shape:
    """The shape of the first output of a standard operator, by the inference function of its definition."""
    definition = onnx.defs.get_schema(op, version)
    names: list[str] = []
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for index, value in enumerate(read):
        if value is None:
            names.append("")
            continue
        name = f"x{index}"
        names.append(name)
        # Standard operators compute in floats what others compute in narrow integers.
        dtype = value.dtype if value.dtype in _UNCHANGED else TensorProto.FLOAT
        types[name] = helper.make_tensor_type_proto(dtype, value.shape)
        if value.data is not None and value.dtype in _UNCHANGED:
            data[name] = numpy_helper.from_array(value.data, name)
    node = helper.make_node(op, names, ["y"])
    node.attribute.extend(entry for entry in attributes if entry.name in definition.attributes)
    imports = [helper.make_opsetid("", version)]
    try:
        kinds = shape_inference.infer_node_outputs(definition, node, types, data, opset_imports=imports, ir_version=10)
    except (shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        raise ValueError(str(error)) from error
    dims = kinds["y"].tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        raise NotConstantError("the shape depends on values that are not constant")
    return checked(tuple(dim.dim_value for dim in dims))


def channels_last(rule: ShapeRule, *, if_asked: bool = False) -> ShapeRule:
    """A rule for a first operand and a first output whose channels lie last, or where the attribute says so."""

    def turned(node: onnx.NodeProto, operands: Operands) -> Sequence[Output]:
        if if_asked and not integer(node, "channels_last", 0):
            return rule(node, operands)
        first = needed(operands, 0)
        batch, *field, channels = first.shape
        dtype, shape = rule(node, [first._replace(shape=(batch, channels, *field)), *operands[1:]])[0]
        if shape is None:
            return [(dtype, None)]
        return [(dtype, (shape[0], *shape[2:], shape[1]))]

    return turned
