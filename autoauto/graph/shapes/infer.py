"""The types of the outputs of one node: by rules of ours (`SHAPE_RULES`), or by the definition of its operator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper, shape_inference

from autoauto.graph.onnx_file import first_line
from autoauto.graph.shapes.contrib import weight_of_reader
from autoauto.graph.shapes.rules import SHAPE_RULES
from autoauto.graph.shapes.values import Value, label
from autoauto.records.errors import UnreadableModel


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


def infer_types(model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Value]) -> dict[str, TypeProto]:
    """Types of the outputs, by the inference function of the operator's definition."""
    rule = SHAPE_RULES.get((node.domain, node.op_type))
    if rule is not None:
        operands = [values[name] if name else None for name in node.input]
        if node.op_type == "ReorderInput":  # how many channels it writes is in the weight of what reads them
            operands.append(values.get(weight_of_reader(model, node)))
        try:
            outputs = rule(node, operands)
        except (ValueError, IndexError, AttributeError) as error:
            raise UnreadableModel(f"the shapes at {label(node)} do not fit: {first_line(error)}") from error
        return {name: helper.make_tensor_type_proto(*kind) for name, kind in zip(node.output, outputs, strict=False)}
    definition = schema(node.op_type, opset(model, node.domain), node.domain)
    if definition is None:
        where = f"domain {node.domain!r}" if node.domain else f"operator set {opset(model)}"
        raise UnreadableModel(
            f"the shapes of operator {node.op_type} of {where} are not known; try to export with standard operators"
        )
    types: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for name in filter(None, node.input):
        value = values[name]
        types[name] = helper.make_tensor_type_proto(value.dtype, value.shape)
        if value.data is not None:
            data[name] = numpy_helper.from_array(value.data, name)
    try:
        if not definition.has_type_and_shape_inference_function:  # it is defined by a function of other operators
            inputs = [helper.make_value_info(name, kind) for name, kind in types.items()]
            ends = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
            graph = helper.make_graph([node], "node", inputs, ends, list(data.values()))
            single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
            inferred = shape_inference.infer_shapes(single, data_prop=True)
            return {entry.name: entry.type for entry in inferred.graph.output}
        return shape_inference.infer_node_outputs(
            definition, node, types, data, opset_imports=list(model.opset_import), ir_version=model.ir_version
        )
    except (shape_inference.InferenceError, onnx.checker.ValidationError, ValueError, TypeError) as error:
        raise UnreadableModel(f"the shapes at {label(node)} do not fit: {first_line(error)}") from error
