"""Arrays of any type and shape through a channel of messages: `Sender`, `Receiver`.

An array goes as a header (its kind, type and shape) and its bytes, in as many messages as it needs. So it may be larger
than all slots of the channel: the receiver empties slots while the sender fills the next ones.

    first message                             next messages
    length of the header | header | bytes     bytes     bytes     ...

Named arrays in one shared memory, readable by all processes: `SharedArrays`.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput, EndOfStream
from autoauto.records.layers import Port
from autoauto.records.units import Array
from autoauto.targets.host.transport.messages import MessageReader, MessageWriter
from autoauto.targets.host.transport.shared_memory import SubModelFile, arrays_in, message_of

_LENGTH_BYTES = 4


class Message(NamedTuple):
    """A received array; `start_ns` is when its first message was there, by perf_counter."""

    kind: str
    array: Array
    start_ns: int


class Sender:
    """Sends arrays through the writing end of a channel.

    The first slot for the last array was free at `start_ns`, by perf_counter.
    """

    def __init__(self, ring: MessageWriter) -> None:
        self.ring = ring
        self.start_ns = 0
        self._unsent: deque[memoryview] = deque()

    def send(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Copy an array into slots, and wait for them; errors as in `load`."""
        self.load(array, kind)
        while not self.step():
            pass

    def load(self, array: npt.ArrayLike, kind: str = "") -> None:
        """Prepare an array, which calls of `step` send; it must not change until then.

        Raises BadInput if the array holds Python objects, or its type does not fit into a slot.
        """
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise BadInput(f"only arrays of plain data can be sent, got type {array.dtype}; try a numeric dtype")
        header = pickle.dumps((kind, array.dtype, array.shape))
        if _LENGTH_BYTES + len(header) > self.ring.slot_bytes:
            raise BadInput(f"an array's type must fit into {self.ring.slot_bytes} bytes, got {len(header)}")
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        n_each = self.ring.slot_bytes
        n_first = n_each - _LENGTH_BYTES - len(header)  # bytes of the array that fit behind the header
        first = len(header).to_bytes(_LENGTH_BYTES, "little") + header + content[:n_first]
        self._unsent = deque([memoryview(first)])
        for start in range(n_first, len(content), n_each):
            self._unsent.append(content[start : start + n_each])
        self.start_ns = 0

    def step(self) -> bool:
        """Wait for the next slot and fill it; True when the whole array has been sent."""
        slot, piece = self.ring.reserve(), self._unsent.popleft()
        self.start_ns = self.start_ns or perf_counter_ns()
        slot[: len(piece)] = piece
        self.ring.commit(len(piece))
        return not self._unsent


class Receiver:
    """Receives arrays through the reading end of a channel."""

    def __init__(self, ring: MessageReader) -> None:
        self.ring = ring
        self._message: Message | None = None
        self._missing = memoryview(b"")

    def receive(self) -> Message:
        """Wait for an array. Raises EndOfStream if the channel is finished."""
        while (message := self.step()) is None:
            pass
        return message

    def step(self) -> Message | None:
        """Wait for the next slot and empty it; the array with its last slot, and None before. Raises as `receive`."""
        piece = self.ring.peek()
        if piece is None:
            raise EndOfStream("the stream has ended")
        if self._message is None:
            # The header in the first piece says which array to allocate.
            start_ns = perf_counter_ns()
            stop = _LENGTH_BYTES + int.from_bytes(piece[:_LENGTH_BYTES], "little")
            kind, dtype, shape = pickle.loads(piece[_LENGTH_BYTES:stop])
            array = np.empty(shape, dtype)
            self._message = Message(kind, array, start_ns)
            self._missing = array.reshape(-1).view(np.uint8).data
            piece = piece[stop:]
        self._missing[: len(piece)] = piece
        self._missing = self._missing[len(piece) :]
        self.ring.release()
        if self._missing:
            return None
        message, self._message = self._message, None
        return message


class SharedArrays:
    """Named arrays in a file without a name; it can be pickled as an argument of a new process."""

    def __init__(self, file: SubModelFile, ports: Sequence[Port], dtypes: Mapping[str, np.dtype[Any]]) -> None:
        self._file, self._ports, self._dtypes = file, ports, dtypes

    @classmethod
    def create(cls, arrays: Mapping[str, npt.ArrayLike]) -> SharedArrays:
        """Copy arrays into shared memory.

        Raises:
            BadInput: an array holds Python objects.
            OSError: memory does not suffice.
        """
        given = {name: np.asarray(values) for name, values in arrays.items()}
        for name, array in given.items():
            if array.dtype.hasobject:
                raise BadInput(f"{name} must be an array of plain data, got type {array.dtype}")
        ports = [Port(name, array.shape, array.dtype.str) for name, array in given.items()]
        dtypes = {name: array.dtype for name, array in given.items()}  # a port says nothing of fields
        return cls(SubModelFile(message_of(given, ports) or b"\0"), ports, dtypes)

    def arrays(self) -> dict[str, Array]:
        """Read-only views of all arrays, by name; a view stays when the file is closed."""
        views = arrays_in(self._file, self._ports)
        return {name: view.view(self._dtypes[name]) for name, view in views.items()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()
