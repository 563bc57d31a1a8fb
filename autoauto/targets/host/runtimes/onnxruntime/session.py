"""The knobs of ONNX Runtime on the CPU: `OnnxRuntimeSession`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from typing_extensions import override

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

SPINNING = Knob(
    "spinning",
    SWITCH,
    True,
    "whether idle threads of ONNX Runtime wait in a loop, where a device has several cores, or sleep",
    "on|off",
    ("on", "on"),
)


@dataclass(frozen=True, slots=True)
class OnnxRuntimeSession(HostSession):
    """A session of ONNX Runtime, which computes in the formats of the file."""

    runtime: ClassVar[str] = "onnxruntime"
    package: ClassVar[RuntimePackage] = RuntimePackage("onnxruntime", "onnxruntime", "host")
    precisions: ClassVar[tuple[Precision, ...]] = (Precision.FP32,)
    knobs: ClassVar[tuple[Knob, ...]] = (CORES_PER_DEVICE, PRECISION, SPINNING, GRAPH_OPTIMIZATION)
    spinning: bool = True
    graph_optimization: GraphOptimization = GraphOptimization.ALL

    @property
    def normal(self) -> OnnxRuntimeSession:
        """On one core there is no other thread that could spin."""
        return self if self.cores_per_device > 1 or self.spinning else replace(self, spinning=True)

    @property
    @override
    def on_one_core(self) -> OnnxRuntimeSession:
        return replace(self, cores_per_device=1, spinning=True)
