"""Memory that processes of this machine share: a `Ring` of messages, an `ArrayFile`, the file of a sub-model.

A `Ring` is a bounded ring of slots in memory that two processes share. The memory and both counters are file
descriptors without a name (memfd, eventfd). The kernel drops them with the last process that has them open, however it
ends, so there is nothing to clean up. A shared mapping does not count under RLIMIT_DATA: a ring lies outside the
devices, as the buffers of a link do.

Streaming memory is an `ArrayFile`, and a `SubModelFile` is what a stage runs. Their files have no name either. The file
of an `ArrayFile` is memory outside the device; the arrays that `load` returns are memory inside.

A message is tensors, one behind the other, in rings, connections and files alike: `writable`, `arrays`, `message_of`.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from time import perf_counter
from typing import Any

import numpy as np
from typing_extensions import override

from autoauto.records.layers import Port
from autoauto.records.plans.phased import BufferLayout
from autoauto.records.units import Array
from autoauto.targets.host.transport.bounded import memory_of, read
from autoauto.targets.host.transport.messages import (
    END,
    FAILED,
    FailedMessage,
    MessageReader,
    MessageWriter,
    readable,
)

ALIGNMENT = 64
"""Alignment of tensors in a slot, in bytes: a cache line, and the widest vector registers."""

PAGE_BYTES = mmap.PAGESIZE
_HEAD_BYTES = ALIGNMENT


class Ring(MessageWriter, MessageReader):
    """Both ends of a channel from one writer to one reader; it can be pickled as an argument of a new process."""

    def __init__(self, memory_fd: int, free_fd: int, filled_fd: int, n_slots: int, slot_bytes: int) -> None:
        self.n_slots, self.slot_bytes = n_slots, slot_bytes
        self.free_fd, self.filled_fd = free_fd, filled_fd
        self._memory_fd = memory_fd
        self._stride = _stride(slot_bytes)
        self.memory = memoryview(mmap.mmap(memory_fd, n_slots * self._stride))
        self._next_write = self._next_read = 0

    @classmethod
    def create(cls, n_slots: int, slot_bytes: int) -> Ring:
        """Make an empty ring.

        Raises:
            OSError: memory or file descriptors do not suffice.
        """
        descriptors = [os.memfd_create("autoauto-ring")]
        try:
            n_bytes = n_slots * _stride(slot_bytes)
            os.posix_fallocate(descriptors[0], 0, n_bytes)  # no memory is an error here, not a signal later
            descriptors.extend(os.eventfd(n, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for n in (n_slots, 0))
            return cls(descriptors[0], descriptors[1], descriptors[2], n_slots, slot_bytes)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def __getstate__(self) -> dict[str, Any]:
        handles = [DupFd(fd) for fd in (self._memory_fd, self.free_fd, self.filled_fd)]
        return {"handles": handles, "n_slots": self.n_slots, "slot_bytes": self.slot_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        fds = (handle.detach() for handle in state["handles"])
        self.__init__(*fds, state["n_slots"], state["slot_bytes"])  # type: ignore[misc]

    def close(self) -> None:
        """Close the descriptors; the mapping ends with the last view of it."""
        self.memory = memoryview(b"")
        for fd in (self._memory_fd, self.free_fd, self.filled_fd):
            os.close(fd)

    @override
    def reserve(self) -> memoryview:
        os.eventfd_read(self.free_fd)
        start = self._next_write * self._stride + _HEAD_BYTES
        return self.memory[start : start + self.slot_bytes]

    @override
    def commit(self, n_bytes: int) -> None:
        assert n_bytes <= self.slot_bytes
        self._send(n_bytes)

    @override
    def fail(self, reason: str) -> None:
        start = self._next_write * self._stride + _HEAD_BYTES
        text = reason.encode()[: self._stride - _HEAD_BYTES]
        self.memory[start : start + len(text)] = text
        self._send(FAILED - len(text))

    @override
    def finish(self) -> None:
        self.reserve()
        self._send(END)

    @override
    def wait(self) -> bool:
        readable([self.filled_fd])
        return self._length() != END

    @override
    def peek(self) -> memoryview | None:
        os.eventfd_read(self.filled_fd)
        start, n_bytes = self._next_read * self._stride, self._length()
        if n_bytes == END:
            os.eventfd_write(self.filled_fd, 1)  # so that later calls find the end again
            return None
        start += _HEAD_BYTES
        if n_bytes <= FAILED:
            raise FailedMessage(bytes(self.memory[start : start + FAILED - n_bytes]).decode(errors="ignore"))
        return self.memory[start : start + n_bytes]

    @override
    def restart(self) -> None:
        os.eventfd_read(self.filled_fd)
        assert self._length() == END
        self.release()

    @override
    def release(self) -> None:
        self._next_read = (self._next_read + 1) % self.n_slots
        os.eventfd_write(self.free_fd, 1)

    def _length(self) -> int:
        start = self._next_read * self._stride
        return int.from_bytes(self.memory[start : start + 8], "little", signed=True)

    def _send(self, n_bytes: int) -> None:
        start = self._next_write * self._stride
        self.memory[start : start + 8] = n_bytes.to_bytes(8, "little", signed=True)
        self._next_write = (self._next_write + 1) % self.n_slots
        os.eventfd_write(self.filled_fd, 1)


def _stride(slot_bytes: int) -> int:
    """Bytes from slot to slot: whole pages for the length and the message."""
    return -(-(_HEAD_BYTES + slot_bytes) // PAGE_BYTES) * PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of arrays of one shape and type."""

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

    Raises:
        OSError: the disk has no room for the file.
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

    def write(self, content: bytes, *, is_first: bool = True) -> None:
        """Replace the content, for every process that has the file, or write behind what is there."""
        with open(self.path, "wb" if is_first else "ab") as file:
            file.write(content)

    @property
    def path(self) -> str:
        """The path by which this process opens the file."""
        return f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def message_bytes(ports: Sequence[Port]) -> int:
    """Bytes of a message with these tensors, each aligned.

    >>> message_bytes([Port("a", (3,), "int8"), Port("b", (1,), "int64")])
    72
    """
    return max((start + port.n_bytes for start, port in _offsets(ports)), default=0)


def writable(message: memoryview, ports: Sequence[Port]) -> Mapping[str, Array]:
    """The arrays of a message into which its tensors are written, by name; bytes if the shape depends on data.

    What is written there is in `autoauto/targets/host/transport/bounded.py`.
    """
    tensors = {}
    for start, port in _offsets(ports):
        content = np.frombuffer(message, np.uint8, port.n_bytes, start)
        tensors[port.name] = content.view(port.dtype).reshape(port.shape)
    return tensors


def arrays(message: memoryview, ports: Sequence[Port]) -> Mapping[str, Array]:
    """Views of the tensors of a message that was written, by name."""
    written = dict(writable(message, ports))
    for port in ports:
        if port.data_dependent:
            written[port.name] = read(written[port.name], port)
    return written


def message_of(batch: Mapping[str, Array], ports: Sequence[Port]) -> bytes:
    """A message with these tensors of a micro-batch."""
    message = bytearray(message_bytes(ports))
    copy_batch(batch, writable(memoryview(message), ports))
    return bytes(message)


def copy_batch(batch: Mapping[str, Array], message: Mapping[str, Array]) -> None:
    """Copy the tensors of a micro-batch into those of a message."""
    for name, array in message.items():
        array[...] = batch[name]


def arrays_in(file: SubModelFile, ports: Sequence[Port]) -> Mapping[str, Array]:
    """The tensors of a message in a file, which stay there: they are no private memory of this process."""
    with open(file.path, "rb") as opened:
        return arrays(memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)), ports)


def _offsets(ports: Sequence[Port]) -> list[tuple[int, Port]]:
    offsets, stop = [], 0
    for port in map(memory_of, ports):
        start = -(-stop // ALIGNMENT) * ALIGNMENT
        offsets.append((start, port))
        stop = start + port.n_bytes
    return offsets
