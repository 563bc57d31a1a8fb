"""Read an ONNX file, `read_model`, and the attributes, bodies and operands of its nodes.

The values of a model's weights, which `read_model` leaves in the file: `Weights`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import OnnxModel
from autoauto.records.units import Array

MAX_CONSTANT_ELEMENTS = 1 << 14  # larger constants are weights, of which only the shape matters
MAX_SERIALISED_BYTES = 1 << 28
"""How many bytes of weights stay in memory as they are written."""


def read_model(path: Path) -> onnx.ModelProto:
    """Read `path` and drop the values of its weights; files with external data need not have it beside them.

    The `doc_string` of a weight without values is its index among `stored_tensors`.

    Raises:
        UnreadableModel: the file is missing, or not a complete ONNX file.
    """
    return _without_weights(parse(path))


def copy_model(model: OnnxModel) -> onnx.ModelProto:
    """A copy of a model, in the form in which `read_model` reads a file."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return _without_weights(copy)


def parse(path: Path) -> onnx.ModelProto:
    """Read `path` as it is; external data stay where they are; raises as `read_model`."""
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise UnreadableModel(f"a model must be a readable file, got {path}: {error.strerror}") from error
    except DecodeError as error:
        raise UnreadableModel(f"{path} is not a complete ONNX file; try to export or copy it again") from error
    if not model.graph.node:
        raise UnreadableModel(f"a model needs one or more nodes, {path} has none; is it an ONNX file?")
    return model


def is_weight(tensor: onnx.TensorProto) -> bool:
    """True if the values of a stored tensor are left in the file."""
    n_elements: int = prod(tensor.dims)
    return n_elements > MAX_CONSTANT_ELEMENTS


def _is_in_file(tensor: onnx.TensorProto) -> bool:
    """True if a tensor of a model that `read_model` returned, or of its plain form, has no values of its own."""
    return is_weight(tensor) and not tensor.HasField("raw_data")


def stored_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor stored in the file, those in Constant nodes included."""
    yield from model.graph.initializer
    for holder in (model.graph, *model.functions):
        for node in all_nodes(holder):
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
            for body in bodies(node):
                yield from body.initializer


def attribute_named(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """The attribute of a node with this name; None where the node does not have it."""
    return next((entry for entry in node.attribute if entry.name == name), None)


def first_output(node: onnx.NodeProto) -> str:
    """The first output of a node that is not omitted; "" where all are."""
    return next(filter(None, node.output), "")


def has_bodies(node: onnx.NodeProto) -> bool:
    """True if a node holds graphs."""
    return next(bodies(node), None) is not None


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that a node of control flow holds."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and the bodies in it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from all_graphs(body)


def all_nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph, and those of bodies in it."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """The tensors that a node reads: its operands, "" for an omitted one, and what its bodies capture."""
    names = list(node.input)
    for body in bodies(node):
        for name in _captured(body):
            if name not in names:
                names.append(name)
    return tuple(names)


def _captured(body: onnx.GraphProto) -> Iterator[str]:
    inside = {""}
    inside.update(entry.name for entry in body.input)
    inside.update(tensor.name for tensor in body.initializer)
    for node in body.node:
        inside.update(node.output)
    for node in body.node:
        yield from (name for name in reads(node) if name not in inside)
    yield from (entry.name for entry in body.output if entry.name not in inside)


def first_line(error: Exception) -> str:
    """The first line of a message of onnx, which others follow that only help its authors; without any, its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    for index, tensor in enumerate(stored_tensors(model)):
        if is_weight(tensor):
            name, kind, dims = tensor.name, tensor.data_type, tuple(tensor.dims)
            tensor.Clear()
            tensor.name, tensor.data_type, tensor.doc_string = name, kind, str(index)
            tensor.dims.extend(dims)
    return model


class Weights:
    """The values of stored tensors; the file, beside which external data lie, is read at the first request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A model is cut many times, but each weight is read or made only once, as far as there is room. The key is the
        # name of the tensor with its index in the file, or with the use of a stand-in.
        self._serialised: dict[tuple[str, str], bytes] = {}
        self._room_bytes = MAX_SERIALISED_BYTES
        self._checked: set[tuple[str, str]] = set()  # a check takes longer than a copy, where there is no room

    def serialised(self, tensor: onnx.TensorProto) -> bytes:
        """A stored tensor of the model that `read_model` returned, or of its plain form, with its values inside.

        Raises UnreadableModel if the file has changed, or lacks the values.
        """
        if not _is_in_file(tensor):
            return self._read(tensor)
        return self._known((tensor.name, tensor.doc_string), lambda: self._read(tensor))

    def stand_in(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], *, convolves: bool) -> bytes:
        """The serialised tensor of `stand_in_weight`."""
        make = partial(stand_in_weight, name, shape, dtype, convolves=convolves)
        return self._known((name, f"{dtype} {shape} {convolves}"), lambda: bytes(make().SerializeToString()))

    def _known(self, key: tuple[str, str], make: Callable[[], bytes]) -> bytes:
        if key in self._serialised:
            return self._serialised[key]
        made = make()
        if len(made) <= self._room_bytes:
            self._room_bytes -= len(made)
            self._serialised[key] = made
        return made

    def _read(self, tensor: onnx.TensorProto) -> bytes:
        key = (tensor.name, tensor.doc_string)
        stored = self._in_file(tensor) if _is_in_file(tensor) else tensor
        is_external = stored.data_location == onnx.TensorProto.EXTERNAL
        try:
            if is_external:
                stored = self._loaded(stored)
            # External data are read again each time, and a small constant has no index that tells it from others.
            if is_external or not is_weight(tensor) or key not in self._checked:
                onnx.checker.check_tensor(stored)
                self._checked.add(key)
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            where = str(self._path)
            if is_external:
                location = next((entry.value for entry in stored.external_data if entry.key == "location"), "")
                where = f"data file {location!r} beside {self._path}"
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
        tensor = deepcopy(stored)
        load_external_data_for_tensor(tensor, str(self._path.parent))
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.ClearField("external_data")
        return tensor


def fill_value(node: onnx.NodeProto) -> Array:
    """The one element that a ConstantOfShape node repeats, zero where it names none."""
    value = attribute_named(node, "value")
    if value is None:
        return np.zeros((), np.float32)
    return numpy_helper.to_array(value.t).reshape(())


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
