"""Read an ONNX file (`read_model`) and bring it to a plain form (`flatten`): sorted nodes without functions.

The values of a model's weights, which `read_model` leaves in the file: `Weights`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import inliner, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Array

MAX_CONSTANT_ELEMENTS = 1 << 14  # larger constants are weights, of which only the shape matters
_CONSTANTS = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
}
MAX_AXES = 32
MAX_ELEMENTS = 2**50  # of a tensor, so that the bytes of a few are exact numbers
_MAX_VERSION = 2**31 - 1  # of the format and of operators: onnx holds it in 32 bits
_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def read_model(path: Path) -> onnx.ModelProto:
    """Read `path` and drop the values of its weights; files with external data need not have it beside them.

    The `doc_string` of a weight without values is its index among `stored_tensors`.

    Raises:
        UnreadableModel: the file is missing, or not a complete ONNX file.
    """
    return _without_weights(parse(path))


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model, in the form in which `read_model` reads a file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return _without_weights(copy)


def parse(path: Path) -> onnx.ModelProto:
    """Read `path` as it is; external data stay where they are.

    Raises:
        UnreadableModel: as `read_model`.
    """
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise UnreadableModel(f"a model must be a readable file, got {path}: {error.strerror}") from error
    except DecodeError as error:
        raise UnreadableModel(f"{path} is not a complete ONNX file; try to export or copy it again") from error
    if not model.graph.node:
        raise UnreadableModel(f"a model needs one or more nodes, {path} has none; is it an ONNX file?")
    return model


def flatten(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model into plain form: functions inlined, constants as initializers, sorted, without unused nodes.

    Raises:
        UnreadableModel: control flow, a cycle, or a tensor that nothing or more than one node produces.
    """
    try:
        plain = _one_domain(inliner.inline_local_functions(model) if model.functions else model)
    except RuntimeError as error:
        raise UnreadableModel(f"the functions of the model cannot be inlined: {error}") from error
    _check_head(plain)
    nodes, constants = [], list(plain.graph.initializer)
    context = type(onnx.checker.DEFAULT_CONTEXT)()
    context.ir_version = plain.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in plain.opset_import}
    for node in plain.graph.node:
        _check(node, context)
        if node.op_type == "Constant" and not node.domain:
            constants.append(_constant(node))
        else:
            nodes.append(node)
    known = {tensor.name for tensor in constants}
    inputs = [value for value in plain.graph.input if value.name not in known]
    nodes = _sorted(nodes, known | {value.name for value in inputs}, {value.name for value in plain.graph.output})
    return assemble(plain, _used(nodes, plain), inputs, list(plain.graph.output), constants)


def assemble(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: list[onnx.TensorProto],
) -> onnx.ModelProto:
    """Make a model of these parts with the operator sets of `model`."""
    graph = onnx.helper.make_graph(nodes, model.graph.name or "graph", inputs, outputs, constants)
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=max(model.ir_version, 4))


def is_weight(tensor: onnx.TensorProto) -> bool:
    """Whether the values of a stored tensor are left in the file."""
    return _n_elements(tensor) > MAX_CONSTANT_ELEMENTS


def stored_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor stored in the file, those in Constant nodes included."""
    yield from model.graph.initializer
    for holder in (model.graph, *model.functions):
        for node in holder.node:
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def first_line(error: Exception) -> str:
    """The first line of a message of onnx, which others follow that only help its authors; without any, its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _one_domain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Call the standard operators' domain by its short name, the empty one."""
    if not any(entry.domain == "ai.onnx" for entry in (*model.opset_import, *model.graph.node)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in (*copy.opset_import, *copy.graph.node):
        entry.domain = entry.domain if entry.domain != "ai.onnx" else ""
    return copy


def check_shape(shape: Sequence[int], what: str) -> None:
    """Refuse a tensor that no device holds, whose size would not be an exact number.

    Raises:
        UnreadableModel: it has too many axes or elements; the message begins with `what` it is.
    """
    if len(shape) > MAX_AXES:
        raise UnreadableModel(f"{what} must have at most {MAX_AXES} axes, got {len(shape):,}; is the file damaged?")
    if (n_elements := prod(map(abs, shape))) > MAX_ELEMENTS:
        raise UnreadableModel(
            f"{what} must have at most 2**{MAX_ELEMENTS.bit_length() - 1} elements, got {n_elements:.3g}; "
            "is the file damaged?"
        )


def _check_head(model: onnx.ModelProto) -> None:
    """Refuse versions that onnx cannot hold, and names of the ends of a model that are none."""
    for version in (model.ir_version, *(entry.version for entry in model.opset_import)):
        if not 0 <= version <= _MAX_VERSION:
            raise UnreadableModel(f"the versions in a model must be from 0 to {_MAX_VERSION}, got {version}")
    ends = [*(value.name for value in model.graph.input), *(value.name for value in model.graph.output)]
    _check_names([*ends, *(tensor.name for tensor in model.graph.initializer)])
    _check_names([entry.domain for entry in model.opset_import])
    if "" in ends:
        raise UnreadableModel("the inputs and outputs of a model must have names, one has none")
    for tensor in model.graph.initializer:
        check_shape(tensor.dims, f"constant {tensor.name!r}")


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):  # protobuf returns bytes for a name that is not valid text
            raise UnreadableModel(f"every name in a model must be text, got {name!r}; try to copy the file again")


def _check(node: onnx.NodeProto, context: Any) -> None:
    """Refuse control flow, and a node that contradicts the definition of its operator."""
    _check_names((node.name, node.op_type, node.domain, *node.input, *node.output))
    for attribute in node.attribute:
        _check_attribute(node, attribute)
    if node.op_type == "Split":
        _check_split(node)
    if any(attribute.type in _GRAPHS for attribute in node.attribute):
        raise UnreadableModel(
            f"control flow has no static cost: {node.op_type} {node.name!r} holds a graph; try to export without it"
        )
    try:
        if not node.domain and node.op_type != "Constant":  # the value of a Constant may have been dropped
            onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise UnreadableModel(f"node {node.name!r} is not as ONNX defines it: {first_line(error)}") from error


def _check_split(node: onnx.NodeProto) -> None:
    """Refuse a Split that writes more than it makes: the inference of onnx ends the process there."""
    for attribute in node.attribute:
        if attribute.name == "num_outputs" and attribute.i != len(node.output):
            raise UnreadableModel(
                f"a Split must have num_outputs outputs, node {node.name!r} has {len(node.output)} instead of "
                f"{attribute.i}"
            )


def _check_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse what onnx does not: texts that are none, and parameters of functions outside of them."""
    _check_names([attribute.name])
    if attribute.ref_attr_name:
        raise UnreadableModel(
            f"only the body of a function has parameters, {attribute.name!r} of node {node.name!r} is one"
        )
    try:
        b"".join((attribute.s, *attribute.strings)).decode()
    except UnicodeDecodeError:
        raise UnreadableModel(
            f"attribute {attribute.name!r} of node {node.name!r} must be UTF-8 text, got {attribute.s!r:.80}"
        ) from None


def _constant(node: onnx.NodeProto) -> onnx.TensorProto:
    """Turn a Constant node into an initializer."""
    if len(node.attribute) != 1 or len(node.output) != 1:
        given = f"{len(node.attribute)} and {len(node.output)}"
        raise UnreadableModel(f"a constant needs one value and one output, node {node.name!r} has {given}")
    (attribute,) = node.attribute
    value = onnx.helper.get_attribute_value(attribute)
    tensor = onnx.TensorProto()
    if isinstance(value, onnx.TensorProto):
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
        return tensor
    kind = _CONSTANTS.get(attribute.name.removesuffix("s"))
    if kind is None:
        raise UnreadableModel(f"a constant must be a dense tensor, {node.output[0]!r} is a {attribute.name}")
    values, dims = (value, [len(value)]) if isinstance(value, Sequence) else ([value], [])
    try:
        return onnx.helper.make_tensor(node.output[0], kind, dims, values)
    except (TypeError, ValueError) as error:
        raise UnreadableModel(f"constant {node.output[0]!r} is no {attribute.name}: {first_line(error)}") from error


def _sorted(nodes: list[onnx.NodeProto], known: set[str], wanted: set[str]) -> list[onnx.NodeProto]:
    """Order nodes so that each reads only tensors known or written earlier; the file's order stays if it does that."""
    writer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in writer or name in known:
                raise UnreadableModel(f"a tensor must be written once, {name!r} is written by two nodes")
            writer[name] = index
    missing = wanted.union(*(node.input for node in nodes)) - known - writer.keys() - {""}
    if missing:
        raise UnreadableModel(f"every tensor must come from somewhere, nothing writes {min(map(str, missing))!r}")
    needs = [{writer[name] for name in node.input if name in writer} for node in nodes]
    if all(max(before, default=-1) < index for index, before in enumerate(needs)):
        return nodes
    try:
        return [nodes[index] for index in TopologicalSorter(dict(enumerate(needs))).static_order()]
    except CycleError as error:
        name = nodes[error.args[1][0]].name
        raise UnreadableModel(f"a model must not have a cycle, node {name!r} waits for itself") from error


def _used(nodes: list[onnx.NodeProto], model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Drop what no output of the model depends on."""
    wanted = {value.name for value in model.graph.output}
    used = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            used.append(node)
    return used[::-1]


def _n_elements(tensor: onnx.TensorProto) -> int:
    count = 1
    for length in tensor.dims:
        count *= length
    return count


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    for index, tensor in enumerate(stored_tensors(model)):
        if is_weight(tensor):
            _drop_values(tensor, index)
    return model


def _drop_values(tensor: onnx.TensorProto, index: int) -> None:
    """Reduce a stored tensor to its name, type, shape, and index in the file."""
    name, kind, dims = tensor.name, tensor.data_type, tuple(tensor.dims)
    tensor.Clear()
    tensor.name, tensor.data_type, tensor.doc_string = name, kind, str(index)
    tensor.dims.extend(dims)


class Weights:
    """The values of stored tensors; the file is read at the first request.

    Args:
        path: of the file; external data lie beside it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # Names and indices in the file: a check takes longer than the rest, and a model is cut many times.
        self._checked: set[tuple[str, str]] = set()

    def serialised(self, tensor: onnx.TensorProto) -> bytes:
        """A stored tensor of the model that `read_model` returned, or of its plain form, with its values inside.

        Raises:
            UnreadableModel: the file has changed, or what holds the values is missing or too short.
        """
        stored = self._in_file(tensor) if is_weight(tensor) and not tensor.HasField("raw_data") else tensor
        is_external = stored.data_location == onnx.TensorProto.EXTERNAL
        try:
            stored = self._loaded(stored) if is_external else stored
            if is_external or not is_weight(tensor) or (tensor.name, tensor.doc_string) not in self._checked:
                onnx.checker.check_tensor(stored)
                self._checked.add((tensor.name, tensor.doc_string))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            where = f"data file {_location(stored)!r} beside {self._path}" if is_external else str(self._path)
            raise UnreadableModel(
                f"a model that runs needs the values of its weights, those of {tensor.name!r} cannot be read from "
                f"{where}: {first_line(error)}"
            ) from error
        stored.name = tensor.name  # the tensor in a Constant node has no name, or another one
        return bytes(stored.SerializeToString())

    @cached_property
    def _tensors(self) -> Sequence[onnx.TensorProto]:
        return list(stored_tensors(parse(self._path)))

    def _in_file(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        index = int(tensor.doc_string)
        if index < len(self._tensors):
            stored = self._tensors[index]
            if (stored.data_type, stored.dims) == (tensor.data_type, tensor.dims):
                return stored
        raise UnreadableModel(f"{self._path} does not hold weight {tensor.name!r} any more; it has changed")

    def _loaded(self, stored: onnx.TensorProto) -> onnx.TensorProto:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(stored)
        load_external_data_for_tensor(tensor, str(self._path.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.ClearField("external_data")
        return tensor


def fill_value(node: onnx.NodeProto) -> Array:
    """The one element that a ConstantOfShape node repeats, zero where it names none."""
    filled = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
    return numpy_helper.to_array(filled).reshape(()) if filled is not None else np.zeros((), np.float32)


def stand_in_weight(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, convolves: bool) -> onnx.TensorProto:
    """A weight of two axes or more that stands in for one that repeats a value: uniform noise around 0.

    A runtime would store equal weights once, and read them from its caches. Weights of one sign would add up to outputs
    that are all alike, of which rounding leaves nothing to compare. The mean square is 1 / n for sums of n products, so
    that layers keep the size of activations [glorot]: formats of 16 bits hold no others. A convolution sums over all
    axes but the first; a matrix does not tell over which of its two, so n is their geometric mean.
    """
    n = prod(shape[1:]) if convolves else prod(shape[-2:]) ** 0.5
    noise = np.random.default_rng(crc32(name.encode())).random(shape, np.float32)
    noise -= np.float32(0.5)
    noise *= np.float32(2.0 * (3.0 / n) ** 0.5)
    return numpy_helper.from_array(noise.astype(dtype, copy=False), name)


def _location(stored: onnx.TensorProto) -> str:
    return next((entry.value for entry in stored.external_data if entry.key == "location"), "")
