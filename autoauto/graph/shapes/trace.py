"""Concrete shapes and small constants of all tensors of a model, node by node: `trace`. Nothing is symbolic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper

from autoauto.graph.onnx_file import MAX_CONSTANT_ELEMENTS, all_graphs
from autoauto.graph.plain import CONTROL_FLOW, check_shape
from autoauto.graph.shapes.control_flow import Lengths, control_flow_outputs
from autoauto.graph.shapes.data_dependent import BOUNDS, SHAPED_BY_DATA
from autoauto.graph.shapes.infer import infer_types
from autoauto.graph.shapes.operand_rules.check import check_operands
from autoauto.graph.shapes.shape_rule import integer
from autoauto.graph.shapes.values import Value, is_float, label
from autoauto.graph.shapes.windows import check_lengths, check_windows
from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Array

N_KNOWN_INTEGERS = MAX_CONSTANT_ELEMENTS  # positions, masks and shapes: their values may decide a shape
N_KNOWN_FLOATS = 16  # scales of a resize, the step of a range
READS_SHAPE = frozenset({"Shape", "Size"})
_FOLLOWED_NAMES = (
    "Abs Add And ArgMax ArgMin Cast Ceil Clip Compress Concat ConstantOfShape CumSum Div Equal Expand EyeLike Flatten "
    "Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsNaN Less LessOrEqual Max Min Mod Mul Neg "
    "NonZero Not OneHot Or Pad Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements "
    "ScatterND Sign Slice Split Sqrt Squeeze Sub Sum Tile TopK Transpose Trilu Unique Unsqueeze Where Xor"
)
_FOLLOWED = frozenset(_FOLLOWED_NAMES.split())
_DTYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
NO_LENGTHS: Lengths = {}
_NO_TENSORS = {"sequence_type": "a sequence", "optional_type": "optional", "map_type": "a dictionary"}


def trace(model: onnx.ModelProto, lengths: Lengths = NO_LENGTHS, undecided: Collection[str] = ()) -> dict[str, Value]:
    """Give every tensor of a plain model with fixed input shapes its `Value`, by name, those in bodies as well.

    `lengths` are shapes of tensors that depend on data, and how often bodies of loops run, by name. Of tensors in
    `undecided` no elements are known. Shapes that do not follow, or contradict each other, are `UnreadableModel`.
    """
    values = {tensor.name: _stored(tensor) for tensor in model.graph.initializer}
    values |= {entry.name: _typed(entry.type, entry.name, f"input {entry.name!r}") for entry in model.graph.input}
    wanted: set[str] = set()  # tensors that something reads
    for graph in all_graphs(model.graph):
        wanted.update(entry.name for entry in graph.output)
        for node in graph.node:
            wanted.update(node.input)
    wanted.discard("")

    def walk(nodes: Sequence[onnx.NodeProto], values: dict[str, Value]) -> None:
        for node in nodes:
            if node.op_type in CONTROL_FLOW and not node.domain:
                values.update(control_flow_outputs(node, values, walk, lengths))
            else:
                values.update(_outputs(model, node, values, wanted.intersection(node.output), lengths))
            for name in node.output:
                if name in undecided:
                    values[name] = values[name]._replace(data=None, constant=False)

    walk(model.graph.node, values)
    return values


def _outputs(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value], wanted: set[str], lengths: Lengths
) -> dict[str, Value]:
    """Values of the outputs that are read; definitions of old operators leave the shapes of others open."""
    read = [values[name] for name in node.input if name]
    if node.op_type in READS_SHAPE:
        shape = read[0].shape
        if node.op_type == "Size":
            lengths_read = np.array(prod(shape), np.int64)
        else:  # with the start and end of operator set 15
            lengths_read = np.array(shape[integer(node, "start", 0) : integer(node, "end", len(shape))], np.int64)
        # The shape of an upper bound is no constant.
        constant = not read[0].data_dependent
        return {node.output[0]: Value(TensorProto.INT64, lengths_read.shape, lengths_read, constant)}
    operands = [values[name] if name else None for name in node.input]
    check_windows(node, operands)
    types = infer_types(model, node, values)
    check_operands(node, operands)
    results: list[Array | None] = [None] * len(node.output)
    if node.op_type in _FOLLOWED and all(value.data is not None for value in read) and _is_few(types):
        results = _evaluate(model, node, values)
    constant = node.op_type not in _RANDOM and all(value.constant for value in read)
    depends = any(value.data_dependent for value in read)
    if node.op_type in SHAPED_BY_DATA:
        # Operands behind the first one decide lengths. Data that are known and not constant are upper bounds.
        deciding = read[1:] or read
        depends = depends or any(value.data is not None and not value.constant for value in deciding)
    is_open = any(not _is_fixed(types.get(name)) for name in wanted)
    if is_open and all(data is None for data in results):
        types = _bounded(node, operands, types, lengths)
        depends = True
    written = {}
    for name, data in zip(node.output, results, strict=True):
        if data is not None:
            dtype = helper.np_dtype_to_tensor_dtype(data.dtype)
            written[name] = Value(dtype, data.shape, data, constant, depends and not constant and data.ndim > 0)
        elif name in wanted:
            value = _typed(types.get(name, TypeProto()), name, f"output {name!r} of {label(node)}")
            written[name] = value._replace(constant=constant, data_dependent=depends and bool(value.shape))
    _check(node, read, written)
    check_lengths(node, operands, list(written.values()))
    return written


def _is_fixed(kind: TypeProto | None) -> bool:
    """Whether all lengths of a type are known; a type that is no tensor has none that could be."""
    if kind is None or not kind.HasField("tensor_type"):
        return kind is not None
    shape = kind.tensor_type.shape
    return kind.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in shape.dim)


def _bounded(
    node: onnx.NodeProto, operands: Sequence[Value | None], types: Mapping[str, TypeProto], lengths: Lengths
) -> dict[str, TypeProto]:
    rule = None if node.domain else BOUNDS.get(node.op_type)
    bounds = dict(zip(node.output, rule(node, operands) if rule else (), strict=False))
    bounded = dict(types)
    for name, kind in types.items():
        if _is_fixed(kind):
            continue
        if name in lengths:
            bounded[name] = helper.make_tensor_type_proto(kind.tensor_type.elem_type, lengths[name])
        elif name in bounds:
            bounded[name] = helper.make_tensor_type_proto(*bounds[name])
    return bounded


def _is_few(types: Mapping[str, TypeProto]) -> bool:
    """Whether outputs are small; an axis whose length is not known yet follows from small data."""
    for kind in types.values():
        tensor = kind.tensor_type
        n_elements = prod(dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value"))
        if n_elements > _n_known(tensor.elem_type):
            return False
    return True


def _n_known(dtype: int) -> int:
    return N_KNOWN_FLOATS if is_float(dtype) else N_KNOWN_INTEGERS


def _evaluate(model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value]) -> list[Array | None]:
    """Elements of the outputs of a node whose operands are known; None where onnx cannot compute them."""
    from onnx.reference import ReferenceEvaluator  # many models have no such node

    feeds = {name: values[name].data for name in node.input if name}
    inputs = [helper.make_empty_tensor_value_info(name) for name in feeds]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "node", inputs, outputs)
    try:
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=model.opset_import))
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in evaluator.run(None, feeds)]
    except (ValueError, IndexError, TypeError, RuntimeError, NotImplementedError):
        return [None] * len(node.output)


def _check(node: onnx.NodeProto, read: list[Value], written: Mapping[str, Value]) -> None:
    if node.op_type not in ("DepthToSpace", "SpaceToDepth", "Reshape"):
        return
    count, other = prod(read[0].shape), prod(written[node.output[0]].shape)
    if count != other:
        shapes = " and ".join(str(list(value.shape)) for value in [*read, *written.values()])
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {count} is not {other} in {shapes}")


def _typed(kind: TypeProto, name: str, what: str) -> Value:
    """Turn a type with a fixed shape into a `Value`; `what` says in a message what the tensor of this name is."""
    tensor = kind.tensor_type
    if tensor.elem_type not in _DTYPES:
        got = _NO_TENSORS.get(kind.WhichOneof("value") or "", "of no known type")
        raise UnreadableModel(
            f"a model must compute with tensors of known type, {what} is {got}; try to export the model without it"
        )
    if not _is_fixed(kind):
        lengths = "x".join(str(dim.dim_value) if dim.HasField("dim_value") else "64" for dim in tensor.shape.dim)
        raise UnreadableModel(
            f"every shape must be known before the model runs, that of {what} depends on data; give the largest that "
            f"it may have, try --shape {name}={lengths or '64'}"
        )
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    check_shape(shape, what)
    return Value(tensor.elem_type, shape, None, False)


def _stored(tensor: TensorProto) -> Value:
    if tensor.data_type not in _DTYPES or any(length < 0 for length in tensor.dims):
        raise UnreadableModel(f"a constant needs a type and a shape, {tensor.name!r} has none")
    data: Array | None = None
    if prod(tensor.dims) <= _n_known(tensor.data_type) and tensor.data_location != TensorProto.EXTERNAL:
        try:
            data = numpy_helper.to_array(tensor)
        except ValueError as error:
            raise UnreadableModel(f"constant {tensor.name!r} does not hold what its shape says: {error}") from error
    return Value(tensor.data_type, tuple(tensor.dims), data, True)
