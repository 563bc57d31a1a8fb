"""Arrays of any type and shape through a ring: `Sender`, `Receiver`.

A message is a head (its kind, the array's type and shape) and the array's bytes. It takes as many slots as it needs, so
an array larger than the ring passes while both ends are at work.

    first slot                            next slots
    length of the head | head | bytes     bytes     bytes     ...
"""

from __future__ import annotations

import pickle
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput, EndOfStream
from autoauto.targets.host.transport.array_file import Array
from autoauto.targets.host.transport.ring import Ring

_LENGTH_BYTES = 4


class Message(NamedTuple):
    """What came through a ring.

    Attributes:
        kind: what its sender calls it.
        array: memory of its own.
        began_ns: when its first slot was there, by perf_counter.
    """

    kind: str
    array: Array
    began_ns: int


class Sender:
    """The writing end of a ring.

    Attributes:
        began_ns: when the first slot of the last message was free, by perf_counter.

    >>> ring = Ring.create(n_slots=2, slot_bytes=256)
    >>> Sender(ring).send([[1.5], [2.5]])
    >>> Receiver(ring).receive().array.tolist()
    [[1.5], [2.5]]
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.began_ns = 0
        self._left: list[memoryview] = []

    def send(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Copy an array into the ring, waiting for slots; errors as in `load`."""
        self.load(array, kind)
        while not self.step():
            pass

    def load(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Begin a message, which steps will send; the array must not change meanwhile.

        Raises:
            BadInput: the array holds Python objects, or its type does not fit into a slot.
        """
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise BadInput(f"only arrays of plain data can be sent, got type {array.dtype}; try a numeric dtype")
        head = pickle.dumps((kind, array.dtype, array.shape))
        if _LENGTH_BYTES + len(head) > self.ring.slot_bytes:
            raise BadInput(f"an array's type must fit into {self.ring.slot_bytes} bytes, got {len(head)}")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self._left = [memoryview(len(head).to_bytes(_LENGTH_BYTES, "little") + head), content.data]
        self.began_ns = 0

    def step(self) -> bool:
        """Fill the next slot, waiting for it; whether the message has gone whole."""
        slot, n_bytes = self.ring.reserve(), 0
        self.began_ns = self.began_ns or perf_counter_ns()
        while self._left and n_bytes < len(slot):
            part = self._left[0][: len(slot) - n_bytes]
            slot[n_bytes : n_bytes + len(part)] = part
            n_bytes += len(part)
            self._left[0] = self._left[0][len(part) :]
            if not self._left[0]:
                del self._left[0]
        self.ring.commit(n_bytes)
        return not self._left


class Receiver:
    """The reading end of a ring."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._message: Message | None = None
        self._left = memoryview(b"")

    def receive(self) -> Message:
        """Wait for a message.

        Raises:
            EndOfStream: the ring is finished.
        """
        while (message := self.step()) is None:
            pass
        return message

    def step(self) -> Message | None:
        """Take the next slot, waiting for it; the message, once it is there whole.

        Raises:
            EndOfStream: the ring is finished.
        """
        piece = self.ring.peek()
        if piece is None:
            raise EndOfStream("the stream has ended")
        if self._message is None:
            piece = self._begin(piece)
        self._left[: len(piece)] = piece
        self._left = self._left[len(piece) :]
        self.ring.release()
        if self._left:
            return None
        message, self._message = self._message, None
        return message

    def _begin(self, piece: memoryview) -> memoryview:
        """Make room for the array that the head in `piece` announces; what follows the head."""
        began_ns = perf_counter_ns()
        stop = _LENGTH_BYTES + int.from_bytes(piece[:_LENGTH_BYTES], "little")
        kind, dtype, shape = pickle.loads(piece[_LENGTH_BYTES:stop])
        array = np.empty(shape, dtype)
        self._message = Message(kind, array, began_ns)
        self._left = array.reshape(-1).view(np.uint8).data
        return piece[stop:]
