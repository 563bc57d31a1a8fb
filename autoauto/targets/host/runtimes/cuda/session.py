"""The knobs of ONNX Runtime on a GPU of NVIDIA: `CudaSession`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from autoauto.records.costs.options import DeviceType, TargetWords
from autoauto.records.knob import SWITCH, Knob
from autoauto.records.units import Precision
from autoauto.targets.host.runtimes.session import (
    CORES_PER_DEVICE,
    GRAPH_OPTIMIZATION,
    PRECISION,
    GraphOptimization,
    HostSession,
    RuntimePackage,
)

CUDA_GRAPH = Knob(
    "cuda_graph",
    SWITCH,
    True,
    "whether a GPU is given all kernels of a run at once, as a CUDA graph",
    "on|off",
    ("on", "on"),
    label="CUDA graph",
)
CHANNELS_LAST = Knob(
    "channels_last",
    SWITCH,
    False,
    "whether convolutions on a GPU compute with the channels as the last axis",
    "on|off",
    ("off", "off, on GPUs both"),
    label="channels last",
    breaks_ties=True,
)
_NAMES = (("n_ipu", "GPUs"), ("cores_per_device", "cores"))


@dataclass(frozen=True, slots=True)
class CudaSession(HostSession):
    """A session of ONNX Runtime on a GPU."""

    runtime: ClassVar[str] = "cuda"
    package: ClassVar[RuntimePackage] = RuntimePackage("onnxruntime", "onnxruntime-gpu[cuda,cudnn]", "cuda")
    device_type: ClassVar[DeviceType] = DeviceType.GPU
    words: ClassVar[TargetWords] = TargetWords("GPU", "GPU", names=_NAMES, has_auto_pipeline=False)
    precisions: ClassVar[tuple[Precision, ...]] = (Precision.FP32, Precision.TF32, Precision.FP16)
    knobs: ClassVar[tuple[Knob, ...]] = (CORES_PER_DEVICE, PRECISION, GRAPH_OPTIMIZATION, CUDA_GRAPH, CHANNELS_LAST)
    graph_optimization: GraphOptimization = GraphOptimization.ALL
    cuda_graph: bool = True
    channels_last: bool = False

    @property
    @override
    def requirements(self) -> tuple[str, ...]:
        """The package of the runtime, and onnx for fp16, because it converts the model."""
        if self.precision is Precision.FP16:
            return self.package.requirement, "onnx"
        return (self.package.requirement,)
