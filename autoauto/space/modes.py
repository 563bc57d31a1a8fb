"""What a model is run for, and how: `Inference`, `Training`, `Phased`. Each lists its own knobs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import index
from typing import Any, ClassVar

from autoauto.records.costs.profile import Optimizer, OptimizerState, WeightUpdate
from autoauto.records.errors import BadInput
from autoauto.records.knob import SWITCH, Domain, HasKnobs, Knob, whole, words
from autoauto.records.schedule import MAX_STAGES, Order, StepShape, check_size
from autoauto.schedule.orders.registry import TRAINING_ORDERS, devices_of, spec_of

MAX_VALUES = 100_000  # of one knob, and of a count of devices
MAX_TOKENS = 2**24  # of a prompt or an answer


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


STRATEGY = Knob(
    "strategy",
    words(Strategy, tuple(Strategy), tuple(Strategy)),
    Strategy.PIPELINE,
    "stages on several devices, or phases on each, from streaming memory",
    "pipeline,phased",
    ("pipeline", "both, where the cluster has a streaming memory"),
    is_shown=True,
)
STAGE_REPLICAS = Knob(
    "stage_replicas",
    SWITCH,
    False,
    "whether several devices of a pipeline may run one stage, and take its micro-batches in turn",
    "on|off",
    ("off", "off"),
    label="stage replicas",
    breaks_ties=True,
)
SCHEDULE = Knob(
    "schedule",
    words(Order, TRAINING_ORDERS, (*(order for order in Order if order in TRAINING_ORDERS), Order.SEQUENTIAL)),
    TRAINING_ORDERS[0],
    f"the order to train in: {', '.join(TRAINING_ORDERS)}",
    "NAME",
    (TRAINING_ORDERS[0], TRAINING_ORDERS[0]),
    absent=Order.INFERENCE,
    is_shown=True,
)
STAGES_PER_DEVICE = Knob(
    "stages_per_device",
    whole(MAX_STAGES),
    1,
    "stages on every device of the pipeline: 2 or more for interleaved, 2 for zbv, v-half and v-min, else 1",
    "1,2,4",
    ("1", "1, or 2 where an order has several"),
    label="stages a device",
    breaks_ties=True,
)
RECOMPUTE = Knob(
    "recompute",
    Domain(
        bool,
        'true, false or "auto"',
        'False, True and "auto"',
        words=tuple(Recompute),
        stored=(False, True, str(Recompute.AUTO)),
        read=lambda value: Recompute(value) if isinstance(value, str) else bool(index(value)),
    ),
    False,
    "stash only the inputs of stages, and run forward again for the backward; auto: where the stash does not fit",
    "on|off|auto",
    ("off", "off"),
    is_shown=True,
)
N_MICRO_BATCHES = Knob(
    "n_micro_batches",
    whole(MAX_VALUES),
    16,  # PopART needs 2 n_ipu - 1
    "micro-batches of a step of training",
    "M",
    ("16", "16"),
    absent=1,
    label="micro-batches",
    is_shown=True,
)
OPTIMIZER = Knob(
    "optimizer",
    words(Optimizer, tuple(Optimizer), tuple(Optimizer)),
    Optimizer.SGD,
    f"what changes the weights, and holds its state for that: {', '.join(Optimizer)}",
    "NAME",
    (Optimizer.SGD, Optimizer.SGD),
)
MASTER_WEIGHTS = Knob(
    "master_weights",
    SWITCH,
    False,
    "whether weights of 16 bits have a copy in fp32, which the optimizer changes",
    "on|off",
    ("off", "off"),
    label="master weights",
)
SHARD_OPTIMIZER = Knob(
    "shard_optimizer",
    SWITCH,
    False,
    "whether every replica holds and updates its part of the optimizer's state only",
    "on|off",
    ("off", "off"),
    label="sharded",
)
OPTIMIZER_STATE = Knob(
    "optimizer_state",
    words(OptimizerState, tuple(OptimizerState), tuple(OptimizerState)),
    OptimizerState.AUTO,
    "where the optimizer's state is: on the chip, in streaming memory, or there in parts; auto: where it fits",
    "PLACE",
    (OptimizerState.AUTO, OptimizerState.AUTO),
    label="state",
)
STEPS = Knob(
    "steps",
    whole(MAX_VALUES),
    16,
    "micro-batches that go through a phase before the next begins",
    "16",
    ("16", "16"),
    absent=1,
    label="micro-batches",
    sets="n_micro_batches",
    searched=(16,),
    is_shown=True,
)


INPUT_TOKENS = Knob(
    "input_tokens",
    whole(MAX_TOKENS),
    1024,
    "tokens of the prompt of a request, where a decoder generates text",
    "N",
    ("1024", "1024"),
    absent=0,
    label="input tokens",
    is_shown=True,
)
OUTPUT_TOKENS = Knob(
    "output_tokens",
    whole(MAX_TOKENS),
    1024,
    "tokens of its answer",
    "N",
    ("1024", "1024"),
    absent=0,
    label="output tokens",
    is_shown=True,
)


class Mode(HasKnobs, ABC):
    """What a model is run for, and how: one of the classes below, whose fields are its knobs.

    Attributes:
        strategy: pipeline or phases.
        sample: what throughput counts, in a word.
    """

    __slots__ = ()
    strategy: ClassVar[Strategy] = Strategy.PIPELINE
    sample: ClassVar[str] = "sample"

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return False

    @property
    def order(self) -> Order:
        """The order of forward and backward passes; `Order.INFERENCE` where there are none."""
        return Order.INFERENCE

    @property
    def n_micro_batches(self) -> int:
        """Micro-batches of one step; 1 where there are no steps."""
        return 1

    @property
    def stages_per_device(self) -> int:
        """Stages of every device."""
        return 1

    @property
    def recompute(self) -> bool | Recompute:
        """Which stages stash only their inputs for the backward pass, and compute the rest again."""
        return False

    @property
    def stage_replicas(self) -> bool:
        """Whether several devices of a pipeline may run one stage and take its micro-batches in turn."""
        return False

    def weight_update(self, replicas: int) -> WeightUpdate:
        """How the weights change at the end of a step of training."""
        return WeightUpdate()

    def check(self, n_ipu: int, replicas: int) -> None:
        """Refuse what does not go together with a pipeline of `n_ipu` devices, or with so many of them.

        Raises:
            BadInput: the order does not run so, or would take too long to make.
        """


@dataclass(frozen=True, slots=True)
class Inference(Mode):
    """Forward passes by pipelines.

    Attributes:
        stage_replicas: whether several of the `n_ipu` devices may run one stage and take its micro-batches in turn; the
            best plan then has at most that many devices.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (STAGE_REPLICAS,)
    stage_replicas: bool = False


@dataclass(frozen=True, slots=True)
class Training(Mode):
    """Steps of training by pipelines; the gradients of their replicas are summed once a step.

    Attributes:
        schedule: the order of forward and backward passes.
        stages_per_device: of a pipeline, which then has `n_ipu` times as many stages.
        recompute: whether a stage stashes only its inputs for the backward pass and computes the rest again; with
            `Recompute.AUTO` the stages do whose stash would not fit.
        n_micro_batches: micro-batches of one step, after which weights change.
        optimizer: changes the weights once a step.
        master_weights: whether weights of 16 bits have a copy in fp32.
        shard_optimizer: whether every replica holds a part of the optimizer's state only.
        optimizer_state: where the state is; with `OptimizerState.AUTO` in streaming memory where it fits no device.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (
        *(SCHEDULE, STAGES_PER_DEVICE, RECOMPUTE, N_MICRO_BATCHES),
        *(OPTIMIZER, MASTER_WEIGHTS, SHARD_OPTIMIZER, OPTIMIZER_STATE),
    )
    schedule: Order = TRAINING_ORDERS[0]
    stages_per_device: int = 1
    recompute: bool | Recompute = False
    n_micro_batches: int = 1
    optimizer: Optimizer = Optimizer.SGD
    master_weights: bool = False
    shard_optimizer: bool = False
    optimizer_state: OptimizerState = OptimizerState.AUTO

    def __post_init__(self) -> None:
        if self.schedule not in TRAINING_ORDERS:
            raise BadInput(f"a plan trains as one of {', '.join(TRAINING_ORDERS)}, got schedule {self.schedule}")
        if self.shard_optimizer and self.optimizer_state is OptimizerState.STREAMING:
            raise BadInput(
                "optimizer_state streaming is that of whole replicas, got shard_optimizer; "
                "try --optimizer-state streaming-sharded"
            )

    @property
    def training(self) -> bool:
        """See `Mode`."""
        return True

    @property
    def order(self) -> Order:
        """See `Mode`."""
        return self.schedule

    def weight_update(self, replicas: int) -> WeightUpdate:
        """See `Mode`; where the place of the state is not settled, on the chip."""
        streams = self.optimizer_state in (OptimizerState.STREAMING, OptimizerState.STREAMING_SHARDED)
        shards = self.shard_optimizer or self.optimizer_state is OptimizerState.STREAMING_SHARDED
        return WeightUpdate(self.optimizer, self.master_weights, replicas if shards else 1, streams)

    def check(self, n_ipu: int, replicas: int) -> None:
        """See `Mode`."""
        spec = spec_of(self.schedule)
        assert spec.stages_per_device is not None
        fewest, most = spec.stages_per_device
        if not fewest <= self.stages_per_device <= most:
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise BadInput(
                f"{self.schedule} has stages_per_device of {wanted}, got {self.stages_per_device}; "
                f"try --stages-per-device {fewest}"
            )
        stages = devices_of(StepShape(self.schedule, n_ipu, self.n_micro_batches, self.stages_per_device))
        if len(stages) > 1 and n_ipu == 1:
            raise BadInput("several stages a device are for pipelines of 2 devices or more, got n_ipu 1; try more")
        if spec.in_groups and self.n_micro_batches % n_ipu:
            raise BadInput(
                f"{self.schedule} on {n_ipu} devices needs n_micro_batches in groups of {n_ipu}, "
                f"got {self.n_micro_batches}; try a multiple of {n_ipu}"
            )
        if self.n_micro_batches < (bound := spec.min_micro_batches(n_ipu)):
            raise BadInput(
                f"{self.schedule} on {n_ipu} devices needs n_micro_batches of at least {bound}, "
                f"got {self.n_micro_batches}"
            )
        check_size(self.schedule, len(stages), self.n_micro_batches)


@dataclass(frozen=True, slots=True)
class Phased(Mode):
    """Phases, one after the other on every device, from streaming memory [popxl-phased].

    Attributes:
        n_micro_batches: that go through a phase before the next phase begins.
        recompute: whether the backward pass computes all activations of a phase again.
        training: whether there is a backward pass.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (RECOMPUTE, STEPS)
    strategy: ClassVar[Strategy] = Strategy.PHASED
    n_micro_batches: int = STEPS.default
    recompute: bool = False
    training: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.recompute, bool):
            raise BadInput("phases recompute all or nothing, got recompute auto; try on or off")
        if self.n_micro_batches < 1:
            raise BadInput(f"steps must be at least 1, got {self.n_micro_batches}")

    @property
    def order(self) -> Order:
        """Phases train in `Order.SEQUENTIAL`."""
        return Order.SEQUENTIAL if self.training else Order.INFERENCE

    @property
    def values(self) -> dict[str, Any]:
        """The value of every knob that has an effect, and the strategy."""
        values = {"strategy": self.strategy, "n_micro_batches": self.n_micro_batches}
        return {"schedule": self.order, "recompute": self.recompute, **values} if self.training else values

    def check(self, n_ipu: int, replicas: int) -> None:
        """See `Mode`."""
        if replicas > 1:
            raise BadInput("replicas are pipelines side by side, got phases; try --strategy pipeline")


@dataclass(frozen=True, slots=True)
class Generation(Mode):
    """Text that a decoder generates by pipelines, each with as many micro-batches of sequences in flight as stages.

    A step of a micro-batch gives a token of every sequence.

    Attributes:
        input_tokens: of a prompt.
        output_tokens: of an answer.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (INPUT_TOKENS, OUTPUT_TOKENS)
    sample: ClassVar[str] = "token"
    input_tokens: int = INPUT_TOKENS.default
    output_tokens: int = OUTPUT_TOKENS.default

    def __post_init__(self) -> None:
        if self.input_tokens < 1 or self.output_tokens < 2:
            raise BadInput(
                "input tokens must be 1 or more, output tokens 2 or more, since the first comes with the prompt; got "
                f"{self.input_tokens} and {self.output_tokens}"
            )


MODES = (Inference, Training, Phased, Generation)


def min_micro_batches(order: Order, n_ipu: int) -> int:
    """The fewest micro-batches of a step of an order on so many devices.

    >>> min_micro_batches(Order.POPART, 4), min_micro_batches(Order.GPIPE, 4)
    (7, 1)
    """
    return spec_of(order).min_micro_batches(n_ipu)


def mode_of(values: Mapping[str, Any]) -> Mode:
    """The mode of values by name, those of knobs of other modes among them if they say nothing.

    Raises:
        BadInput: a value is of a knob that the mode does not have.

    >>> mode_of({"schedule": Order.GPIPE, "n_micro_batches": 8}).training, mode_of({"recompute": False})
    (True, Inference(stage_replicas=False))
    """
    order = values.get("schedule", Order.INFERENCE)
    if values.get("strategy", Strategy.PIPELINE) is Strategy.PHASED:
        own = {name: values[name] for name in ("n_micro_batches", "recompute") if name in values}
        return Phased(training=order is not Order.INFERENCE, **_checked(Phased, own, values))
    kind = Training if order is not Order.INFERENCE else Generation if values.get("output_tokens") else Inference
    own = {knob.field: values[knob.field] for knob in kind.knobs if knob.field in values}
    return kind(**_checked(kind, own, values))


def _checked(kind: type[Mode], own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a mode; refuses values of others that say something."""
    for knob in (knob for other in MODES for knob in other.knobs):
        name = knob.field
        is_other = name in given and name not in own and name != "schedule"
        if is_other and given[name] != knob.absent:
            raise BadInput(f"{name} {_WHERE[name]}")
    return dict(own)


_TRAINING = "is for training by pipelines; try --mode training --strategy pipeline"
_WHERE = {
    "stage_replicas": "are for inference by pipelines; try --mode inference --strategy pipeline",
    "recompute": "is for training; try --mode training",
    "n_micro_batches": "are for training; try --mode training",
    **dict.fromkeys(("input_tokens", "output_tokens"), "are for text that decoders generate; try --target gpu"),
    **dict.fromkeys(("stages_per_device", "optimizer", "master_weights"), _TRAINING),
    **dict.fromkeys(("shard_optimizer", "optimizer_state"), _TRAINING),
}
"""What the modes are that have a knob, and how one asks for them."""
