"""What makes the code of a layer: its attributes and its `kind`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import onnx
from onnx import helper

from autoauto.graph.facts import Fact
from autoauto.graph.trace import schema
from autoauto.records.layers import AttributeValue

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
