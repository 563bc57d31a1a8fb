"""The interface of NVIDIA's driver over the memory of this process, so that what uses a GPU runs without one."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801
"""CUDA_ERROR_OUT_OF_MEMORY and CUDA_ERROR_NOT_SUPPORTED [cuda-driver]."""
_TEXTS = {OUT_OF_MEMORY: b"out of memory", NOT_SUPPORTED: b"operation not supported"}


@dataclass
class DriverOnProcessor:
    """A library like libcuda for one device of `total_bytes`.

    Attributes:
        pins: whether it can pin memory.
        pinned: pinned ranges, as (address, bytes).
        calls: names of all calls.
    """

    total_bytes: int
    pins: bool = True
    pinned: list[tuple[int, int]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    allocated: dict[int, Any] = field(default_factory=dict)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu"):
            self.calls.append(name)
        return object.__getattribute__(self, name)

    @property
    def used_bytes(self) -> int:
        return sum(map(len, self.allocated.values()))

    def cuInit(self, flags: Any) -> int:  # noqa: N802 (the driver's names)
        return 0 if flags.value == 0 else 1

    def cuDeviceGet(self, device: Any, ordinal: Any) -> int:  # noqa: N802
        device._obj.value = ordinal.value
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        context._obj.value = 77 + device.value
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:  # noqa: N802
        return 0 if context.value == 77 else 201

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
        free._obj.value, total._obj.value = self.total_bytes - self.used_bytes, self.total_bytes
        return 0

    def cuMemAlloc_v2(self, address: Any, n_bytes: Any) -> int:  # noqa: N802
        if self.used_bytes + n_bytes.value > self.total_bytes:
            return OUT_OF_MEMORY
        block = ctypes.create_string_buffer(n_bytes.value)
        address._obj.value = ctypes.addressof(block)
        self.allocated[address._obj.value] = block
        return 0

    def cuMemFree_v2(self, address: Any) -> int:  # noqa: N802
        del self.allocated[address.value]
        return 0

    def cuMemcpyHtoD_v2(self, target: Any, source: Any, n_bytes: Any) -> int:  # noqa: N802
        ctypes.memmove(target.value, source.value, n_bytes.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, source: Any, n_bytes: Any) -> int:  # noqa: N802
        ctypes.memmove(target.value, source.value, n_bytes.value)
        return 0

    def cuStreamSynchronize(self, stream: Any) -> int:  # noqa: N802
        return 0 if stream.value is None else 400

    def cuMemHostRegister_v2(self, address: Any, n_bytes: Any, flags: Any) -> int:  # noqa: N802
        if not self.pins:
            return NOT_SUPPORTED
        self.pinned.append((address.value, n_bytes.value))
        return 0 if flags.value == 1 else 1

    def cuGetErrorString(self, code: Any, text: Any) -> int:  # noqa: N802
        text._obj.value = _TEXTS.get(code.value)
        return 0
