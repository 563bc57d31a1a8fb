"""The knobs of OpenVINO: `OpenVinoSession`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from typing_extensions import override

from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole
from autoauto.records.units import Precision
from autoauto.targets.host.runtimes.session import CORES_PER_DEVICE, MAX_CORES, PRECISION, HostSession, RuntimePackage

STREAMS = Knob(
    "streams",
    whole(MAX_CORES),
    1,
    "equal parts of a micro-batch that OpenVINO computes at the same time, each on a share of a device's cores",
    "1,2",
    ("1", "1"),
)


@dataclass(frozen=True, slots=True)
class OpenVinoSession(HostSession):
    """A session of OpenVINO."""

    runtime: ClassVar[str] = "openvino"
    package: ClassVar[RuntimePackage] = RuntimePackage("openvino", "openvino", "openvino")
    precisions: ClassVar[tuple[Precision, ...]] = (Precision.FP32, Precision.BF16, Precision.FP16)
    knobs: ClassVar[tuple[Knob, ...]] = (CORES_PER_DEVICE, PRECISION, STREAMS)
    streams: int = 1

    def __post_init__(self) -> None:
        HostSession.__post_init__(self)
        if self.streams < 1:
            raise BadInput(f"streams must be at least 1, got {self.streams}")

    @property
    @override
    def n_parts(self) -> int:
        return self.streams

    @property
    def is_possible(self) -> bool:
        """True if OpenVINO computes in the format, with a core or more for every stream."""
        return self.precision in self.precisions and self.streams <= self.cores_per_device

    @property
    @override
    def on_one_core(self) -> OpenVinoSession:
        return replace(self, cores_per_device=1, streams=1)
