"""The table of knobs, `KNOBS`: everything that options, files, databases, constraints and reports need of a knob.

A new knob is one `Knob` here, a field of `Knobs` and of `SearchSpace` (`knobs.py` and `space.py` beside this file, and
what values it may have in `domain.py`), and the code that uses its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import index
from typing import Any, Protocol

from autoauto.records.costs.options import GraphOptimization, HostPrecision, HostRuntime
from autoauto.records.costs.profile import Optimizer
from autoauto.records.knob import FRACTION, SWITCH, Domain, whole, words, words_of_host
from autoauto.records.schedule import MAX_STAGES, Order

MAX_SAMPLES = 2**20  # in a micro-batch; far beyond any device, so that bytes and cycles stay exact integers
MAX_VALUES = 100_000  # of one knob, and of a count of devices
STAGES_PER_DEVICE = {
    Order.POPART: (1, 1),
    Order.GPIPE: (1, 1),
    Order.ONE_F_ONE_B: (1, 1),
    Order.ZB1P: (1, 1),
    Order.ZB2P: (1, 1),
    Order.INTERLEAVED: (2, MAX_STAGES),
    Order.ZBV: (2, 2),
    Order.V_HALF: (2, 2),
    Order.V_MIN: (2, 2),
}
"""The orders in which a plan can train, and the fewest and the most stages that a device then has."""
TRAINING_ORDERS = tuple(STAGES_PER_DEVICE)
POPLAR_MEMORY_PROPORTION = 0.6
"""Poplar's default of availableMemoryProportion [poplar-docs]."""


class Recompute(StrEnum):
    """Which stages compute their forward pass again, where neither all (True) nor none (False) do."""

    AUTO = "auto"
    """Those whose stash does not fit."""


class Strategy(StrEnum):
    """How a model runs that may be too large for the memory of one device."""

    PIPELINE = "pipeline"
    """Stages, one a device."""
    PHASED = "phased"
    """Phases, one after the other on every device, from streaming memory [popxl-phased]."""


SWITCH_OR_AUTO = Domain(
    bool,
    'true, false or "auto"',
    'False, True and "auto"',
    words=tuple(Recompute),
    stored=(False, True, str(Recompute.AUTO)),
    read=lambda value: Recompute(value) if isinstance(value, str) else bool(index(value)),
)


class Use(StrEnum):
    """When a knob matters."""

    ALWAYS = "always"
    TRAINING = "training"
    """For training only, by a pipeline or in phases."""
    PIPELINE_TRAINING = "pipeline training"
    CHANGED_IN_TRAINING = "changed in training"
    """For training by a pipeline, where the value is not the default."""
    CHANGED = "changed"
    """For pipelines, where the value is not the default: leaving it out says the same."""
    PHASED = "phased"


class Configuration(Protocol):
    """The values of all knobs: `Knobs`, which this file cannot import."""

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting that a search may vary.

    Attributes:
        name: of the field of `SearchSpace`, the parameter in a database, the key in JSON and TOML, the name in a
            constraint; with dashes the option.
        domain: its values.
        default: its value where nothing varies it.
        use: when it matters; elsewhere it has its default.
        help: what it is, for its option.
        metavar: an example of several values.
        default_help: the default of the option of one configuration, and of a search.
        training_default: the default of its option in training; None where it is `default`.
        label: its name in charts, where there is little room; by default its name.
        sets: the field of `Knobs` that it sets; by default its own.
        breaks_ties: whether the smaller value is the simpler configuration.
        runtimes: of the host that have it; with others a configuration has its default. Empty for all.
    """

    name: str
    domain: Domain
    default: Any
    use: Use
    help: str
    metavar: str
    default_help: tuple[str, str]
    training_default: Any = None
    label: str = ""
    sets: str = ""
    breaks_ties: bool = False
    runtimes: tuple[HostRuntime, ...] = ()

    @property
    def field(self) -> str:
        """The field of `Knobs` that it sets."""
        return self.sets or self.name

    @property
    def option(self) -> str:
        """Its option of the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def only_training(self) -> bool:
        """Whether inference has no such knob."""
        return self.use in (Use.TRAINING, Use.PIPELINE_TRAINING, Use.CHANGED_IN_TRAINING)

    def varies(self, strategy: Strategy) -> bool:
        """Whether cells of this strategy differ in it."""
        if strategy is Strategy.PHASED:
            return self.use in (Use.ALWAYS, Use.TRAINING, Use.PHASED)
        return self.use is not Use.PHASED

    def matters(self, knobs: Configuration) -> bool:
        """Whether it matters for a configuration."""
        if self.use in (Use.TRAINING, Use.PIPELINE_TRAINING) and knobs.training:
            return True
        return self.use is Use.ALWAYS or getattr(knobs, self.field) != self.default


KNOBS = (
    Knob(
        "n_ipu",
        whole(MAX_VALUES),
        1,
        Use.ALWAYS,
        "devices in the pipeline",
        "1,2,4",
        ("1", "powers of two and divisors of all devices"),
    ),
    Knob(
        "replicas",
        whole(MAX_VALUES),
        1,
        Use.CHANGED,
        "pipelines side by side",
        "1,2",
        ("1", "as --n-ipu, as many as there are devices for"),
        breaks_ties=True,
    ),
    Knob(
        "cores_per_device",
        whole(MAX_VALUES),
        1,
        Use.CHANGED,
        "cores of the host that a device has, hence threads of its session",
        "1,2",
        ("1", "1, and powers of two up to all cores on the host"),
        label="cores",
    ),
    Knob(
        "stage_replicas",
        SWITCH,
        False,
        Use.CHANGED,
        "whether several devices of a pipeline may run one stage, and take its micro-batches in turn",
        "on|off",
        ("off", "off"),
        label="stage replicas",
        breaks_ties=True,
    ),
    Knob(
        "runtime",
        words_of_host(HostRuntime),
        None,
        Use.CHANGED,
        "what runs the model on the host",
        ",".join(HostRuntime),
        ("the first that computes in --precision", "on the host all that are installed"),
    ),
    Knob(
        "precision",
        words_of_host(HostPrecision),
        None,
        Use.CHANGED,
        "the format in which the runtime of the host computes",
        ",".join(HostPrecision),
        ("fp32", "fp32"),
    ),
    Knob(
        "streams",
        whole(MAX_VALUES),
        1,
        Use.CHANGED,
        "equal parts of a micro-batch that OpenVINO computes at the same time, each on a share of a device's cores",
        "1,2",
        ("1", "1"),
        runtimes=(HostRuntime.OPENVINO,),
    ),
    Knob(
        "spinning",
        SWITCH,
        True,
        Use.CHANGED,
        "whether idle threads of ONNX Runtime wait in a loop, where a device has several cores, or sleep",
        "on|off",
        ("on", "on"),
        runtimes=(HostRuntime.ONNXRUNTIME,),
    ),
    Knob(
        "graph_optimization",
        words(GraphOptimization, tuple(GraphOptimization), tuple(GraphOptimization)),
        GraphOptimization.ALL,
        Use.CHANGED,
        f"how far ONNX Runtime rewrites a graph before it runs it: {', '.join(GraphOptimization)}",
        ",".join(GraphOptimization),
        ("all", "all"),
        label="graph optimization",
        runtimes=(HostRuntime.ONNXRUNTIME, HostRuntime.CUDA),
    ),
    Knob(
        "cuda_graph",
        SWITCH,
        True,
        Use.CHANGED,
        "whether a GPU is given all kernels of a run at once, as a CUDA graph",
        "on|off",
        ("on", "on"),
        label="CUDA graph",
        runtimes=(HostRuntime.CUDA,),
    ),
    Knob(
        "channels_last",
        SWITCH,
        False,
        Use.CHANGED,
        "whether convolutions on a GPU compute with the channels as the last axis",
        "on|off",
        ("off", "off, on GPUs both"),
        label="channels last",
        breaks_ties=True,
        runtimes=(HostRuntime.CUDA,),
    ),
    Knob(
        "memory_proportion",
        FRACTION,
        POPLAR_MEMORY_PROPORTION,
        Use.ALWAYS,
        "bound on the temporary memory of a matmul or convolution, as a share of a tile; on the host part of a "
        "device's memory",
        "0.3,0.6,1.0",
        (f"{POPLAR_MEMORY_PROPORTION}, or 1.0 on the host", "0.3,0.6,1.0, or 1.0 on the host"),
        label="memory",
    ),
    Knob(
        "batch_size",
        whole(MAX_SAMPLES),
        1,
        Use.ALWAYS,
        "samples in a micro-batch",
        "1:128",
        ("1", "1:128, both ends included, or 1,2,4,8,16,32 on the host, to 256 on GPUs"),
        breaks_ties=True,
    ),
    Knob(
        "schedule",
        words(Order, TRAINING_ORDERS, (*TRAINING_ORDERS, Order.SEQUENTIAL)),
        Order.INFERENCE,
        Use.PIPELINE_TRAINING,
        f"the order to train in: {', '.join(TRAINING_ORDERS)}",
        "NAME",
        (TRAINING_ORDERS[0], TRAINING_ORDERS[0]),
        training_default=TRAINING_ORDERS[0],
    ),
    Knob(
        "stages_per_device",
        whole(MAX_STAGES),
        1,
        Use.CHANGED_IN_TRAINING,
        "stages on every device of the pipeline: 2 or more for interleaved, 2 for zbv, v-half and v-min, else 1",
        "1,2,4",
        ("1", "1, or 2 where an order has several"),
        label="stages a device",
        breaks_ties=True,
    ),
    Knob(
        "recompute",
        SWITCH_OR_AUTO,
        False,
        Use.TRAINING,
        "stash only the inputs of stages, and run forward again for the backward; auto: where the stash does not fit",
        "on|off|auto",
        ("off", "off"),
    ),
    Knob(
        "n_micro_batches",
        whole(MAX_VALUES),
        1,
        Use.PIPELINE_TRAINING,
        "micro-batches of a step of training",
        "M",
        ("16", "16"),
        training_default=16,  # PopART needs 2 n_ipu - 1
        label="micro-batches",
    ),
    Knob(
        "optimizer",
        words(Optimizer, tuple(Optimizer), tuple(Optimizer)),
        Optimizer.SGD,
        Use.CHANGED_IN_TRAINING,
        f"what changes the weights, and holds its state for that: {', '.join(Optimizer)}",
        "NAME",
        (Optimizer.SGD, Optimizer.SGD),
    ),
    Knob(
        "master_weights",
        SWITCH,
        False,
        Use.CHANGED_IN_TRAINING,
        "whether weights of 16 bits have a copy in fp32, which the optimizer changes",
        "on|off",
        ("off", "off"),
        label="master weights",
    ),
    Knob(
        "shard_optimizer",
        SWITCH,
        False,
        Use.CHANGED_IN_TRAINING,
        "whether every replica holds and updates its part of the optimizer's state only",
        "on|off",
        ("off", "off"),
        label="sharded",
    ),
    Knob(
        "strategy",
        words(Strategy, tuple(Strategy), tuple(Strategy)),
        Strategy.PIPELINE,
        Use.PHASED,
        "stages on several devices, or phases on each, from streaming memory",
        "pipeline,phased",
        ("pipeline", "both, where the cluster has a streaming memory"),
    ),
    Knob(
        "steps",
        whole(MAX_VALUES),
        16,
        Use.PHASED,
        "micro-batches that go through a phase before the next begins",
        "16",
        ("16", "16"),
        sets="n_micro_batches",
    ),
)
"""Every knob, in the order in which it is shown."""
COLUMNS = tuple(knob for knob in KNOBS if not knob.sets)
"""The knobs that are fields of `Knobs`."""
KNOB_NAMES = (*(knob.name for knob in COLUMNS if knob.domain.kind is not str), "n_devices", "n_samples")
"""The names of knobs, and of numbers that follow from them, that a constraint may contain; a switch is 0 or 1."""
OF_RUNTIMES = tuple(knob for knob in KNOBS if knob.runtimes)
"""The knobs that only some runtimes of the host have."""
TIE_BREAK = ("n_devices", *(knob.name for knob in COLUMNS if knob.breaks_ties))
"""What makes a configuration simpler: fewer devices first, and so on."""
