"""Files that processes of this machine share: streaming memory, `ArrayFile`, and a sub-model, `SubModelFile`.

The file of an `ArrayFile` has no name (`tempfile.TemporaryFile`): the kernel removes it with the process that made it,
however that process ends. A shared mapping of a file does not count under RLIMIT_DATA, so the file is memory outside
the device; the arrays that `load` returns are memory inside.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from time import perf_counter
from typing import Any

import numpy as np

from autoauto.records.phased import BufferLayout
from autoauto.records.units import Array

PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of arrays of one shape and type.

    Attributes:
        layout: name, rows, steps and the size of an entry.
        shape: shape of an entry.
        dtype: type of its elements, by NumPy's name.
    """

    layout: BufferLayout
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], rows: int = 1, steps: int = 1, dtype: str = "float32") -> Buffer:
        """Lay out a buffer.

        >>> Buffer.of("x", (8, 512), rows=3, steps=4).layout.n_bytes  # 3 x 4 entries of 8 x 512 x 4 bytes
        196608
        """
        entry_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return cls(BufferLayout(name, rows, steps, entry_bytes), shape, dtype)


@dataclass(slots=True)
class Traffic:
    """Entries moved in one direction."""

    n_entries: int = 0
    n_bytes: int = 0
    seconds: float = 0.0

    def add(self, n_bytes: int, seconds: float) -> None:
        """Count one entry."""
        self.n_entries += 1
        self.n_bytes += n_bytes
        self.seconds += seconds


class ArrayFile(AbstractContextManager["ArrayFile"]):
    """Buffers in a mapped file; entries are copied into private memory and back.

    Attributes:
        loads, stores: traffic so far.
        n_bytes: size of the file.

    Raises:
        OSError: the disk has no room for the file.

    >>> with ArrayFile([Buffer.of("x", (2,), rows=2, steps=3)]) as memory:
    ...     memory.store("x", 1, 2, np.float32([5, 7]))
    ...     memory.load("x", 1, 2), memory.load("x", 0, 0), memory.stores.n_bytes
    (array([5., 7.], dtype=float32), array([0., 0.], dtype=float32), 8)
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = {buffer.layout.name: buffer for buffer in buffers}
        offsets, self.n_bytes = {}, 0
        for name, buffer in self._buffers.items():
            offsets[name] = self.n_bytes
            self.n_bytes += -(-buffer.layout.n_bytes // PAGE_BYTES) * PAGE_BYTES
        self._file = tempfile.TemporaryFile(prefix="autoauto-")  # noqa: SIM115 (closed in __exit__)
        os.posix_fallocate(self._file.fileno(), 0, self.n_bytes)  # a full disk is an error here, not a signal later
        self._arrays = {name: self._mapped(buffer, offsets[name]) for name, buffer in self._buffers.items()}
        self.loads, self.stores = Traffic(), Traffic()

    def _mapped(self, buffer: Buffer, offset: int) -> Array:
        shape = (buffer.layout.n_entries, *buffer.shape)
        return np.memmap(self._file, buffer.dtype, "r+", offset, shape)

    def _entry(self, name: str, row: int, step: int) -> Array:
        index = self._buffers[name].layout.flat_index(row, step)
        entry: Array = self._arrays[name][index, ...]
        return entry

    def load(self, name: str, row: int, step: int = 0) -> Array:
        """Copy an entry into a new array."""
        start = perf_counter()
        array = np.array(self._entry(name, row, step))
        self.loads.add(array.nbytes, perf_counter() - start)
        return array

    def store(self, name: str, row: int, step: int, array: Array) -> None:
        """Copy an array of the buffer's shape into an entry."""
        start = perf_counter()
        entry = self._entry(name, row, step)
        assert entry.shape == array.shape, (name, entry.shape, array.shape)
        entry[...] = array
        self.stores.add(entry.nbytes, perf_counter() - start)

    def __exit__(self, *_: object) -> None:
        self._arrays.clear()
        self._file.close()


class SubModelFile:
    """A sub-model in a file without a name; it can be pickled as an argument of a new process."""

    def __init__(self, content: bytes = b"") -> None:
        self._fd = os.memfd_create("autoauto-model")
        self.write(content)

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd = state["handle"].detach()

    def write(self, content: bytes) -> None:
        """Replace the content, for every process that has the file."""
        with open(self.path, "wb") as file:
            file.write(content)

    def append(self, content: bytes) -> None:
        """Write behind what is there."""
        with open(self.path, "ab") as file:
            file.write(content)

    @property
    def path(self) -> str:
        """The path by which this process opens the file."""
        return f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
