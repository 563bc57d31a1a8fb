"""How a session of the host computes: `HostRuntime`, `HostPrecision`, `SessionOptions`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class HostPrecision(StrEnum):
    """The format in which a runtime of the host computes products; tensors between stages keep that of the file."""

    FP32 = "fp32"
    """The formats of the model's file: nothing is rounded that the file does not round."""
    BF16 = "bf16"


class HostRuntime(StrEnum):
    """A runtime that runs a model's file on this machine."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"

    @property
    def precisions(self) -> tuple[HostPrecision, ...]:
        """The formats that it may compute in; OpenVINO in bf16 where the processor has instructions for it."""
        return tuple(HostPrecision) if self is HostRuntime.OPENVINO else (HostPrecision.FP32,)


def runtime_for(runtime: HostRuntime | None, precision: HostPrecision | None) -> HostRuntime:
    """The runtime, by default the first one that computes in a format.

    >>> runtime_for(None, None), runtime_for(None, HostPrecision.BF16)
    (<HostRuntime.ONNXRUNTIME: 'onnxruntime'>, <HostRuntime.OPENVINO: 'openvino'>)
    """
    wanted = precision or HostPrecision.FP32
    return runtime or next(runtime for runtime in HostRuntime if wanted in runtime.precisions)


class SessionOptions(NamedTuple):
    """How a session computes.

    Attributes:
        n_threads: that compute at the same time.
        runtime, precision: see their types.
    """

    n_threads: int = 1
    runtime: HostRuntime = HostRuntime.ONNXRUNTIME
    precision: HostPrecision = HostPrecision.FP32
