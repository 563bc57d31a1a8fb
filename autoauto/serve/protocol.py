"""Inference requests and responses of the Open Inference Protocol over REST, with binary tensors [open-inference].

    POST body:  JSON object | tensor of the first binary input | of the second | ...
                ╰── Inference-Header-Content-Length bytes; all of the body where no input is binary

Binary tensors are little-endian and row-major without gaps. All functions are pure, and what a client can mend is a
`BadInput`. What is not as large as its shape says is refused before Python's objects are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import Array

DATATYPES = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
"""The element types of the protocol that a model's tensors may have, each with NumPy's name."""
DATATYPE_OF = {dtype: name for name, dtype in DATATYPES.items()}
_NOT_HERE = {
    "shared_memory_region": "shared memory",
    "classification": "classification",
    "sequence_id": "sequences",
}
"""Parameters that change what a tensor or a request means, of extensions that this server does not have."""


@dataclass(frozen=True, slots=True)
class ServedTensor:
    """An input or output of a model as it is served.

    Attributes:
        shape: at `batch_size` samples.
        dtype: of an element, as NumPy names it.
        batch_axis: the axis along which samples lie; None where the shape does not depend on their number.
        data_dependent: whether lengths depend on data; `shape` is then an upper bound.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    batch_axis: int | None
    batch_size: int
    data_dependent: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DATATYPE_OF:
            raise BadInput(f"the protocol has the types {', '.join(DATATYPE_OF)}, tensor {self.name!r} is {self.dtype}")

    @property
    def length(self) -> int:
        """The length along the batch axis that a sample takes; usually 1."""
        assert self.batch_axis is not None
        return self.shape[self.batch_axis] // self.batch_size

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample; of the whole tensor where it has no batch axis."""
        n_bytes = prod(self.shape) * np.dtype(self.dtype).itemsize
        return n_bytes if self.batch_axis is None else n_bytes // self.batch_size

    def shape_of(self, n_samples: int) -> tuple[int, ...]:
        """The shape at a number of samples."""
        shape = list(self.shape)
        if self.batch_axis is not None:
            shape[self.batch_axis] = self.length * n_samples
        return tuple(shape)

    def samples(self, array: Array, start: int, stop: int) -> Array:
        """A view of samples `start` to `stop` of an array; all of it where there is no batch axis."""
        if self.batch_axis is None:
            return array
        whole_axes = (slice(None),) * self.batch_axis
        return array[(*whole_axes, slice(start * self.length, stop * self.length))]

    @property
    def metadata(self) -> dict[str, Any]:
        """Name, type and shape as model metadata have them; -1 is a length that the request decides."""
        shape = [-1] * len(self.shape) if self.data_dependent else list(self.shape)
        if self.batch_axis is not None:
            shape[self.batch_axis] = -1
        return {"name": self.name, "datatype": DATATYPE_OF[self.dtype], "shape": shape}


class InferenceRequest(NamedTuple):
    """A request of a client.

    Attributes:
        id: the client's name of the request; empty where it gave none.
        n_samples: how many the inputs hold; those of a micro-batch where no input has a batch axis.
        inputs: views of the body where they are binary.
        outputs: those that are wanted, in this order, each with whether it is wanted as binary data.
    """

    id: str
    n_samples: int
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]


MAX_NAMES, MAX_PART_BYTES = 10_000, 1 << 16
"""Limits of the JSON object without data: of its names and texts, and of bytes of a shape or of parameters."""
CHUNK_ELEMENTS = 1 << 14
"""Numbers that become Python's objects at once: other threads run in between."""


class _Tensor(msgspec.Struct):
    name: str
    shape: msgspec.Raw
    datatype: str
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b"")


class _Output(msgspec.Struct):
    name: str
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _Head(msgspec.Struct):
    inputs: tuple[_Tensor, ...]
    id: str = ""
    outputs: tuple[_Output, ...] = ()
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class _Given(NamedTuple):
    """A tensor of a request, as `_Tensor` with its shape and its parameters read."""

    name: str
    shape: tuple[int, ...]
    datatype: str
    parameters: Mapping[str, Any]
    data: msgspec.Raw


def read_request(
    body: bytes | bytearray,
    header_length: str | None,
    inputs: Sequence[ServedTensor],
    outputs: Sequence[ServedTensor],
    max_samples: int | None = None,
) -> InferenceRequest:
    """Read the body of an inference request to a model with these inputs and outputs; raises BadInput.

    Args:
        header_length: the header `Inference-Header-Content-Length`, None where there is none.
        max_samples: of a request; by default any number.
    """
    n_json = _json_length(header_length, len(body))
    try:
        if body.count(b'"', 0, n_json) > 2 * MAX_NAMES:
            raise ValueError(f"it has more than {MAX_NAMES} names and texts")
        head = msgspec.json.decode(memoryview(body)[:n_json], type=_Head)
        general = _part(head.parameters, dict[str, Any])
        given = []
        for each in head.inputs:
            shape = _part(each.shape, tuple[int, ...])
            parameters = _part(each.parameters, dict[str, Any])
            given.append(_Given(each.name, shape, each.datatype, parameters, each.data))
        wanted = [(each.name, _part(each.parameters, dict[str, Any])) for each in head.outputs]
    except (ValueError, RecursionError) as error:  # also wrong fields, and bytes that are no text
        raise BadInput(f"the request must be the JSON object of an inference request: {error}") from error
    _check_parameters([general])
    _check_parameters([tensor.parameters for tensor in given])
    _check_parameters([parameters for _, parameters in wanted])
    _check_samples(given, inputs, max_samples)
    arrays = _arrays(given, body, n_json, {port.name: port for port in inputs})
    binary = general.get("binary_data_output") is True
    return InferenceRequest(head.id, _n_samples(arrays, inputs), arrays, _choices(wanted, outputs, binary))


def _part(text: msgspec.Raw, kind: Any) -> Any:
    """Read a shape or parameters, which may not be as long as data."""
    if len(memoryview(text)) > MAX_PART_BYTES:
        raise ValueError(f"a shape or parameters have more than {MAX_PART_BYTES} bytes")
    return msgspec.json.decode(text, type=kind)


def _json_length(text: str | None, n_bytes: int) -> int:
    if text is None:
        return n_bytes
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= n_bytes):
        raise BadInput(
            f"Inference-Header-Content-Length must be a number up to the {n_bytes} bytes of the body, got {text!r:.40}"
        )
    return int(text)


def _check_parameters(parameters: Sequence[Mapping[str, Any]]) -> None:
    for name, what in _NOT_HERE.items():
        if any(each.get(name) for each in parameters):
            raise BadInput(f"this server has no {what}, got the parameter {name}; leave it out")


def _arrays(
    tensors: Sequence[_Given], body: bytes | bytearray, start: int, ports: Mapping[str, ServedTensor]
) -> dict[str, Array]:
    """The inputs by name, each once and all of them; binary ones begin at byte `start` of the body."""
    names = [tensor.name for tensor in tensors]
    if sorted(names) != sorted(ports):
        raise BadInput(f"the inputs must be {', '.join(ports)}, each once, got {', '.join(names) or 'none'}"[:400])
    arrays = {}
    for tensor in tensors:
        port = ports[tensor.name]
        _check_shape(tensor, port)
        n_bytes = tensor.parameters.get("binary_data_size")
        if n_bytes is None:
            arrays[port.name] = _from_json(tensor, port)
        else:
            arrays[port.name] = _from_bytes(tensor, port, memoryview(body)[start:], n_bytes)
            start += n_bytes
    if start != len(body):
        raise BadInput(f"the inputs must be the whole body, got {len(body) - start} bytes more than their sizes say")
    return arrays


def _check_shape(tensor: _Given, port: ServedTensor) -> None:
    """Raise for another type, or a shape that the model has at no number of samples."""
    if DATATYPES.get(tensor.datatype) != port.dtype:
        raise BadInput(f"input {port.name!r} must be {DATATYPE_OF[port.dtype]}, got {tensor.datatype!r:.40}")
    n_samples = 1
    wanted = str(port.metadata["shape"])
    if port.batch_axis is not None:
        n_samples = _n_samples_of(tensor.shape, port.batch_axis, port)
        if port.length > 1:
            wanted += f", where -1 is {port.length} for each sample"
    if n_samples < 1 or tensor.shape != port.shape_of(n_samples):
        raise BadInput(f"input {port.name!r} must have the shape {wanted}, got {list(tensor.shape)!r:.80}")


def _check_samples(tensors: Sequence[_Given], ports: Sequence[ServedTensor], max_samples: int | None) -> None:
    """Raise for more samples than a request may hold, before they are read."""
    port_named = {port.name: port for port in ports}
    for tensor in tensors:
        port = port_named.get(tensor.name)
        if max_samples is None or port is None or port.batch_axis is None:
            continue
        n_samples = _n_samples_of(tensor.shape, port.batch_axis, port)
        if n_samples > max_samples:
            raise BadInput(f"a request may hold {max_samples} samples, got {n_samples}; try several requests")


def _n_samples_of(shape: tuple[int, ...], axis: int, port: ServedTensor) -> int:
    """The number of samples along an axis of a shape; 0 where it has no such axis."""
    return shape[axis] // port.length if axis < len(shape) else 0


def _from_bytes(tensor: _Given, port: ServedTensor, rest: memoryview, n_bytes: object) -> Array:
    wanted = prod(tensor.shape) * np.dtype(port.dtype).itemsize
    if n_bytes != wanted or isinstance(n_bytes, bool):
        raise BadInput(
            f"input {port.name!r} must have {wanted} bytes by its shape, got binary_data_size {n_bytes!r:.40}"
        )
    if len(rest) < wanted:
        raise BadInput(f"input {port.name!r} must have {wanted} bytes behind the JSON object, got {len(rest)}")
    array: Array = np.frombuffer(rest[:wanted], np.dtype(port.dtype).newbyteorder("<")).reshape(tensor.shape)
    if port.dtype == "bool" and (array.view(np.uint8) > 1).any():
        raise BadInput(f"input {port.name!r} must have bytes 0 and 1 as BOOL, got others")
    return array


def _from_json(tensor: _Given, port: ServedTensor) -> Array:
    """The data of a tensor in JSON, in one list or in nested ones."""
    # Elements are counted by commas before any becomes an object of Python.
    text = bytes(tensor.data).lstrip()
    if not text:
        raise BadInput(f"input {port.name!r} must have data, or binary_data_size among its parameters; got neither")
    kind: Any = {"b": bool, "f": float}.get(np.dtype(port.dtype).kind, int)
    is_nested = text[1:256].lstrip().startswith(b"[")
    n_elements = text.count(b",") + 1
    if n_elements != prod(tensor.shape):
        raise BadInput(f"input {port.name!r} must have the data of shape {list(tensor.shape)}, got {n_elements}")
    try:
        with np.errstate(over="raise"):
            if is_nested:
                for _ in tensor.shape:
                    kind = list[kind]
                array: Array = np.array(msgspec.json.decode(text, type=kind), port.dtype)
            else:
                array = _from_list(text, kind, np.empty(n_elements, port.dtype))
    except (ValueError, ArithmeticError, RecursionError) as error:  # also lists of unequal lengths, and overflow
        raise BadInput(f"input {port.name!r} must hold numbers of {DATATYPE_OF[port.dtype]}: {error}"[:400]) from error
    if is_nested and array.shape != tensor.shape:
        given = list(array.shape)
        raise BadInput(f"input {port.name!r} must have the data of shape {list(tensor.shape)}, got {given}")
    return array.reshape(tensor.shape)


def _from_list(text: bytes, kind: Any, array: Array) -> Array:
    """Read a list of as many numbers as an array has, some at a time."""
    text = text.strip()
    if not (text.startswith(b"[") and text.endswith(b"]")):
        raise ValueError("a list is wanted")
    chunk_bytes = CHUNK_ELEMENTS * 8
    start = 1  # behind the bracket
    n_read = 0
    while start < len(text):
        # A chunk ends at a comma, the last one at the closing bracket.
        stop = text.find(b",", start + chunk_bytes)
        if stop < 0:
            stop = len(text) - 1
        numbers = msgspec.json.decode(b"[" + text[start:stop] + b"]", type=list[kind])
        array[n_read : n_read + len(numbers)] = np.array(numbers, array.dtype)
        n_read += len(numbers)
        start = stop + 1
    if n_read < array.size:  # an empty list has as many commas as one of one number; the array is not set then
        raise ValueError("a number is missing")
    return array


def _n_samples(arrays: Mapping[str, Array], inputs: Sequence[ServedTensor]) -> int:
    counts = {}
    for port in inputs:
        if port.batch_axis is not None:
            counts[port.name] = _n_samples_of(arrays[port.name].shape, port.batch_axis, port)
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise BadInput(f"all inputs must have the same number of samples, got {given}"[:400])
    if counts:
        return next(iter(counts.values()))
    return inputs[0].batch_size if inputs else 1


def _choices(
    wanted: Sequence[tuple[str, Mapping[str, Any]]], outputs: Sequence[ServedTensor], binary: bool
) -> dict[str, bool]:
    known = [port.name for port in outputs]
    names = [name for name, _ in wanted]
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise BadInput(f"the outputs must be of {', '.join(known)}, each once, got {', '.join(names)}"[:400])
    if not names:
        return dict.fromkeys(known, binary)
    return {name: each.get("binary_data", binary) is True for name, each in wanted}


def write_response(
    request: InferenceRequest, model: str, version: str, outputs: Mapping[str, Array]
) -> tuple[list[bytes], int | None]:
    """The body of the answer in parts, and the length of its JSON object where binary data follow.

    Raises:
        BadInput: an output holds a number that JSON does not have, and is wanted as JSON.
    """
    entries: list[dict[str, Any]] = []
    binary = []
    for name, as_binary in request.outputs.items():
        array = outputs[name]
        entry: dict[str, Any] = {"name": name, "datatype": DATATYPE_OF[array.dtype.name], "shape": list(array.shape)}
        if as_binary:
            binary.append(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
            entry["parameters"] = {"binary_data_size": len(binary[-1])}
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput(f"output {name!r} has NaN or infinite numbers, which JSON has not; ask for binary_data")
        else:
            entry["data"] = _as_list(array.ravel())
        entries.append(entry)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id:
        head["id"] = request.id
    text = msgspec.json.encode(head)
    return [text, *binary], len(text) if binary else None


def _as_list(array: Array) -> msgspec.Raw:
    """Write numbers as a list in JSON, some at a time."""
    starts = range(0, array.size, CHUNK_ELEMENTS)
    parts = [msgspec.json.encode(array[start : start + CHUNK_ELEMENTS].tolist())[1:-1] for start in starts]
    return msgspec.Raw(b"[" + b",".join(parts) + b"]")
