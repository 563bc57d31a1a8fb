"""Concrete shapes and small constants of all tensors of a model, node by node: `trace`. Nothing is symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from autoauto.graph.onnx_file import MAX_CONSTANT_ELEMENTS, check_shape, first_line
from autoauto.graph.shapes.rules import SHAPE_RULES, ShapeRule
from autoauto.graph.shapes.values import Value, is_float, label
from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Array

N_KNOWN_INTEGERS = MAX_CONSTANT_ELEMENTS  # positions, masks and shapes: their values may decide a shape
N_KNOWN_FLOATS = 16  # scales of a resize, the step of a range
READS_SHAPE = frozenset({"Shape", "Size"})
_FOLLOWED = (
    "Abs Add And ArgMax ArgMin Cast Ceil Clip Compress Concat ConstantOfShape CumSum Div Equal Expand EyeLike Flatten "
    "Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsNaN Less LessOrEqual Max Min Mod Mul Neg "
    "NonZero Not OneHot Or Pad Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements "
    "ScatterND Sign Slice Split Sqrt Squeeze Sub Sum Tile TopK Transpose Trilu Unique Unsqueeze Where Xor"
)
_DTYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"


def trace(model: onnx.ModelProto) -> dict[str, Value]:
    """Give every tensor of a plain model with fixed input shapes its `Value`, by name.

    Raises:
        UnreadableModel: a shape does not follow, or shapes contradict each other.
    """
    values = {tensor.name: _stored(tensor) for tensor in model.graph.initializer}
    values |= {entry.name: _typed(entry.type, f"input {entry.name!r}") for entry in model.graph.input}
    wanted = {name for node in model.graph.node for name in node.input} | {entry.name for entry in model.graph.output}
    for node in model.graph.node:
        values |= _outputs(model, node, values, wanted.intersection(node.output) - {""})
    return values


def opset(model: onnx.ModelProto, domain: str = "") -> int:
    """The version of the operators of `domain` that the model asks for."""
    for entry in model.opset_import:
        if entry.domain == domain:
            return int(entry.version)
    raise UnreadableModel(f"a model must name the version of its operators, domain {domain!r} has none")


@cache
def schema(op: str, version: int, domain: str) -> onnx.defs.OpSchema | None:
    """The definition of an operator; None where the onnx package does not have it."""
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def _outputs(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value], wanted: set[str]
) -> dict[str, Value]:
    """Values of the outputs that are read; definitions of old operators leave the shapes of others open."""
    read = [values[name] for name in node.input if name]
    if node.op_type in READS_SHAPE:
        return {node.output[0]: _read_shape(node, read[0])}
    types = _infer(model, node, values)
    followed = node.op_type in _FOLLOWED.split() and all(value.data is not None for value in read) and _is_few(types)
    results = _evaluate(model, node, values) if followed else [None] * len(node.output)
    constant = node.op_type not in _RANDOM.split() and all(value.constant for value in read)
    written = {}
    for name, data in zip(node.output, results, strict=True):
        if data is not None:
            written[name] = Value(helper.np_dtype_to_tensor_dtype(data.dtype), data.shape, data, True)
        elif name in wanted:
            kind = types.get(name, TypeProto())
            written[name] = _typed(kind, f"output {name!r} of {label(node)}")._replace(constant=constant)
    _check(node, read, written)
    return written


def _read_shape(node: onnx.NodeProto, value: Value) -> Value:
    """Evaluate Shape (with the start and end of operator set 15) or Size."""
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    shape = np.array(value.shape, np.int64)[ends.get("start", 0) : ends.get("end", len(value.shape))]
    data = shape if node.op_type == "Shape" else np.array(prod(value.shape), np.int64)
    return Value(TensorProto.INT64, data.shape, data, True)


def _infer(model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value]) -> dict[str, TypeProto]:
    """Types of the outputs, by the inference function of the operator's definition."""
    rule = SHAPE_RULES.get((node.domain, node.op_type))
    if rule is not None:
        return _by_rule(rule, node, [values[name] if name else None for name in node.input])
    definition = schema(node.op_type, opset(model, node.domain), node.domain)
    if definition is None:
        where = f"domain {node.domain!r}" if node.domain else f"operator set {opset(model)}"
        raise UnreadableModel(
            f"the shapes of operator {node.op_type} of {where} are not known; try to export with standard operators"
        )
    names = [name for name in node.input if name]
    types = {name: helper.make_tensor_type_proto(values[name].dtype, values[name].shape) for name in names}
    known = {name: values[name].data for name in names}
    data = {name: numpy_helper.from_array(array, name) for name, array in known.items() if array is not None}
    try:
        if not definition.has_type_and_shape_inference_function:
            return _infer_by_body(model, node, types, data)
        return shape_inference.infer_node_outputs(
            definition, node, types, data, opset_imports=list(model.opset_import), ir_version=model.ir_version
        )
    except (shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, TypeError) as error:
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {first_line(error)}") from error


def _by_rule(rule: ShapeRule, node: onnx.NodeProto, operands: Sequence[Value | None]) -> dict[str, TypeProto]:
    """Types of the outputs by a rule of ours."""
    try:
        outputs = rule(node, operands)
    except (ValueError, IndexError, AttributeError) as error:
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {first_line(error)}") from error
    return {name: helper.make_tensor_type_proto(*kind) for name, kind in zip(node.output, outputs, strict=False)}


def _infer_by_body(
    model: onnx.ModelProto, node: onnx.NodeProto, types: Mapping[str, TypeProto], data: Mapping[str, TensorProto]
) -> dict[str, TypeProto]:
    """Types of the outputs of an operator that is defined by a function of others and has no rule of its own."""
    inputs = [helper.make_value_info(name, kind) for name, kind in types.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs, list(data.values()))
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return {entry.name: entry.type for entry in shape_inference.infer_shapes(single, data_prop=True).graph.output}


def _is_few(types: Mapping[str, TypeProto]) -> bool:
    """Whether outputs are small; an axis whose length is not known yet follows from small data."""
    return all(
        prod(dim.dim_value for dim in kind.tensor_type.shape.dim if dim.HasField("dim_value"))
        <= (N_KNOWN_FLOATS if is_float(kind.tensor_type.elem_type) else N_KNOWN_INTEGERS)
        for kind in types.values()
    )


def _evaluate(model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value]) -> list[Array | None]:
    """Elements of the outputs of a node whose operands are known; None where onnx cannot compute them."""
    names = list(dict.fromkeys(name for name in node.input if name))
    inputs, outputs = ([helper.make_empty_tensor_value_info(name) for name in ends] for ends in (names, node.output))
    graph = helper.make_graph([node], "node", inputs, outputs)
    try:
        run = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import)).run
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in run(None, {name: values[name].data for name in names})]
    except (ValueError, IndexError, TypeError, RuntimeError, NotImplementedError):
        return [None] * len(node.output)


def _check(node: onnx.NodeProto, read: list[Value], written: Mapping[str, Value]) -> None:
    """Refuse a contradiction that onnx's inference accepts: two counts of the same elements that differ."""
    if len(read) < 2:
        return
    if node.op_type == "Reshape":
        counts = prod(read[0].shape), prod(written[node.output[0]].shape)
    elif node.op_type == "Gemm":
        turned = {attribute.name for attribute in node.attribute if attribute.i}
        counts = read[0].shape["transA" not in turned], read[1].shape["transB" in turned]
    elif node.op_type == "Conv":
        groups = {attribute.name: attribute.i for attribute in node.attribute}.get("group", 1)
        counts = prod(read[0].shape[1:2]), prod(read[1].shape[1:2]) * groups
    else:
        return
    if counts[0] != counts[1]:
        shapes = " and ".join(str(list(value.shape)) for value in (*read, *written.values()))
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {counts[0]} is not {counts[1]} in {shapes}")


def _typed(kind: TypeProto, what: str) -> Value:
    """Turn a type with a fixed shape into a `Value`; `what` names the tensor in a message."""
    tensor = kind.tensor_type
    if tensor.elem_type not in _DTYPES:
        raise UnreadableModel(f"a model must compute with tensors of known type, {what} has none")
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise UnreadableModel(f"every shape must be known before the model runs, that of {what} is not")
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    check_shape(shape, what)
    return Value(tensor.elem_type, shape, None, False)


def _stored(tensor: TensorProto) -> Value:
    if tensor.data_type not in _DTYPES or any(length < 0 for length in tensor.dims):
        raise UnreadableModel(f"a constant needs a type and a shape, {tensor.name!r} has none")
    few = prod(tensor.dims) <= (N_KNOWN_FLOATS if is_float(tensor.data_type) else N_KNOWN_INTEGERS)
    inside = tensor.data_location != TensorProto.EXTERNAL
    try:
        data = numpy_helper.to_array(tensor) if few and inside else None
    except ValueError as error:
        raise UnreadableModel(f"constant {tensor.name!r} does not hold what its shape says: {error}") from error
    return Value(tensor.data_type, tuple(tensor.dims), data, True)
