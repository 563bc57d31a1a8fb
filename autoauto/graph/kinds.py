"""What decides the code of a layer: its `attributes`, its `kind`, and the products that run in fp8 (`quantise`).

What holds for every tensor at any batch size, inferred from the batch sizes 1, 2 and 3: `TensorFact`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

import onnx
from onnx import helper

from autoauto.graph.rebatch import at_batch, at_own_batch, resolve_batch
from autoauto.graph.trace import Value, is_float, schema, trace
from autoauto.records.errors import BadInput, UnreadableModel
from autoauto.records.layers import AttributeValue, Layer, LayerGraph
from autoauto.records.units import Array, Precision


class TensorFact(NamedTuple):
    """What is known about a tensor, as in `records.layers.Tensor`.

    Attributes:
        shape: at batch size 1.
        batch_axis: the axis whose length is multiplied by the batch size, None when there is none.
        dtype: "float", or NumPy's name.
        data: its elements at batch size 1, where they are constant and few.
        constant: whether it depends neither on an input nor, as floats, on the batch size.
    """

    shape: tuple[int, ...]
    batch_axis: int | None
    dtype: str
    data: Array | None
    constant: bool


class ModelFacts(NamedTuple):
    """A plain model and the facts about its tensors.

    Attributes:
        model: at batch size 1, or at its own where other batch sizes are impossible.
        facts: by tensor name.
        fixed_batch: why other batch sizes are impossible, None when they are not.
    """

    model: onnx.ModelProto
    facts: dict[str, TensorFact]
    fixed_batch: str | None


def infer_facts(model: onnx.ModelProto) -> ModelFacts:
    """Trace a model at the batch sizes 1, 2 and 3; at its own batch size only, where the others are impossible.

    Raises:
        UnreadableModel: the model cannot be read at any batch size.
    """
    plain, batch = resolve_batch(model)
    at_own = at_own_batch(plain, batch)
    try:
        models = [at_batch(plain, batch, batch_size) for batch_size in (1, 2, 3)]
        values = [trace(model) for model in models]
        facts = {name: _fact(name, *(at[name] for at in values)) for name in values[0]}
        return ModelFacts(models[0], facts, None)
    except BadInput as reason:
        facts = {name: _fact(name, value, value, value) for name, value in trace(at_own).items()}
        return ModelFacts(at_own, facts, str(reason))


def batch_axis(name: str, at_one: tuple[int, ...], at_two: tuple[int, ...], at_three: tuple[int, ...]) -> int | None:
    """The axis that grows with the batch, from the shapes at 1, 2 and 3 samples; None when no axis does.

    >>> batch_axis("x", (12, 64), (24, 64), (36, 64))
    0

    Raises:
        BadInput: an axis changes otherwise, or more than one does.
    """
    if len(at_one) == len(at_two) == len(at_three):
        changed = [axis for axis in range(len(at_one)) if not at_one[axis] == at_two[axis] == at_three[axis]]
        if not changed:
            return None
        axis = changed[0]
        if len(changed) == 1 and (at_two[axis], at_three[axis]) == (2 * at_one[axis], 3 * at_one[axis]):
            return axis
    shapes = f"{list(at_one)}, {list(at_two)} and {list(at_three)} at 1, 2 and 3 samples"
    raise BadInput(f"one axis of a tensor must grow with the batch, {name!r} is {shapes}")


def _fact(name: str, at_one: Value, at_two: Value, at_three: Value) -> TensorFact:
    axis = batch_axis(name, at_one.shape, at_two.shape, at_three.shape)
    dtype = _dtype(name, at_one.dtype)
    constant = at_one.constant and not (dtype == "float" and axis is not None)
    return TensorFact(at_one.shape, axis, dtype, at_one.data, constant)


def _dtype(name: str, dtype: int) -> str:
    if is_float(dtype):
        return "float"
    try:
        return str(helper.tensor_dtype_to_np_dtype(dtype))
    except KeyError as error:
        raise UnreadableModel(f"tensor {name!r} has an element type that is not known: {dtype}") from error


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
_MATRIX_PRODUCTS = frozenset({"Gemm", "MatMul"})
_MARK = ("precision", str(Precision.FP8))


def attributes(node: onnx.NodeProto, version: int, facts: Mapping[str, TensorFact]) -> Attributes:
    """The attributes of a node that change its code, by name: given, by default, or as a known operand like `axes`."""
    definition = schema(node.op_type, version, node.domain)
    entries = [entry.default_value for entry in definition.attributes.values() if entry.default_value.name]
    values = {entry.name: _value(entry) for entry in (*entries, *node.attribute) if entry.type in _READABLE}
    for index, name in code_operands(node, version, facts):
        data = facts[node.input[index]].data
        assert data is not None
        values[name] = tuple(data.reshape(-1).tolist())
    return tuple(sorted((name, value) for name, value in values.items() if name not in _NO_CODE))


def code_operands(node: onnx.NodeProto, version: int, facts: Mapping[str, TensorFact]) -> Iterator[tuple[int, str]]:
    """Operands whose values are compiled into the code, as (index, attribute name)."""
    formal = schema(node.op_type, version, node.domain).inputs
    for index, (name, parameter) in enumerate(zip(node.input, formal, strict=False)):
        if name and parameter.name.lower() in _OPERANDS and facts[name].data is not None:
            yield index, parameter.name.lower()


def kind(node: onnx.NodeProto, attributes: Attributes, outputs: list[str], facts: Mapping[str, TensorFact]) -> str:
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
    marked = _fp8_layers(graph)
    layers = list(enumerate(graph.layers))
    read_elsewhere = {weight for index, layer in layers if index not in marked for weight in layer.weights}
    read_in_fp8 = {weight for index, layer in layers if index in marked for weight in layer.weights}
    narrow = {weight for weight in read_in_fp8 - read_elsewhere if len(graph.tensors[weight].shape) > 1}
    return replace(
        graph,
        layers=tuple(_mark(layer) if index in marked else layer for index, layer in layers),
        tensors=tuple(
            tensor._replace(dtype="float16") if tensor.is_float and index not in narrow else tensor
            for index, tensor in enumerate(graph.tensors)
        ),
        content=f"{graph.content} fp8",
    )


def _value(entry: onnx.AttributeProto) -> AttributeValue:
    value = helper.get_attribute_value(entry)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (int, float)):
        return value
    return tuple(item.decode() if isinstance(item, bytes) else item for item in value)


def _description(fact: TensorFact) -> str:
    """The part of a key that a tensor is. Stored profiles have such keys, so this text never changes."""
    shape = f"shape={fact.shape!r}, batch_axis={fact.batch_axis!r}"
    return f"Fact({shape}, dtype={fact.dtype!r}, data=None, constant={fact.constant!r})"


def _short_key(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _fp8_layers(graph: LayerGraph) -> set[int]:
    convolutions = [index for index, layer in enumerate(graph.layers) if layer.op == "Conv"]
    products = [index for index, layer in enumerate(graph.layers) if layer.op in _MATRIX_PRODUCTS]
    return {*convolutions[1:], *products[:-1]}


def _mark(layer: Layer) -> Layer:
    return replace(layer, attributes=tuple(sorted((*layer.attributes, _MARK))), kind=f"{layer.kind}-{Precision.FP8}")
