"""Memory for tensors whose lengths depend on data: the lengths, and room for as many elements as there may be.

    memory_of(port)     │ lengths, int64 │ elements, as many as the lengths say ... │ rest of the bound │

A port with a fixed shape has the memory of its tensor, so only those that say `data_dependent` have lengths in it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from autoauto.records.layers import Port
from autoauto.records.units import Array

_LENGTH_BYTES = 8


def memory_of(port: Port) -> Port:
    """A port as its memory is allocated: bytes where lengths depend on data, else itself."""
    return Port(port.name, (_LENGTH_BYTES * len(port.shape) + port.n_bytes,), "uint8") if port.data_dependent else port


def write(memory: Array, port: Port, array: Array) -> None:
    """Put a tensor with its lengths into the memory of a port.

    Raises:
        ValueError: it has other axes, another type, or more elements than the bound.
    """
    if array.ndim != len(port.shape) or array.dtype != port.dtype or array.size > prod(port.shape):
        raise ValueError(
            f"output {port.name!r} is {array.dtype} of shape {list(array.shape)}, at most {port.dtype} of "
            f"{list(port.shape)} was expected"
        )
    n = _LENGTH_BYTES * array.ndim
    memory[:n].view(np.int64)[:] = array.shape
    memory[n : n + array.nbytes].view(array.dtype)[:] = array.ravel()


def read(memory: Array, port: Port) -> Array:
    """A view of the tensor in the memory of a port."""
    n = _LENGTH_BYTES * len(port.shape)
    shape = memory[:n].view(np.int64).tolist()
    n_bytes = prod(shape) * np.dtype(port.dtype).itemsize
    return memory[n : n + n_bytes].view(port.dtype).reshape(shape)
