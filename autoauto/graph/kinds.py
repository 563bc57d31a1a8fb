"""Keys of the code of a layer, its `attributes` and its `kind`; the choice of products that run in fp8, `quantise`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import onnx
from onnx import helper

from autoauto.graph.facts import TensorFact
from autoauto.graph.shapes.infer import schema
from autoauto.records.layers import AttributeValue, LayerGraph
from autoauto.records.units import Precision

Attributes = tuple[tuple[str, AttributeValue], ...]

_NO_CODE = frozenset({"epsilon", "momentum"})  # numbers in the data, the code is the same
_OPERANDS = frozenset(
    {"axes", "axis", "depth", "ends", "k", "pads", "repeats", "scales", "shape", "sizes", "split", "starts", "steps"}
)
_READABLE = {
    onnx.AttributeProto.FLOAT,
    onnx.AttributeProto.FLOATS,
    onnx.AttributeProto.INT,
    onnx.AttributeProto.INTS,
    onnx.AttributeProto.STRING,
    onnx.AttributeProto.STRINGS,
}
_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_MATRIX_PRODUCTS = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "MatMul"})
_MARK = ("precision", str(Precision.FP8))


def attributes(node: onnx.NodeProto, version: int, facts: Mapping[str, TensorFact]) -> Attributes:
    """The attributes of a node that change its code, by name: given, by default, or as a known operand like `axes`."""
    definition = schema(node.op_type, version, node.domain)
    entries: list[onnx.AttributeProto] = []
    if definition:
        entries += [entry.default_value for entry in definition.attributes.values() if entry.default_value.name]
    entries += node.attribute  # behind the defaults, which they overwrite
    values = {entry.name: _value(entry) for entry in entries if entry.type in _READABLE}
    for index, name in code_operands(node, version, facts):
        data = facts[node.input[index]].data
        assert data is not None
        values[name] = tuple(data.reshape(-1).tolist())
    return tuple(sorted((name, value) for name, value in values.items() if name not in _NO_CODE))


def code_operands(node: onnx.NodeProto, version: int, facts: Mapping[str, TensorFact]) -> Iterator[tuple[int, str]]:
    """Operands whose values are compiled into the code, as (index, attribute name)."""
    definition = schema(node.op_type, version, node.domain)
    if definition is None:
        return
    for index, (name, parameter) in enumerate(zip(node.input, definition.inputs, strict=False)):
        attribute = parameter.name.lower()
        if name and attribute in _OPERANDS and facts[name].data is not None:
            yield index, attribute


def kind(node: onnx.NodeProto, attributes: Attributes, outputs: Sequence[str], facts: Mapping[str, TensorFact]) -> str:
    """A key that is equal for layers of the same operator, attributes, and shapes of operands and outputs."""
    read = [_description(facts[name]) if name else "None" for name in node.input]
    written = [_description(facts[name]) for name in outputs]
    shapes = f"[{', '.join(read)}], [{', '.join(written)}]"
    return f"{node.op_type}-{_short_key(f'({node.domain!r}, {node.op_type!r}, {attributes!r}, {shapes})')}"


def digest(*parts: object) -> str:
    """A short key of plain values: equal values give equal keys on every machine."""
    return _short_key(repr(parts))


def quantise(graph: LayerGraph) -> LayerGraph:
    """Mark the products that run in fp8, and fix the tensors that stay in halves.

    As PopRT converts a model [poprt]: convolutions and matrix products take fp8 weights and activations, cast where
    they are read; the first convolution, whose few channels are slow in fp8, and the last matrix product, which decides
    the answer, stay fp16. A weight is stored in fp8 when only such products read it; activations are stored as halves.
    A model that is marked already comes back unchanged.
    """
    if any(_MARK in layer.attributes for layer in graph.layers):
        return graph
    layers = list(graph.layers)
    convolutions = [index for index, layer in enumerate(layers) if layer.op in _CONVOLUTIONS]
    products = [index for index, layer in enumerate(layers) if layer.op in _MATRIX_PRODUCTS]
    in_fp8 = {*convolutions[1:], *products[:-1]}
    read_in_fp8: set[int] = set()
    read_elsewhere: set[int] = set()
    for index, layer in enumerate(graph.layers):
        if index in in_fp8:
            marked = tuple(sorted((*layer.attributes, _MARK)))
            layers[index] = replace(layer, attributes=marked, kind=f"{layer.kind}-{Precision.FP8}")
            read_in_fp8.update(layer.weights)
        else:
            read_elsewhere.update(layer.weights)
    only_in_fp8 = read_in_fp8 - read_elsewhere
    tensors = list(graph.tensors)
    for index, tensor in enumerate(graph.tensors):
        is_narrow = index in only_in_fp8 and len(tensor.shape) > 1  # a bias, which is a vector, stays in halves
        if tensor.is_float and not is_narrow:
            tensors[index] = tensor._replace(dtype="float16")
    return replace(graph, layers=tuple(layers), tensors=tuple(tensors), content=f"{graph.content} fp8")


def _value(entry: onnx.AttributeProto) -> AttributeValue:
    value = helper.get_attribute_value(entry)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float):
        return value
    if entry.type == onnx.AttributeProto.STRINGS:
        return tuple(item.decode() for item in value)
    return tuple(value)


def _description(fact: TensorFact) -> str:
    """The text that stands for a tensor in a key. Stored profiles have such keys, so this text never changes."""
    shape = f"shape={fact.shape!r}, batch_axis={fact.batch_axis!r}"
    return f"Fact({shape}, dtype={fact.dtype!r}, data=None, constant={fact.constant!r})"


def _short_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
