"""The driver of NVIDIA in this process, by its C interface [cuda-driver]: `CudaDriver`."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.units import Array

LIBRARY = "libcuda.so.1"
_PORTABLE = 1
"""CU_MEMHOSTREGISTER_PORTABLE: pinned for every context of the process."""


class CudaDriver:
    """Allocates, copies and pins for the first GPU that this process sees, in the context that the runtime uses too.

    Raises:
        BadInput: a call fails; the message is the driver's.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", ctypes.c_uint(0))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._context = context

    def memory(self) -> tuple[int, int]:
        """Bytes of the GPU that no process holds, and all."""
        self._enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def pin(self, memory: memoryview) -> None:
        """Pin the pages of a writable buffer, which then moves at the full rate of the bus."""
        self._enter()
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        n_bytes = ctypes.c_size_t(memory.nbytes)
        self._call("cuMemHostRegister_v2", ctypes.c_void_p(address), n_bytes, ctypes.c_uint(_PORTABLE))

    def allocate(self, n_bytes: int) -> int:
        """Allocate memory of the GPU; returns its address."""
        self._enter()
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(n_bytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Free what `allocate` returned."""
        self._enter()
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def to_gpu(self, address: int, array: Array) -> None:
        """Copy an array to memory of the GPU, and wait until it is there."""
        self._enter()
        source = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), source, ctypes.c_size_t(array.nbytes))
        # Pages that are not pinned have then been staged only, and the runtime's stream does not wait for the rest.
        self._call("cuStreamSynchronize", ctypes.c_void_p(None))

    def from_gpu(self, array: Array, address: int) -> None:
        """Copy memory of the GPU into an array, and wait until it is there."""
        self._enter()
        target = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyDtoH_v2", target, ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes))

    def _enter(self) -> None:
        """Make the context that of this thread: the runtime's calls may have changed it."""
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            reason = (text.value or b"unknown error").decode()
            raise BadInput(f"the driver of the GPU must do {name}, it says: {reason} ({code}); check nvidia-smi")


@cache
def cuda_driver() -> CudaDriver:
    """The driver in this process, which is from now on that of the GPUs that CUDA_VISIBLE_DEVICES names.

    Raises:
        BadInput: there is none, or it does not start.
    """
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise BadInput(f"a GPU needs the driver of NVIDIA, {LIBRARY} cannot be loaded: {error}") from error
    return CudaDriver(library)
