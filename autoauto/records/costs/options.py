"""How targets compile and run layers: `CompileOptions`, with the `Session` of a target.

A session on a device of this machine: `SessionOptions`, `DeviceSession`. What people call the parts: `TargetWords`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar, NamedTuple, Self

from autoauto.records.hardware import Cluster, Device
from autoauto.records.knob import HasKnobs
from autoauto.records.units import Precision


class TargetWords(NamedTuple):
    """The words of a target, as its results are shown; options, files and databases keep the names of knobs.

    Attributes:
        device: a part of a pipeline, which runs a stage.
        unit: what a cluster consists of; a device may have several.
        is_unit_alone: whether a device of one unit is called like the unit.
        joint: between a device and its units, as in "session of 2 cores".
        names: pairs of a knob and what it is called; of others underscores are written as blanks. Without any pairs
            knobs are shown by their names.
        pipeline_option: the option of the number of stages, where people know another one than that of IPUs.
        has_auto_pipeline: whether results are compared with what Graphcore's auto_pipeline would choose.
    """

    device: str = "device"
    unit: str = "device"
    is_unit_alone: bool = True
    joint: str = "of"
    names: tuple[tuple[str, str], ...] = ()
    pipeline_option: str = "--n-ipu"
    has_auto_pipeline: bool = True

    def name(self, knob: str) -> str:
        """The name by which a knob is shown.

        >>> words = TargetWords(names=(("n_ipu", "stages"),))
        >>> words.name("n_ipu"), words.name("batch_size"), TargetWords().name("batch_size")
        ('stages', 'batch size', 'batch_size')
        """
        if not self.names:
            return knob
        return dict(self.names).get(knob, knob.replace("_", " "))

    def single(self, n_units: int) -> str:
        """A device of `n_units` units, in words."""
        size = self.size(n_units)
        return f"{self.device}{size}" if size else self.unit

    def replicas(self, n: int, n_units: int) -> str:
        """`n` devices side by side, in words."""
        size = self.size(n_units)
        return f"{n} {self.device}s{size}" if size else f"{n} replicas of one {self.unit}"

    def size(self, n_units: int) -> str:
        """The number of units of a device in words, after a blank; empty where a device is one unit.

        >>> TargetWords("session", "core").size(2), TargetWords("session", "core").size(1)
        (' of 2 cores', '')
        """
        if n_units == 1 and self.is_unit_alone:
            return ""
        plural = "s" if n_units > 1 else ""
        return f" {self.joint} {n_units} {self.unit}{plural}"


class DeviceType(StrEnum):
    """The type of a device, in the words of ONNX Runtime [onnxruntime-annotations]."""

    CPU = "cpu"
    GPU = "gpu"
    ACCELERATOR = "accelerator"
    """Any other."""


class Session(HasKnobs, ABC):
    """A way to compute on one device. Each target has frozen classes of its own, whose fields are its knobs.

    Attributes:
        runtime: the name of what runs a model's file; None where a target has no runtimes.
        words: what its results are called.
    """

    __slots__ = ()
    runtime: ClassVar[str | None] = None
    device_type: ClassVar[DeviceType] = DeviceType.GPU
    words: ClassVar[TargetWords] = TargetWords()

    @property
    def group_size(self) -> int:
        """Devices of the cluster that compute as one: cores of a session, GPUs of a tensor-parallel group."""
        return 1

    @property
    def n_beside(self) -> int:
        """Number of devices of the cluster that a configuration uses outside its pipelines."""
        return 0

    @property
    def notes(self) -> tuple[str, ...]:
        """The assumptions about configurations with this session, a sentence each."""
        return ()

    def kind_beside(self, cluster: Cluster) -> str:
        """The kind of the `n_beside` devices where a cluster has several kinds; else empty."""
        return ""

    @property
    def computes_in(self) -> Precision | None:
        """The format in which products are computed; None for the format of weights and activations."""
        return None

    @property
    def n_parts(self) -> int:
        """The number of equal parts of a micro-batch that a device computes at the same time."""
        return 1

    def batch_sizes(self, sizes: Sequence[int]) -> Sequence[int]:
        """The sizes of a micro-batch that the session can compute."""
        return [size for size in sizes if size % self.n_parts == 0]

    @property
    def is_possible(self) -> bool:
        """True if the values of all knobs go together."""
        return not self.conflict

    @property
    def conflict(self) -> str:
        """A text that says which values do not go together and what would; empty if all do."""
        return ""

    @property
    def normal(self) -> Self:
        """The session that computes alike and has the default wherever a value makes no difference."""
        return self

    @property
    def on_one_core(self) -> Self:
        """The session on a device of one core."""
        return self

    @property
    def common(self) -> Self:
        """The session for which ranges are sampled, so that like sessions share what the samples teach."""
        return self

    def hardware(self, cluster: Cluster) -> Cluster:
        """The cluster with the parts of its devices and links that the session uses; names, clocks and machines stay.

        Raises BadInput if it cannot run on them.
        """
        return cluster

    @property
    def differs_by_device(self) -> bool:
        """True if the devices of a pipeline compute with sessions of their own."""
        return False

    def on_device(self, device: int) -> Self:
        """The session of one device of a pipeline."""
        return self

    def of_devices(self, sessions: Sequence[Self]) -> Self:
        """The session of a pipeline whose devices have these, one each."""
        return sessions[0]

    def check_devices(self, n_devices: int, *, in_phases: bool) -> None:
        """Raise Mismatch for a number of devices of a pipeline, or a way to use them, that it does not support."""

    def bound_bytes(self, device: Device) -> float:
        """Bytes that temporaries may take on one tile, if that is all in which it differs from `common`."""
        return inf


@dataclass(frozen=True, slots=True)
class PlainSession(Session):
    """The session of a target without knobs."""


class SessionOptions(NamedTuple):
    """A session and the threads or the GPU of this machine that it computes on.

    Attributes:
        n_threads: that compute at the same time; 0 lets the runtime choose.
        gpu: the UUID of the GPU that computes; empty where the CPU does.
    """

    n_threads: int
    session: Session
    gpu: str = ""

    @property
    def runtime(self) -> str:
        """The name of the runtime."""
        assert self.session.runtime is not None
        return self.session.runtime

    @property
    def precision(self) -> Precision:
        """The format of products; fp32 stands for the formats of the file."""
        return self.session.computes_in or Precision.FP32


class DeviceSession(NamedTuple):
    """A device of this machine, and how a session on it computes."""

    name: str  # as --device has it, "cpu:4" or "cuda:0"
    session: SessionOptions


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options with which a target compiles a range of layers.

    Attributes:
        batch_size: samples in one micro-batch.
        precision: of weights and activations.
    """

    batch_size: int
    precision: Precision
    training: bool = False  # there is a backward pass
    session: Session = PlainSession()

    @property
    def group_size(self) -> int:
        """`Session.group_size`."""
        return self.session.group_size

    @property
    def weight_precision(self) -> Precision:
        """The format in which a device holds weights, at the shortest."""
        return Precision.FP16 if self.session.computes_in is Precision.FP16 else self.precision
