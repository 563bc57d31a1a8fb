"""How targets compile and run layers: `CompileOptions`, with the session of a runtime of the host, `SessionOptions`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from autoauto.records.units import Precision


class HostPrecision(StrEnum):
    """The format in which a runtime of the host computes products; tensors between stages keep that of the file."""

    FP32 = "fp32"
    """The formats of the model's file: nothing is rounded that the file does not round."""
    BF16 = "bf16"
    TF32 = "tf32"
    """On GPUs: products of fp32 round their factors to 10 bits, and add in fp32."""
    FP16 = "fp16"
    """Weights and activations, but those between stages, are rounded to fp16."""


class HostRuntime(StrEnum):
    """A runtime that runs a model's file on this machine."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"
    CUDA = "cuda"
    """ONNX Runtime on a GPU of NVIDIA."""

    @property
    def precisions(self) -> tuple[HostPrecision, ...]:
        """The formats that it may compute in, where the processor or the GPU has instructions for them."""
        return _PRECISIONS[self]


_PRECISIONS = {
    HostRuntime.ONNXRUNTIME: (HostPrecision.FP32,),
    HostRuntime.OPENVINO: (HostPrecision.FP32, HostPrecision.BF16, HostPrecision.FP16),
    HostRuntime.CUDA: (HostPrecision.FP32, HostPrecision.TF32, HostPrecision.FP16),
}


def runtime_for(
    runtime: HostRuntime | None, precision: HostPrecision | None, among: Iterable[HostRuntime] = HostRuntime
) -> HostRuntime:
    """The runtime, by default the first one of some that computes in a format.

    >>> runtime_for(None, None), runtime_for(None, HostPrecision.BF16)
    (<HostRuntime.ONNXRUNTIME: 'onnxruntime'>, <HostRuntime.OPENVINO: 'openvino'>)
    """
    wanted = precision or HostPrecision.FP32
    return runtime or next(runtime for runtime in among if wanted in runtime.precisions)


class GraphOptimization(StrEnum):
    """How far ONNX Runtime rewrites a graph before it runs it [onnxruntime-graph]."""

    ALL = "all"
    """Also with layouts of tensors that suit the processor."""
    EXTENDED = "extended"
    """Fused operators of one provider, too."""
    BASIC = "basic"
    """What holds for every provider: constants folded, nodes without effect dropped."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Options that only some runtimes have; each has those of others at their defaults.

    Attributes:
        streams: of OpenVINO: equal parts of a micro-batch that run at the same time, on a share of the threads each.
        spinning: of ONNX Runtime: whether idle threads of a session wait in a loop, ready at once, or sleep.
        graph_optimization: of ONNX Runtime, on processors and GPUs.
        cuda_graph: of ONNX Runtime on a GPU: whether all kernels of a run are started at once, as they were recorded.
        channels_last: of ONNX Runtime on a GPU: whether convolutions compute with the channels as the last axis.
    """

    streams: int = 1
    spinning: bool = True
    graph_optimization: GraphOptimization = GraphOptimization.ALL
    cuda_graph: bool = True
    channels_last: bool = False

    @property
    def on_one_thread(self) -> RuntimeOptions:
        """Those that a session of one thread can have: one stream, and no other thread that could spin."""
        return replace(self, streams=1, spinning=True)


class SessionOptions(NamedTuple):
    """How a session computes.

    Attributes:
        n_threads: that compute at the same time.
        runtime, precision: see their types.
        gpu: the UUID of the GPU that computes; empty where the processor does.
        options: of the runtime.
    """

    n_threads: int = 1
    runtime: HostRuntime = HostRuntime.ONNXRUNTIME
    precision: HostPrecision = HostPrecision.FP32
    gpu: str = ""
    options: RuntimeOptions = RuntimeOptions()


class DeviceSession(NamedTuple):
    """A device of this machine, and how a session on it computes.

    Attributes:
        name: as --device names it, "cpu:4" or "cuda:0".
        session: see its type.
    """

    name: str
    session: SessionOptions


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options with which a target compiles a range of layers.

    Attributes:
        batch_size: samples in one micro-batch.
        memory_proportion: share of a tile's memory that temporaries of a matmul or convolution may take (0 to 1).
        precision: format of weights and activations.
        training: whether there is a backward pass.
        cores_per_device: cores of the host that a device has; 1 elsewhere.
        runtime, computes_in, runtime_options: how a session of the host computes; without a meaning elsewhere.
    """

    batch_size: int
    memory_proportion: float
    precision: Precision
    training: bool = False
    cores_per_device: int = 1
    runtime: HostRuntime = HostRuntime.ONNXRUNTIME
    computes_in: HostPrecision = HostPrecision.FP32
    runtime_options: RuntimeOptions = RuntimeOptions()

    @property
    def weight_precision(self) -> Precision:
        """The format in which a device holds weights, at the shortest."""
        return Precision.FP16 if self.computes_in is HostPrecision.FP16 else self.precision
