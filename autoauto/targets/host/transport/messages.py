"""The tensors of a message, one behind the other, as rings, connections and files carry it: `arrays`, `message_of`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from mmap import ACCESS_READ, mmap

import numpy as np

from autoauto.records.layers import Port
from autoauto.records.units import Array
from autoauto.targets.host.transport.files import SubModelFile
from autoauto.targets.host.transport.ring import ALIGNMENT


def message_bytes(ports: Sequence[Port]) -> int:
    """Bytes of a message with these tensors, each aligned.

    >>> message_bytes([Port("a", (3,), "int8"), Port("b", (1,), "int64")])
    72
    """
    return max((start + port.n_bytes for start, port in _offsets(ports)), default=0)


def arrays(message: memoryview, ports: Sequence[Port]) -> Mapping[str, Array]:
    """Views of the tensors of a message, by name."""
    return {
        port.name: np.frombuffer(message, np.uint8, port.n_bytes, start).view(port.dtype).reshape(port.shape)
        for start, port in _offsets(ports)
    }


def message_of(batch: Mapping[str, Array], ports: Sequence[Port]) -> bytes:
    """A message with these tensors of a micro-batch."""
    message = bytearray(message_bytes(ports))
    for name, array in arrays(memoryview(message), ports).items():
        array[...] = batch[name]
    return bytes(message)


def arrays_in(file: SubModelFile, ports: Sequence[Port]) -> Mapping[str, Array]:
    """The tensors of a message in a file, which stay there: they are no private memory of this process."""
    with open(file.path, "rb") as opened:
        return arrays(memoryview(mmap(opened.fileno(), 0, access=ACCESS_READ)), ports)


def _offsets(ports: Sequence[Port]) -> list[tuple[int, Port]]:
    """Where in a message every tensor starts, in bytes."""
    offsets, stop = [], 0
    for port in ports:
        start = -(-stop // ALIGNMENT) * ALIGNMENT
        offsets.append((start, port))
        stop = start + port.n_bytes
    return offsets
