"""Named arrays in one shared memory, readable by all processes: `SharedArrays`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput
from autoauto.records.units import Array
from autoauto.targets.host.transport.ring import ALIGNMENT


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
