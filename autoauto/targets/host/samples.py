"""Inputs of the model that a user gives in a file of NumPy: `read_samples` reads and checks `InputSamples`."""

from __future__ import annotations

import hashlib
import lzma
import struct
import tokenize
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy

from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, Port, Source
from autoauto.records.units import Array

MAX_INPUT_BYTES = 2**30
"""Maximum size of all arrays of a file."""
_MALFORMED = (
    ArithmeticError,
    BadZipFile,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
)
"""Exceptions of the readers of archives and of headers of arrays, for bytes that are something else."""


@dataclass(frozen=True, slots=True)
class InputSamples:
    """Samples of a model's inputs.

    Attributes:
        arrays: all samples of every input along its batch axis, by the name of the input.
        axes: the batch axis of every input; None if the shape does not depend on the number of samples.
    """

    path: str
    arrays: Mapping[str, Array]
    axes: Mapping[str, int | None]
    digest: str

    def batch(self, ports: Sequence[Port], first: int = 0) -> dict[str, Array]:
        """The inputs of a micro-batch with the shapes of `ports`: samples from `first` on, and from the start again."""
        return {port.name: self._repeated(port, first) for port in ports}

    def _repeated(self, port: Port, first: int) -> Array:
        array, axis = self.arrays[port.name], self.axes[port.name]
        if axis is None:
            return array
        return array.take(range(first, first + port.shape[axis]), axis, mode="wrap")

    @property
    def note(self) -> str:
        """A sentence that says which samples a micro-batch has."""
        return (
            f"inputs are those of {self.path}: a micro-batch has its first samples, and where it has more, those again"
        )


def read_model_samples(path: str, source: Source, graph: LayerGraph) -> InputSamples:
    """The samples of `read_samples` for the inputs of a model."""
    ports = source.carried(graph, 0, 1)
    pairs = source.carried(graph, 0, 1 if graph.fixed_batch else 2)
    axes = {port.name: _batch_axis(port, pair) for port, pair in zip(ports, pairs, strict=True)}
    return read_samples(path, graph.name, ports, axes)


def read_samples(path: str, model: str, ports: Sequence[Port], axes: Mapping[str, int | None]) -> InputSamples:
    """The samples in an npz file: an array for every input of a model, with its type and shape.

    Any number of samples may lie along the batch axis, in all inputs as many.

    Args:
        ports: inputs of the model, with the shapes of one sample.
        axes: the batch axis of every input, as in `InputSamples`.

    Raises:
        BadInput: the file cannot be read, or an array is missing, too many, or of another type or shape.
    """
    arrays, names = _arrays(path), [port.name for port in ports]
    wrong = [f"{name} is missing" for name in names if name not in arrays]
    wrong += [f"{name} is too many" for name in arrays if name not in names]
    if wrong:
        raise BadInput(
            f"{path} must have an array for each input of {model} ({', '.join(names)}) and no other, "
            f"{' and '.join(wrong)}; write it with numpy.savez"
        )
    counts = {}
    for port in ports:
        n_samples = _n_samples(path, port, axes[port.name], arrays[port.name])
        if n_samples is not None:
            counts[port.name] = n_samples
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{n} for {name}" for name, n in counts.items())
        raise BadInput(f"all inputs in {path} must have as many samples, got {got}; leave the others out")
    digest = hashlib.sha256(repr([(port, arrays[port.name].shape) for port in ports]).encode())
    for name in names:
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return InputSamples(path, {name: arrays[name] for name in names}, axes, digest.hexdigest()[:12])


def _arrays(path: str) -> dict[str, Array]:
    try:
        with open(path, "rb") as file:
            _check_sizes(path, file)
            with np.load(file, allow_pickle=False) as loaded:
                return dict(loaded)
    except OSError as error:
        reason = error.strerror or "it is damaged"
        raise BadInput(f"the inputs are an npz file, {path} cannot be read: {reason}; check the path") from error
    except _MALFORMED as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} must be an npz file of numbers, it is not; write it with numpy.savez") from error


def _check_sizes(path: str, file: BinaryIO) -> None:
    """Refuse an npz file whose arrays are larger than they may be, or than what lies in it; nothing is unpacked.

    NumPy takes the memory that the header of an array claims before it reads the array.
    """
    if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
        raise BadInput(f"{path} must be an npz file, it holds one array without a name; try numpy.savez")
    file.seek(0)
    with ZipFile(file) as archive:
        n_bytes = sum(entry.file_size for entry in archive.infolist())
        if n_bytes > MAX_INPUT_BYTES:
            raise BadInput(
                f"the inputs in {path} must have at most {MAX_INPUT_BYTES:,} bytes, got {n_bytes:,}; leave samples out"
            )
        for entry in archive.infolist():
            with archive.open(entry) as member:
                read = npy.read_array_header_1_0 if npy.read_magic(member) == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = read(member)
                if dtype.hasobject:
                    raise ValueError(dtype)
                claimed, given = prod(shape) * dtype.itemsize, entry.file_size - member.tell()
            if claimed != given or min(shape, default=0) < 0:
                raise BadInput(
                    f"array {entry.filename.removesuffix('.npy')!r:.80} in {path} must have the bytes of its shape, "
                    f"{claimed:.5g}, got {given:,}; write it again with numpy.savez"
                )
    file.seek(0)


def _batch_axis(port: Port, other: Port) -> int | None:
    for axis, (a, b) in enumerate(zip(port.shape, other.shape, strict=True)):
        if a != b:
            return axis
    return None


def _n_samples(path: str, port: Port, axis: int | None, array: Array) -> int | None:
    """The number of samples of an array for `port`, which has the shape of one sample; None without a batch axis."""
    n_samples = None
    wanted, described = list(port.shape), list(map(str, port.shape))
    is_whole = True
    if axis is not None:
        length = port.shape[axis]
        n_samples = 1
        if axis < array.ndim:
            n_samples, rest = divmod(array.shape[axis], length)
            is_whole = n_samples > 0 and not rest
        wanted[axis] = length * n_samples
        described[axis] = "samples" if length == 1 else f"{length} x samples"
    if array.dtype != np.dtype(port.dtype) or not is_whole or list(array.shape) != wanted:
        got = f"{array.dtype} of shape [{', '.join(map(str, array.shape))}]"
        raise BadInput(
            f"input {port.name} in {path} must be {port.dtype} of shape [{', '.join(described)}] with a sample "
            f"or more, got {got}; write it again with numpy.savez"
        )
    return n_samples
