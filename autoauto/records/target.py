"""The interface of a target, `Target`, its properties, `TargetTraits`, and the origin of its numbers, `Origin`.

A target compiles ranges of layers, `CompilingTarget`, or its engines serve a decoder, `ServesDecoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from autoauto.records.costs.decoder import Decoder, Workload
from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.costs.profile import CompiledRange, ModelProfile, NodeTime, WeightUpdate
from autoauto.records.errors import DoesNotFit
from autoauto.records.hardware import Device, Period
from autoauto.records.layers import LayerGraph, LayerRange


class Origin(StrEnum):
    """The origin of a number, in the words in which it is shown and stored."""

    ESTIMATED = "estimated"
    """From the costs of single layers."""
    SIMULATED = "simulated"
    """From the costs of stages in the order of a schedule."""
    MODELLED = "modelled"
    """A model of the compiler compiled stages whole; no hardware was involved."""
    MEASURED = "measured"
    """Devices ran it."""


@dataclass(frozen=True, slots=True)
class TargetTraits:
    """Properties of a target: how it measures, and the values with which a search begins.

    The defaults are those of a target that compiles ranges of layers, cheaply and every time the same. `RUNS_PLANS` are
    those of devices that run whole plans.

    Attributes:
        origin: of the numbers that it measures.
        runs_plans: whether devices run whole plans (`Runner`). A measurement then takes their time, so fewer are made
            and each is used at once; and plans that are predicted not to fit are tried.
        trains: whether it has a backward pass.
        phases: whether phases can be planned for it.
        splits_backward: whether its costs say which part of the backward pass makes gradients of weights.
        one_at_a_time: whether measurements in several processes would disturb each other.
        noise: the share of a measured value that is noise.
        n_repeats: turns in which the best configuration of a search is verified.
        space: values of knobs in the default space of a search; the other knobs have those of `SearchSpace`.
        period: what its devices do at the same time, hence the period of a plan.
        groups: the knobs whose product says how many devices of its cluster are one device; empty where each is one.
        stage_replicas: whether several devices of a pipeline can run one stage and take its micro-batches in turn. IPUs
            cannot: in PopART and in TensorFlow for IPUs a pipeline stage is on one device, and what is replicated is
            the whole graph [popart-pipelining] [poplar-tensorflow].
        outlined: what layers of one kind store once in inference where they are one subgraph (`ModelProfile.outlined`).
        sessions: how it may compute, the default first; empty for a target that has no knobs.
        whole_first: whether the whole model is measured on one device before any layer: it says what one device and
            replicas of it give, and what pipelines give at best, so that layers are measured only where a pipeline may
            win (`autoauto/evaluate/costs/whole_first.py`).
        in_seconds: whether its numbers are made of seconds, so that they are shown as time and not as cycles.
        most_measured: configurations that a guided search measures at most; None for as many as may be better.
        n_in_flight: samples in flight on the whole cluster, of which the batch size follows; None where it is a knob.
        memory_never_falls: whether a larger batch never needs less memory, so that none fits above one that does not;
            `studies/monotone.py` and `studies/sanity.py` prove it.
    """

    origin: Origin = Origin.MEASURED
    runs_plans: bool = False
    trains: bool = True
    phases: bool = True
    splits_backward: bool = True
    one_at_a_time: bool = False
    noise: float = 0.0
    n_repeats: int = 1
    space: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    period: Period = Period.BARRIER
    groups: tuple[str, ...] = ()
    stage_replicas: bool = False
    outlined: tuple[str, ...] = ()
    sessions: tuple[type[Session], ...] = ()
    whole_first: bool = False
    in_seconds: bool = False
    most_measured: int | None = None
    n_in_flight: int | None = None
    memory_never_falls: bool = False


RUNS_PLANS = TargetTraits(
    runs_plans=True,
    trains=False,
    phases=False,
    noise=0.01,
    n_repeats=3,
    space={"batch_size": (1, 2, 4, 8, 16, 32)},
)
"""The traits of devices that run whole plans. Their space is small: a measurement takes their time."""


class Target(Protocol):
    """A kind of device, and how what it computes is priced."""

    @property
    def version(self) -> str:
        """A text that changes whenever equal input may give other numbers; part of every cache key."""


@runtime_checkable
class ServesDecoder(Protocol):
    """A target whose engines serve one decoder; nothing is compiled for it."""

    decoder: Decoder

    def needs(self, session: Session) -> str:
        """The files that the launch command of a configuration needs and cannot make, as text; empty if none."""
        ...


class LiveServer(Protocol):
    """A running server, as a context that stops it at the end; `address` is its URL."""

    address: str

    def __enter__(self) -> LiveServer: ...

    def __exit__(self, *_: object) -> None: ...

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all threads of the server so far."""

    @property
    def is_alive(self) -> bool:
        """True if the process of the server runs."""

    def failure(self) -> DoesNotFit | None:
        """The reason why the server has ended, read from its log; None if it still runs.

        It waits a moment: the connections of a process that is killed end before the process does.
        """

    def log(self) -> tuple[str, ...]:
        """The last lines of the server's log."""


@runtime_checkable
class RunsServers(ServesDecoder, Protocol):
    """A target that starts an engine on this machine, so that loads of requests measure it.

    `n_clients` clients send requests to every server.
    """

    n_clients: int

    def command(
        self, session: Session, n_slots: int, workload: Workload, replica: int | None = None
    ) -> tuple[str, ...]:
        """The words that start the same server elsewhere; see `serve`."""

    def serve(self, session: Session, n_slots: int, workload: Workload, replica: int | None = None) -> LiveServer:
        """Start a server with `n_slots` sequences in flight, each with room for requests of the workload.

        `replica` is the number of the server where several run side by side, each on cores and a port of its own.

        Raises:
            OutOfMemory, Unsupported: the server does not start; the reason is quoted from its log.
        """

    def memory_bytes(self, session: Session, n_slots: int, workload: Workload) -> dict[str, int]:
        """An estimate of the memory of a server, by category."""


class CompilingTarget(Target, Protocol):
    """A kind of device that ranges of layers can be compiled for, by a cost model or by running them.

    This is all that a device of your own needs; `studies/custom_target.py` has an example of 40 lines. `compile` is
    called for every kind of layer alone at the batch sizes that `profiled` returns, for a few ranges to which the
    estimate is fitted, and for every stage of a plan that is measured. The results for single layers and for those
    ranges are cached under `version` and `depends_on`, and not asked for again. `compile` may raise OutOfMemory: the
    configuration does not fit, and the search continues. Any other exception ends the search. The target is pickled
    where other processes measure.

    A target that also runs whole plans is a `Runner` (`autoauto.records.plans.timeline`): the run is then the
    measurement, a search has a smaller default space, and the values of its trials have noise. A target that differs
    from this says so in an attribute `traits`, a `TargetTraits`; without it `traits_of` has the usual ones.
    """

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """The batch sizes at which layers are compiled to profile them at `batch_size`: itself, or two around it.

        Compiling for a cost model is cheap, running layers on a real device is not; between two sizes the profiler
        interpolates.
        """

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The values of `device` and `options` that a compiled range depends on; their repr is part of cache keys."""

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Compile `layers` of `graph` as one program for `device`; the caller checks memory limits."""


@runtime_checkable
class Prepares(Protocol):
    """A target that compiles layers faster when it knows beforehand which ones it will compile."""

    def prepare(self, graphs: Iterable[LayerGraph], device: Device, options: CompileOptions) -> None:
        """The last layer of each of these models will be compiled next; what they compile to does not depend on it."""


@runtime_checkable
class UpdatesWeights(Protocol):
    """A target that knows the cost of updating weights; on all other targets an update is free."""

    def weight_update_cycles(
        self, graph: LayerGraph, device: Device, options: CompileOptions, update: WeightUpdate
    ) -> tuple[int, ...]:
        """Cycles by layer in which a device updates its weights; of tied weights the first reader counts."""


class StepOverhead(NamedTuple):
    """Fixed costs of a step of training, besides its passes and the bytes that it moves.

    Attributes:
        round_cycles: of every round in which a ring of replicas sums, however short its messages are.
        bucket_bytes: gradients that are summed together where every replica updates all weights; None is all of them.
        transfer_cycles: of every load or store of the state of a tensor in streaming memory, besides its bytes.
        host_cycles: in which devices wait for the hosts.
    """

    round_cycles: int = 0
    bucket_bytes: int | None = None
    transfer_cycles: int = 0
    host_cycles: int = 0


@runtime_checkable
class HasStepOverhead(Protocol):
    """A target whose steps of training have fixed costs; on all other targets they have none."""

    def step_overhead(self, clock_hz: float, update: WeightUpdate) -> StepOverhead:
        """The overhead of a step, in cycles of a reference clock."""


@runtime_checkable
class TimesNodes(Protocol):
    """A target with `TargetTraits.whole_first` that can say how long every part of a whole model took."""

    def node_times(self, graph: LayerGraph, device: Device, options: CompileOptions) -> tuple[NodeTime, ...]:
        """The nodes of the whole model in the order in which they run; none where the runtime cannot say.

        Raises:
            BadInput: the runtime cannot run the model.
            OutOfMemory: the machine has not enough memory for it.
        """


@runtime_checkable
class Profiled(Protocol):
    """A target that has the profile of the whole model, so that no layer is compiled to profile it."""

    def profile(self, graph: LayerGraph, device: Device, options: CompileOptions) -> ModelProfile:
        """The profile of the model for one device. Raises BadInput if the profile says nothing of these options."""


def traits_of(target: Target) -> TargetTraits:
    """The traits of a target: its own, else those of a target that runs plans or of one that compiles ranges."""
    default = RUNS_PLANS if hasattr(target, "run") else TargetTraits()
    traits: TargetTraits = getattr(target, "traits", default)
    return traits


def studied_origin(attributes: Mapping[str, str]) -> Origin:
    """The origin of the measured numbers of a study, by its attributes; modelled where a study of ours has none yet."""
    return Origin(attributes.get("origin", Origin.MODELLED))
