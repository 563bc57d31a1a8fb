"""Arrays of any type and shape through a ring: `Sender`, `Receiver`.

A message is a header (its kind, type and shape of the array) and the bytes of the array. It takes as many slots as it
needs, so an array may be larger than the ring: the receiver empties slots while the sender fills the next ones.

    first slot                                next slots
    length of the header | header | bytes     bytes     bytes     ...

Named arrays in one shared memory, readable by all processes: `SharedArrays`.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.units import Array
from autoauto.targets.host.transport.shared_memory import ALIGNMENT, Ring

_LENGTH_BYTES = 4


class Message(NamedTuple):
    """A received message.

    Attributes:
        kind: the kind that its sender gave it.
        array: a new array.
        start_ns: when its first slot was there, by perf_counter.
    """

    kind: str
    array: Array
    start_ns: int


class Sender:
    """The writing end of a ring.

    Attributes:
        start_ns: when the first slot of the last message was free, by perf_counter.

    >>> ring = Ring.create(n_slots=2, slot_bytes=256)
    >>> Sender(ring).send([[1.5], [2.5]])
    >>> Receiver(ring).receive().array.tolist()
    [[1.5], [2.5]]
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.start_ns = 0
        self._unsent: list[memoryview] = []

    def send(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Copy an array into the ring, and wait for slots; errors as in `load`."""
        self.load(array, kind)
        while not self.step():
            pass

    def load(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Prepare a message, which calls of `step` send; the array must not change until then.

        Raises:
            BadInput: the array holds Python objects, or its type does not fit into a slot.
        """
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise BadInput(f"only arrays of plain data can be sent, got type {array.dtype}; try a numeric dtype")
        header = pickle.dumps((kind, array.dtype, array.shape))
        if _LENGTH_BYTES + len(header) > self.ring.slot_bytes:
            raise BadInput(f"an array's type must fit into {self.ring.slot_bytes} bytes, got {len(header)}")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._unsent = [memoryview(len(header).to_bytes(_LENGTH_BYTES, "little") + header), content.data]
        self.start_ns = 0

    def step(self) -> bool:
        """Wait for the next slot and fill it; True when the whole message has been sent."""
        slot, n_bytes = self.ring.reserve(), 0
        self.start_ns = self.start_ns or perf_counter_ns()
        while self._unsent and n_bytes < len(slot):
            piece = self._unsent[0][: len(slot) - n_bytes]
            slot[n_bytes : n_bytes + len(piece)] = piece
            n_bytes += len(piece)
            self._unsent[0] = self._unsent[0][len(piece) :]
            if not self._unsent[0]:
                del self._unsent[0]
        self.ring.commit(n_bytes)
        return not self._unsent


class Receiver:
    """The reading end of a ring."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._message: Message | None = None
        self._missing = memoryview(b"")

    def receive(self) -> Message:
        """Wait for a message.

        Raises:
            EndOfStream: the ring is finished.
        """
        while (message := self.step()) is None:
            pass
        return message

    def step(self) -> Message | None:
        """Wait for the next slot and empty it; returns the message with its last slot, and None before.

        Raises:
            EndOfStream: the ring is finished.
        """
        piece = self.ring.peek()
        if piece is None:
            raise EndOfStream("the stream has ended")
        if self._message is None:
            piece = self._start_message(piece)
        self._missing[: len(piece)] = piece
        self._missing = self._missing[len(piece) :]
        self.ring.release()
        if self._missing:
            return None
        message, self._message = self._message, None
        return message

    def _start_message(self, piece: memoryview) -> memoryview:
        """Read the header in `piece` and allocate its array; returns the bytes after the header."""
        start_ns = perf_counter_ns()
        stop = _LENGTH_BYTES + int.from_bytes(piece[:_LENGTH_BYTES], "little")
        kind, dtype, shape = pickle.loads(piece[_LENGTH_BYTES:stop])
        array = np.empty(shape, dtype)
        self._message = Message(kind, array, start_ns)
        self._missing = array.reshape(-1).view(np.uint8).data
        return piece[stop:]


class _Entry(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start_byte: int


class SharedArrays:
    """Named arrays in shared memory; it can be pickled as an argument of a new process.

    The memory has no file name, and the kernel frees it with the last process that has it open.

    >>> SharedArrays.create({"a": [1, 2], "b": 0.5}).arrays()
    {'a': array([1, 2]), 'b': array(0.5)}
    """

    def __init__(self, fd: int, entries: Mapping[str, _Entry]) -> None:
        self._fd, self._entries = fd, entries

    @classmethod
    def create(cls, arrays: Mapping[str, npt.ArrayLike]) -> SharedArrays:
        """Copy arrays into shared memory.

        Raises:
            BadInput: an array holds Python objects.
            OSError: memory does not suffice.
        """
        entries, n_bytes = {}, 0
        for name, values in arrays.items():
            array = np.asarray(values)
            if array.dtype.hasobject:
                raise BadInput(f"{name} must be an array of plain data, got type {array.dtype}")
            entries[name] = _Entry(array.dtype, array.shape, n_bytes)
            n_bytes += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        fd = os.memfd_create("autoauto-arrays")
        os.posix_fallocate(fd, 0, max(1, n_bytes))  # no memory is an error here, not a signal later
        shared = cls(fd, entries)
        for name, view in shared._views(mmap.PROT_READ | mmap.PROT_WRITE).items():
            view[...] = arrays[name]
        return shared

    def __getstate__(self) -> dict[str, Any]:
        return {"handle": DupFd(self._fd), "entries": self._entries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._fd, self._entries = state["handle"].detach(), state["entries"]

    def arrays(self) -> dict[str, Array]:
        """Read-only views of all arrays, by name."""
        return self._views(mmap.PROT_READ)

    def close(self) -> None:
        """Close the descriptor; a mapping ends with the last of its arrays."""
        os.close(self._fd)

    def _views(self, protection: int) -> dict[str, Array]:
        memory = mmap.mmap(self._fd, 0, prot=protection)
        return {
            name: np.ndarray(entry.shape, entry.dtype, memory, entry.start_byte)
            for name, entry in self._entries.items()
        }
