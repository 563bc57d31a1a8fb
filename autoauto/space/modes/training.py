"""Steps of training by pipelines: `Training`, and its knobs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import ClassVar

from typing_extensions import override

from autoauto.records.costs.profile import Optimizer, OptimizerState, WeightUpdate
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.knob import SWITCH, Domain, Knob, whole, words
from autoauto.records.schedule import MAX_STAGES, Order, StepShape
from autoauto.schedule.orders.registry import TRAINING_ORDERS, check_size, devices_of, spec_of
from autoauto.space.modes.mode import MAX_VALUES, Mode, Recompute

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
        stored=(False, True, *map(str, Recompute)),
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


@dataclass(frozen=True, slots=True)
class Training(Mode):
    """Steps of training by pipelines; the gradients of their replicas are summed once a step."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        *(SCHEDULE, STAGES_PER_DEVICE, RECOMPUTE, N_MICRO_BATCHES),
        *(OPTIMIZER, MASTER_WEIGHTS, SHARD_OPTIMIZER, OPTIMIZER_STATE),
    )
    purpose: ClassVar[str] = "training"
    option: ClassVar[str] = "--mode training"
    schedule: Order = TRAINING_ORDERS[0]
    stages_per_device: int = 1  # a pipeline then has `n_ipu` times as many stages
    recompute: bool | Recompute = False  # AUTO: the stages do whose stash would not fit
    n_micro_batches: int = 1  # of one step, after which weights change
    optimizer: Optimizer = Optimizer.SGD
    master_weights: bool = False  # weights of 16 bits have a copy in fp32
    shard_optimizer: bool = False  # every replica holds a part of the optimizer's state only
    optimizer_state: OptimizerState = OptimizerState.AUTO  # AUTO: streaming memory if it fits no device

    def __post_init__(self) -> None:
        if self.schedule not in TRAINING_ORDERS:
            raise BadInput(f"a plan trains as one of {', '.join(TRAINING_ORDERS)}, got schedule {self.schedule}")
        if self.shard_optimizer and self.optimizer_state is OptimizerState.STREAMING:
            raise BadInput(
                "optimizer_state streaming is that of whole replicas, got shard_optimizer; "
                "try --optimizer-state streaming-sharded"
            )

    @property
    @override
    def training(self) -> bool:
        return True

    @property
    @override
    def order(self) -> Order:
        return self.schedule

    @override
    def weight_update(self, replicas: int) -> WeightUpdate:
        """Where the place of the state is not settled, on the chip."""
        streams = self.optimizer_state in (OptimizerState.STREAMING, OptimizerState.STREAMING_SHARDED)
        shards = self.shard_optimizer or self.optimizer_state is OptimizerState.STREAMING_SHARDED
        return WeightUpdate(self.optimizer, self.master_weights, replicas if shards else 1, streams)

    @override
    def check(self, n_ipu: int, replicas: int) -> None:
        spec = spec_of(self.schedule)
        assert spec.stages_per_device is not None
        fewest, most = spec.stages_per_device
        if not fewest <= self.stages_per_device <= most:
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise Mismatch(
                f"{self.schedule} has stages_per_device of {wanted}, got {self.stages_per_device}; "
                f"try --stages-per-device {fewest}"
            )
        stages = devices_of(StepShape(self.schedule, n_ipu, self.n_micro_batches, self.stages_per_device))
        if len(stages) > 1 and n_ipu == 1:
            raise Mismatch("several stages a device are for pipelines of 2 devices or more, got n_ipu 1; try more")
        if spec.in_groups and self.n_micro_batches % n_ipu:
            raise Mismatch(
                f"{self.schedule} on {n_ipu} devices needs n_micro_batches in groups of {n_ipu}, "
                f"got {self.n_micro_batches}; try a multiple of {n_ipu}"
            )
        if self.n_micro_batches < (bound := spec.min_micro_batches(n_ipu)):
            raise BadInput(
                f"{self.schedule} on {n_ipu} devices needs n_micro_batches of at least {bound}, "
                f"got {self.n_micro_batches}"
            )
        check_size(self.schedule, len(stages), self.n_micro_batches)


def min_micro_batches(order: Order, n_ipu: int) -> int:
    """The fewest micro-batches of a step of an order on so many devices.

    >>> min_micro_batches(Order.POPART, 4), min_micro_batches(Order.GPIPE, 4)
    (7, 1)
    """
    return spec_of(order).min_micro_batches(n_ipu)
