"""The base class of the sessions of host runtimes, `HostSession`, and the knobs that several of them have."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import ClassVar, NamedTuple, Self

from typing_extensions import override

from autoauto.records.costs.options import DeviceType, Session, SessionOptions, TargetWords
from autoauto.records.errors import BadInput
from autoauto.records.knob import Knob, whole, words, words_or_none
from autoauto.records.units import Precision

PRECISIONS = (Precision.FP32, Precision.BF16, Precision.TF32, Precision.FP16)
"""The formats in which some runtime computes products; fp32 stands for the formats of the file."""
MAX_CORES = 100_000


class GraphOptimization(StrEnum):
    """The level of ONNX Runtime's rewrites of a graph before it runs [onnxruntime-graph]."""

    ALL = "all"
    """Also with layouts of tensors that suit the CPU."""
    EXTENDED = "extended"
    """Fused operators of one provider, too."""
    BASIC = "basic"
    """What holds for every provider: constants folded, nodes without effect dropped."""
    OFF = "off"


CORES_PER_DEVICE = Knob(
    "cores_per_device",
    whole(MAX_CORES),
    1,
    "cores of the host that a device has, hence threads of its session",
    "1,2",
    ("1", "1, and powers of two up to all cores on the host"),
    label="cores",
)
PRECISION = Knob(
    "precision",
    words_or_none(PRECISIONS),
    Precision.FP32,
    "the format in which the runtime of the host computes",
    ",".join(PRECISIONS),
    ("fp32", "fp32"),
    absent=None,
    is_shown=True,
)
GRAPH_OPTIMIZATION = Knob(
    "graph_optimization",
    words(GraphOptimization, tuple(GraphOptimization), tuple(GraphOptimization)),
    GraphOptimization.ALL,
    f"how far ONNX Runtime rewrites a graph before it runs it: {', '.join(GraphOptimization)}",
    ",".join(GraphOptimization),
    ("all", "all"),
    label="graph optimization",
)
_NAMES = (("n_ipu", "sessions"), ("cores_per_device", "cores"))


class RuntimePackage(NamedTuple):
    """The package of a runtime."""

    module: str
    requirement: str
    extra: str

    @property
    def distribution(self) -> str:
        """The name of what pip installs, without its extras.

        >>> RuntimePackage("onnxruntime", "onnxruntime-gpu[cuda]", "cuda").distribution
        'onnxruntime-gpu'
        """
        return self.requirement.partition("[")[0]

    @property
    def is_installed(self) -> bool:
        """True if the package is installed; it is not imported.

        The package must come from `distribution`: onnxruntime-gpu and onnxruntime have a module of the same name.
        """
        if find_spec(self.module) is None:
            return False
        try:
            return self.distribution == self.module or bool(version(self.distribution))
        except PackageNotFoundError:
            return False


@dataclass(frozen=True, slots=True)
class HostSession(Session, ABC):
    """A session of a runtime of the host; each runtime has a class of its own, with its other knobs.

    Attributes:
        runtime: the name of the runtime, and of its folder, whose `runtime.py` has the class `RUNTIME`.
        precisions: the formats that the runtime computes in if the CPU or the GPU has instructions for them.
        precision: the format of products; tensors between stages have the format of the file.
    """

    runtime: ClassVar[str]
    package: ClassVar[RuntimePackage]
    device_type: ClassVar[DeviceType] = DeviceType.CPU
    words: ClassVar[TargetWords] = TargetWords("session", "core", False, names=_NAMES, has_auto_pipeline=False)
    precisions: ClassVar[tuple[Precision, ...]]
    cores_per_device: int = 1
    precision: Precision = Precision.FP32

    def __post_init__(self) -> None:
        if self.cores_per_device < 1:
            raise BadInput(f"cores_per_device must be at least 1, got {self.cores_per_device}")

    @classmethod
    def of(cls, options: SessionOptions) -> Self:
        """The session of the options of a runtime, which are of this class."""
        assert isinstance(options.session, cls)
        return options.session

    @property
    def plain(self) -> Self:
        """The session of the same runtime, cores and format, with the defaults of all other knobs."""
        return type(self)(cores_per_device=self.cores_per_device, precision=self.precision)

    @property
    def requirements(self) -> tuple[str, ...]:
        """The packages that pip installs to run a model with this session."""
        return (self.package.requirement,)

    @property
    @override
    def group_size(self) -> int:
        return self.cores_per_device

    @property
    @override
    def computes_in(self) -> Precision:
        return self.precision

    @property
    def is_possible(self) -> bool:
        """True if the runtime computes in the format `precision`."""
        return self.precision in self.precisions

    @property
    def on_one_core(self) -> Self:
        """This session on a device of one core."""
        return replace(self, cores_per_device=1)
