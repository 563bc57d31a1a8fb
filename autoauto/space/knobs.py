"""One configuration: `Knobs`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autoauto.records.costs.options import GraphOptimization, HostPrecision, HostRuntime, RuntimeOptions, runtime_for
from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order, check_size
from autoauto.space.modes import (
    KNOB_NAMES,
    MAX_SAMPLES,
    STAGES_PER_DEVICE,
    TIE_BREAK,
    TRAINING_ORDERS,
    Knob,
    Recompute,
    Strategy,
)

DEFAULT_PLANNING_PROPORTION = 0.85
"""Share of a device's memory that a planned stage may fill by plain sums: memoryProportion of [auto-pipeline]."""


def min_micro_batches(schedule: Order, n_ipu: int) -> int:
    """The fewest micro-batches of a step; with PopART some must lie between fill and flush [popart-pipelining].

    >>> min_micro_batches(Order.POPART, 4), min_micro_batches(Order.GPIPE, 4)
    (7, 1)
    """
    return 2 * n_ipu - 1 if schedule is Order.POPART else 1


@dataclass(frozen=True, slots=True)
class Knobs:
    """One configuration.

    Attributes:
        n_ipu: devices of one pipeline, of whichever target; for phases the number of devices that run the same phases
            on different data.
        memory_proportion: Poplar's `availableMemoryProportion`, a bound on temporary memory [poplar-docs]; on the host
            the share of a device's memory that may be used.
        batch_size: samples in one micro-batch.
        schedule: the order of forward and backward passes in training; `Order.INFERENCE` means no training, and phases
            train in `Order.SEQUENTIAL`.
        recompute: whether a stage stashes only its inputs for the backward pass and computes the rest again; with
            `Recompute.AUTO` the stages do whose stash would not fit.
        stages_per_device: of training by a pipeline, which then has `n_ipu` times as many stages.
        n_micro_batches: micro-batches of one step of training, after which weights change; for phases the micro-batches
            that go through a phase before the next phase begins; 1 for inference by a pipeline.
        strategy: pipeline or phases.
        replicas: pipelines of `n_ipu` devices each, side by side, each with micro-batches of its own; in training their
            gradients are summed once a step.
        cores_per_device: devices of the cluster, cores of the host, that are one device: threads of one session.
        stage_replicas: whether several of the `n_ipu` devices may run one stage and take its micro-batches in turn;
            the best plan then has at most that many devices.
        optimizer: changes the weights once a step of training.
        master_weights: whether weights of 16 bits have a copy in fp32.
        shard_optimizer: whether every replica holds a part of the optimizer's state only.
        runtime, precision: what runs the model on the host, and in which format it computes. Elsewhere
            None: there the format is that of the flow.
        streams, spinning, graph_optimization, cuda_graph, channels_last: as in `RuntimeOptions`; each has its default
            with a runtime that does not have it, and streams share the cores of a device.
    """

    n_ipu: int
    memory_proportion: float
    batch_size: int
    schedule: Order = Order.INFERENCE
    recompute: bool | Recompute = False
    n_micro_batches: int = 1
    strategy: Strategy = Strategy.PIPELINE
    replicas: int = 1
    cores_per_device: int = 1
    stage_replicas: bool = False
    optimizer: Optimizer = Optimizer.SGD
    master_weights: bool = False
    shard_optimizer: bool = False
    runtime: HostRuntime | None = None
    precision: HostPrecision | None = None
    streams: int = 1
    spinning: bool = True
    graph_optimization: GraphOptimization = GraphOptimization.ALL
    cuda_graph: bool = True
    channels_last: bool = False
    stages_per_device: int = 1

    def __post_init__(self) -> None:
        if self.n_ipu < 1:
            raise BadInput(f"n_ipu must be at least 1, got {self.n_ipu}")
        if not 0.0 < self.memory_proportion <= 1.0:
            raise BadInput(f"memory_proportion must be in (0, 1], got {self.memory_proportion}")
        if not 1 <= self.batch_size <= MAX_SAMPLES:
            raise BadInput(f"batch_size must be 1 to {MAX_SAMPLES}, got {self.batch_size}")
        for name in ("replicas", "cores_per_device", "streams"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.replicas > 1 and self.strategy is Strategy.PHASED:
            raise BadInput("replicas are pipelines side by side, got phases; try --strategy pipeline")
        if self.stage_replicas and (self.training or self.strategy is Strategy.PHASED):
            raise BadInput("stage_replicas are for inference by pipelines; try --mode inference --strategy pipeline")
        self._check_update()
        if self.strategy is Strategy.PHASED:
            if self.recompute is Recompute.AUTO:
                raise BadInput("phases recompute all or nothing, got recompute auto; try on or off")
            return
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.training and self.schedule not in TRAINING_ORDERS:
            known = ", ".join(TRAINING_ORDERS)
            raise BadInput(f"a plan trains as one of {known}, got schedule {self.schedule}")
        if not self.training and (self.recompute or self.n_micro_batches != 1):
            raise BadInput("recompute and n_micro_batches are for training; try --mode training")
        if self.training:
            self._check_stages()
        if self.n_micro_batches < (fewest := min_micro_batches(self.schedule, self.n_ipu)):
            raise BadInput(
                f"{self.schedule} on {self.n_ipu} devices needs n_micro_batches of at least {fewest}, "
                f"got {self.n_micro_batches}"
            )
        if self.training:
            check_size(self.schedule, self.n_ipu * self.stages_per_device, self.n_micro_batches)

    def _check_stages(self) -> None:
        """Refuse stages a device that the order does not have, and micro-batches that do not make whole groups."""
        fewest, most = STAGES_PER_DEVICE[self.schedule]
        if not fewest <= self.stages_per_device <= most:
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise BadInput(
                f"{self.schedule} has stages_per_device of {wanted}, got {self.stages_per_device}; "
                f"try --stages-per-device {fewest}"
            )
        if self.stages_per_device > 1 and self.n_ipu == 1:
            raise BadInput("several stages a device are for pipelines of 2 devices or more, got n_ipu 1; try more")
        if self.schedule is Order.INTERLEAVED and self.n_micro_batches % self.n_ipu:
            raise BadInput(
                f"interleaved on {self.n_ipu} devices needs n_micro_batches in groups of {self.n_ipu}, "
                f"got {self.n_micro_batches}; try a multiple of {self.n_ipu}"
            )

    def _check_update(self) -> None:
        changed = self.optimizer is not Optimizer.SGD or self.master_weights or self.shard_optimizer
        if (changed or self.stages_per_device != 1) and (not self.training or self.strategy is Strategy.PHASED):
            names = "optimizer, master_weights and shard_optimizer" if changed else "several stages_per_device"
            raise BadInput(f"{names} are for training by pipelines; try --mode training --strategy pipeline")

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule is not Order.INFERENCE

    @property
    def weight_update(self) -> WeightUpdate:
        """How the weights change at the end of a step of training."""
        n_shards = self.replicas if self.shard_optimizer else 1
        return WeightUpdate(self.optimizer, self.master_weights, n_shards)

    @property
    def session(self) -> tuple[HostRuntime, HostPrecision]:
        """What runs the model on the host, and the format in which it computes; by default the first, in fp32."""
        return runtime_for(self.runtime, self.precision), self.precision or HostPrecision.FP32

    @property
    def can_compute(self) -> bool:
        """Whether the runtime of the host computes in the format, with a core or more for every stream."""
        runtime, precision = self.session
        return precision in runtime.precisions and self.streams <= self.cores_per_device

    @property
    def runtime_options(self) -> RuntimeOptions:
        """The options of the runtime."""
        return RuntimeOptions(**{name: getattr(self, name) for name in RuntimeOptions.__dataclass_fields__})

    def has_effect(self, knob: Knob) -> bool:
        """Whether the runtime of the host has a knob; a session with one thread has none that could spin."""
        is_alone = knob.name == "spinning" and self.cores_per_device == 1
        return not knob.runtimes or (self.session[0] in knob.runtimes and not is_alone)

    @property
    def n_devices(self) -> int:
        """Devices of the cluster that all replicas take."""
        return self.n_ipu * self.replicas * self.cores_per_device

    @property
    def n_samples(self) -> int:
        """Samples of one step of training, of all phases, or of one micro-batch of inference by every pipeline."""
        replicas = self.n_ipu if self.strategy is Strategy.PHASED else self.replicas
        return self.batch_size * self.n_micro_batches * replicas

    @property
    def numbers(self) -> dict[str, float]:
        """The values to which a constraint may refer, by `KNOB_NAMES`."""
        return {name: _number(getattr(self, name)) for name in KNOB_NAMES}

    @property
    def simplicity(self) -> tuple[int, ...]:
        """Smaller for the simpler configuration, by `TIE_BREAK`: fewer devices, then fewer replicas, and so on."""
        return tuple(getattr(self, name) for name in TIE_BREAK)


def _number(value: Any) -> float:
    """A knob's value in constraints; of `Recompute.AUTO` 2, as off is 0 and on is 1."""
    return 2.0 if value is Recompute.AUTO else float(value)
