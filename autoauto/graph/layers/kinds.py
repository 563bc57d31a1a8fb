"""What makes the code of a layer: its attributes and its `kind`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import onnx
from onnx import helper

from autoauto.graph.layers.facts import Fact
from autoauto.graph.read.trace import schema
from autoauto.records.layers import AttributeValue, Layer, LayerGraph
from autoauto.records.units import Precision

Settings = tuple[tuple[str, AttributeValue], ...]
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


def attributes(node: onnx.NodeProto, version: int, facts: Mapping[str, Fact]) -> Settings:
    """The attributes of a node that change its code, by name: given, by default, or as a known operand like `axes`."""
    definition = schema(node.op_type, version, node.domain)
    entries = [entry.default_value for entry in definition.attributes.values() if entry.default_value.name]
    found = {entry.name: _value(entry) for entry in (*entries, *node.attribute) if entry.type in _READABLE}
    for index, name in code_operands(node, version, facts):
        data = facts[node.input[index]].data
        assert data is not None
        found[name] = tuple(data.reshape(-1).tolist())
    return tuple(sorted((name, value) for name, value in found.items() if name not in _NO_CODE))


def code_operands(node: onnx.NodeProto, version: int, facts: Mapping[str, Fact]) -> Iterator[tuple[int, str]]:
    """Operands whose values are compiled into the code, as (index, attribute name)."""
    formal = schema(node.op_type, version, node.domain).inputs
    for index, (name, parameter) in enumerate(zip(node.input, formal, strict=False)):
        if name and parameter.name.lower() in _OPERANDS and facts[name].data is not None:
            yield index, parameter.name.lower()


def kind(
    node: onnx.NodeProto,
    settings: Settings,
    outputs: list[str],
    facts: Mapping[str, Fact],
) -> str:
    """A key that is equal for layers of the same operator, attributes, and shapes of operands and outputs."""
    read = [facts[name]._replace(data=None) if name else None for name in node.input]
    written = [facts[name]._replace(data=None) for name in outputs]
    return f"{node.op_type}-{digest(node.domain, node.op_type, settings, read, written)}"


def digest(*parts: object) -> str:
    """A short key of plain values: equal values give equal keys on every machine."""
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _value(entry: onnx.AttributeProto) -> AttributeValue:
    value = helper.get_attribute_value(entry)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float)):
        return value
    return tuple(item.decode() if isinstance(item, bytes) else item for item in value)


_READERS = frozenset({"Conv", "ConvTranspose", "Einsum", "GRU", "Gather", "Gemm", "LSTM", "MatMul", "RNN"})


def is_matrix(shape: Sequence[int], dtype: str) -> bool:
    """Whether a weight is one that ties its readers.

    >>> is_matrix((50257, 768), "float"), is_matrix((1, 768), "float"), is_matrix((2, 3), "int64")
    (True, False, False)
    """
    return dtype == "float" and sum(length > 1 for length in shape) > 1


def ties(readings: Sequence[tuple[str, Sequence[str]]]) -> list[str | None]:
    """For each layer, given as (op, names of the matrices it reads), the key of those that it is tied to.

    >>> ties([("Gather", ["wte"]), ("MatMul", ["a"]), ("MatMul", ["wte"]), ("Add", ["a"])])
    ['wte', None, 'wte', None]
    """
    read = [tuple(dict.fromkeys(names)) if op in _READERS else () for op, names in readings]
    group: dict[str, str] = {}

    def find(name: str) -> str:
        while group.setdefault(name, name) != name:
            name = group[name]
        return name

    for names in read:
        for other in names[1:]:
            group[find(other)] = find(names[0])
    keys = [find(names[0]) if names else None for names in read]
    readers = Counter(keys)
    return [key if readers[key] > 1 else None for key in keys]


_ALWAYS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_WHEN_EQUAL = frozenset({"Expand", "Tile"})
_WHEN_ALONE = frozenset({"Concat", "Max", "Mean", "Min", "Sum"})
_WIDE_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})  # 32 bits on the device, all of them


def is_view(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether the first output of a node is its first input under another shape."""
    if not node.input or node.input[0] not in facts or node.output[0] not in facts:
        return False
    op, before, after = node.op_type, facts[node.input[0]], facts[node.output[0]]
    return (
        op in _ALWAYS
        or (op in _WHEN_EQUAL and before[:2] == after[:2])
        or (op in _WHEN_ALONE and len(node.input) == 1)
        or (op == "Cast" and (before.dtype == after.dtype or {before.dtype, after.dtype} <= _WIDE_INTEGERS))
        or (op == "Dropout" and not _is_training(node, facts) and not any(name in facts for name in node.output[1:]))
        or (op == "Transpose" and _moves_ones(before, _order(node, len(before.shape))))
    )


def is_weight_view(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether a node does to a weight what can be done once, when the model is compiled, without a new weight."""
    return node.op_type == "Transpose" or is_view(node, facts)


def _order(node: onnx.NodeProto, rank: int) -> tuple[int, ...]:
    """The permutation of a Transpose."""
    given = next((tuple(entry.ints) for entry in node.attribute if entry.name == "perm"), ())
    return given or tuple(range(rank))[::-1]


def _moves_ones(before: Fact, permutation: tuple[int, ...]) -> bool:
    """Whether a permutation moves axes of length 1 only, the batch axis aside."""
    long = [axis for axis in permutation if before.shape[axis] != 1 or axis == before.batch_axis]
    return long == sorted(long)


def _is_training(node: onnx.NodeProto, facts: Mapping[str, Fact]) -> bool:
    """Whether a Dropout drops anything: its third operand, since operator set 12, is true or not known."""
    if len(node.input) < 3 or not node.input[2]:
        return False
    data = facts[node.input[2]].data
    return data is None or bool(data)


_MATRIX_PRODUCTS = frozenset({"Gemm", "MatMul"})
_MARK = ("precision", str(Precision.FP8))


def quantise(graph: LayerGraph) -> LayerGraph:
    """Mark the products that run in fp8, and fix all that stays in halves.

    As PopRT converts a model: convolutions and matrix products take fp8 weights and activations, cast where they are
    read; the first convolution, whose few channels are slow in fp8, and the last matrix product, which decides the
    answer, stay fp16. A weight is stored in fp8 when only such products read it; activations are stored as halves. A
    model that is marked already comes back as it is.
    """
    if any(_MARK in layer.attributes for layer in graph.layers):
        return graph
    marked = _fp8_layers(graph)
    elsewhere = {i for place, layer in enumerate(graph.layers) if place not in marked for i in layer.weights}
    narrow = {i for place in marked for i in graph.layers[place].weights if len(graph.tensors[i].shape) > 1} - elsewhere
    return replace(
        graph,
        layers=tuple(_mark(layer) if place in marked else layer for place, layer in enumerate(graph.layers)),
        tensors=tuple(
            tensor._replace(dtype="float16") if tensor.is_float and index not in narrow else tensor
            for index, tensor in enumerate(graph.tensors)
        ),
        content=f"{graph.content} fp8",
    )


def _fp8_layers(graph: LayerGraph) -> set[int]:
    convolutions = [place for place, layer in enumerate(graph.layers) if layer.op == "Conv"]
    products = [place for place, layer in enumerate(graph.layers) if layer.op in _MATRIX_PRODUCTS]
    return {*convolutions[1:], *products[:-1]}


def _mark(layer: Layer) -> Layer:
    return replace(layer, attributes=tuple(sorted((*layer.attributes, _MARK))), kind=f"{layer.kind}-{Precision.FP8}")
