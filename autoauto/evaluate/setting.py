"""A model, its devices and how it is estimated, for all configurations of a flow: `Setting`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from autoauto.estimate.memory import memory_limit_bytes
from autoauto.memo import Memo
from autoauto.profile.cache import ProfileCache, local_cache
from autoauto.records.costs.correction import PLAIN_SUM, Correction, Estimator
from autoauto.records.costs.options import CompileOptions, Session
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Cluster, Device, Period, content_of, joined
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.plans.plan import CutAt, Plan
from autoauto.records.plans.timeline import Timeline
from autoauto.records.target import CompilingTarget, Origin, ServesDecoder, Target, TargetTraits, traits_of
from autoauto.records.units import Precision
from autoauto.schedule.orders.registry import spec_of
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import DEFAULT_PLANNING_PROPORTION, Knobs, compile_options
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Mode
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.numbers import NAMES_OF_GENERATION, PERCENTILES, QUANTITIES, Result
from autoauto.space.trial import MadeFor, Trial, measured_trial, with_devices
from autoauto.targets.clusters import check_fp8

_MAX_SESSIONS = 256  # whose devices are kept in memory


@dataclass(frozen=True, slots=True)
class Setting:
    """A model, its devices, and how its configurations are estimated.

    Attributes:
        cluster: all devices; a configuration uses the first `n_ipu` of them, or where they are of several kinds
            (`Cluster.kinds`), those that suit it.
        precision: of weights and activations.
        planning_proportion: share of a device's memory that the predicted bytes of a stage may fill. None means
            1 / `Correction.memory_interval.high`: the upper end of the prediction interval may fill all memory. Plain
            sums have no interval; for them None means 0.85 [auto-pipeline].
        period: what the devices do at the same time; None is what the target says (`TargetTraits.period`).
        cache: profiles of compiled layers, and ranges compiled whole.
        estimator: whether sums of layers are corrected by ranges compiled whole.
        cut_at: where stages may begin.
        constraints: conditions on the results of a configuration, expected or measured.
    """

    graph: LayerGraph
    cluster: Cluster
    target: Target
    precision: Precision = Precision.FP16
    planning_proportion: float | None = None
    period: Period | None = None
    cache: ProfileCache = field(default_factory=local_cache)
    estimator: Estimator = Estimator.REGRESSION
    cut_at: CutAt = CutAt.LAYERS
    constraints: tuple[Constraint, ...] = ()
    _by_session: Memo[tuple[Session, int], Cluster] = field(
        default_factory=lambda: Memo(_MAX_SESSIONS), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        memory_limit_bytes(self.cluster, self.proportion(PLAIN_SUM))  # raises BadInput for an impossible proportion
        if self.cut_at is CutAt.BLOCKS and not self.graph.blocks:
            raise BadInput(
                "blocks are found by the names of repeated modules like layers.0, layers.1 in an ONNX file, "
                f"{self.graph.name} has none; try --cut-at layers"
            )
        for constraint in self.constraints:
            self._check_constraint(constraint)
        if self.precision is Precision.FP8:
            from autoauto.graph.kinds import quantise

            check_fp8(self.cluster)
            object.__setattr__(self, "graph", quantise(self.graph))
        tiles = {(device.n_tiles, device.tile_memory_bytes) for device in self.cluster.devices}
        if len(tiles) > 1 and not self.cluster.kinds:
            raise BadInput(
                f"the devices of a line may differ in clock and memory, not in tiles, since a model is profiled for "
                f"one of them; {self.cluster.name} has {sorted(tiles)}; write [[kinds]], which are profiled each"
            )

    def _check_constraint(self, constraint: Constraint) -> None:
        """Refuse a condition on results that configurations do not have here."""
        foreign = NAMES_OF_GENERATION.intersection(constraint.names)
        if foreign and Generation not in self.modes:
            raise BadInput(f"{min(foreign)} is of text that is generated, got {constraint.text!r}; try --target gpu")
        for name in QUANTITIES.keys() & {*constraint.names}:
            self.cluster.check_quantity(QUANTITIES[name], f"the constraint {constraint.text!r}")
        simulated = PERCENTILES.intersection(constraint.names)
        if simulated and not hasattr(self.target, "traffic"):
            raise BadInput(
                f"{min(simulated)} is of requests whose arrivals are simulated, which target gpu does, got "
                f"{constraint.text!r}; try bounds of ttft or tpot"
            )

    @property
    def by_kind(self) -> tuple[Setting, ...]:
        """The settings of every kind of devices alone; none where the order of the devices is given."""
        return tuple(replace(self, cluster=cluster) for cluster in self.cluster.by_kind)

    @property
    def traits(self) -> TargetTraits:
        """The traits of the target: how it measures, and the values with which a search begins."""
        return traits_of(self.target)

    @property
    def modes(self) -> tuple[type[Mode], ...]:
        """The modes in which the target can run a model; the first is the default."""
        if isinstance(self.target, ServesDecoder):
            return (Generation,)
        modes: list[type[Mode]] = [Inference]
        if self.traits.trains:
            modes.append(Training)
        if self.traits.phases:
            modes.append(Phased)
        return tuple(modes)

    @property
    def compiler(self) -> CompilingTarget:
        """The target, which compiles ranges of layers. Raises BadInput if it does not."""
        if isinstance(self.target, ServesDecoder):
            raise BadInput(
                f"--target {self.cluster.target} knows times of kernels and compiles nothing; try search, predict or "
                "export"
            )
        return cast(CompilingTarget, self.target)

    @property
    def period_of_devices(self) -> Period:
        """The transfers and computations of the devices that happen at the same time."""
        return self.traits.period if self.period is None else self.period

    @property
    def begins_whole(self) -> bool:
        """True if estimates begin with the whole model (`WholeFirstCosts`)."""
        return self.traits.whole_first and self.estimator is not Estimator.SUM

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every layer."""
        return tuple(layer.name for layer in self.graph.layers)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the assumptions of the model, and on the numbers of the target."""
        notes: tuple[str, ...] = getattr(self.target, "notes", ())
        return (*self.graph.notes, *notes)

    def notes_of(self, configurations: Iterable[Knobs]) -> tuple[str, ...]:
        """`notes`, and sentences on what is assumed of these configurations."""
        notes = dict.fromkeys(self.notes)
        for knobs in configurations:
            notes |= dict.fromkeys(knobs.session.notes)
            mode = knobs.mode
            if isinstance(mode, Training) and spec_of(mode.order).splits_backward and not self.traits.splits_backward:
                note = "the costs do not say which part of the backward pass makes gradients of weights: "
                notes[f"{note}{mode.order} moves none of it into idle time"] = None
        return tuple(notes)

    def needs(self, session: Session) -> str:
        """The files that a session needs besides the model (`ServesDecoder.needs`), or an empty text."""
        return self.target.needs(session) if isinstance(self.target, ServesDecoder) else ""

    @property
    def shown_clock_hz(self) -> float | None:
        """The clock with which cycles are shown as time; None where they are shown as cycles."""
        return self.cluster.clock_hz if self.traits.in_seconds else None

    def options(self, knobs: Knobs, device: int = 0) -> CompileOptions:
        """The options with which the target compiles at these knobs for a device of the pipeline."""
        return compile_options(knobs, self.precision, device)

    def device(self, options: CompileOptions) -> Device:
        """The first device, for which all layers are compiled."""
        return self.hardware(options.session).grouped(options.group_size).devices[0]

    def devices(self, knobs: Knobs) -> Cluster:
        """All devices as the session uses them, each with the cores of a device."""
        session, n_each = knobs.session, knobs.session.group_size
        return self._by_session.of((session, n_each), lambda: self.hardware(session).grouped(n_each))

    def hardware(self, session: Session) -> Cluster:
        """The cluster as a session uses it (`Session.hardware`)."""
        return self._by_session.of((session, 1), lambda: session.hardware(self.cluster))

    def device_bytes(self, knobs: Knobs) -> int:
        """The memory of one device."""
        return int(self.hardware(knobs.session).devices[0].memory_bytes) * knobs.session.group_size

    def device_of(self, knobs: Knobs) -> Device:
        """The first device of a configuration, with all its cores."""
        return joined(self.hardware(knobs.session).devices[:1] * knobs.session.group_size)

    def line(self, knobs: Knobs, start: int = 0) -> Cluster:
        """The devices of the pipeline that begins with the device `start`."""
        return self.devices(knobs).part(start, knobs.n_ipu)

    def proportion(self, correction: Correction) -> float:
        """The share of a device's memory that the predicted bytes of a stage may fill."""
        if self.planning_proportion is not None:
            return self.planning_proportion
        return 1.0 / correction.memory_interval.high if correction.n_examples else DEFAULT_PLANNING_PROPORTION

    def check_devices(self, knobs: Knobs) -> None:
        """Refuse more devices than there are.

        Raises:
            Infeasible: there are too few.
            BadInput: each is to have a session of its own, and their order is not given.
        """
        if knobs.session.differs_by_device:
            self.check_one_kind(f"memory_proportion {knobs.session.values['memory_proportion']}")
        if knobs.n_ipu * knobs.replicas > len(self.devices(knobs)):
            n_cores = knobs.session.group_size
            cores = f" of {n_cores} cores" if n_cores > 1 else ""
            raise Infeasible(
                f"{knobs.replicas} replicas of {knobs.n_ipu} devices{cores} need {knobs.n_devices}, "
                f"{self.cluster.name} has {len(self.cluster)}",
                0,
            )
        if knobs.n_devices > len(self.cluster):
            raise Infeasible(
                f"{knobs.n_devices - knobs.session.n_beside} devices of replicas and {knobs.session.n_beside} beside "
                f"them are {knobs.n_devices}, {self.cluster.name} has {len(self.cluster)}",
                0,
            )

    def check_one_kind(self, what: str) -> None:
        """Refuse with BadInput what needs devices of one kind where there are several, in any order."""
        if self.cluster.kinds:
            names = ", ".join(kind.device.name for kind in self.cluster.kinds)
            raise BadInput(
                f"{what} needs devices in a given order, {self.cluster.name} has {names} in any order; "
                "try a --cluster of one kind"
            )

    def check_phases_may_begin_anywhere(self) -> None:
        """Refuse phases, with BadInput, where stages begin at blocks."""
        if self.cut_at is CutAt.BLOCKS:
            raise BadInput("phases begin at any layer, got --cut-at blocks; leave it out")

    def fingerprint(self) -> Mapping[str, str]:
        """Everything besides the knobs on which trials depend; a study refuses to continue with another fingerprint."""
        return {
            "model": self.graph.name,
            "model_content": self.graph.content,
            "cluster": self.cluster.name,
            "cluster_content": _digest(self.cluster),
            "target": self.target.version,
            "precision": str(self.precision),
            "planning_proportion": str(self.planning_proportion),
            "estimator": str(self.estimator),
            "period": str(self.period_of_devices),
            "constraints": "; ".join(sorted({constraint.text for constraint in self.constraints})),
            "cut_at": str(self.cut_at),
        }

    def made_for(self) -> tuple[MadeFor, ...]:
        """The model, cluster and precision of trials; memory of devices is left out, as a share of it may stay free."""
        devices = self.cluster.with_each(lambda device: replace(device, memory_bytes=1))
        return (
            MadeFor("model", self.graph.name, self.graph.content),
            MadeFor("cluster", self.cluster.name, _digest(devices)),
            MadeFor("precision", str(self.precision)),
        )


def _digest(cluster: Cluster) -> str:
    return hashlib.sha256(repr(content_of(cluster)).encode()).hexdigest()[:16]


def trial_on(
    setting: Setting,
    knobs: Knobs,
    estimate: Plan | PhasedPlan | None,
    measured: Plan | PhasedPlan,
    result: Result,
    origin: Origin,
    timeline: Timeline | None = None,
) -> Trial:
    """The trial of a configuration that runs, with what its devices cost and with all constraints of a setting.

    Other arguments are as in `Trial`; `result` has its numbers, but those that follow from its plans, its devices and
    the timeline of a step.
    """
    return measured_trial(
        knobs,
        estimate,
        measured,
        with_devices(result, knobs, measured, setting.cluster),
        device=setting.device_of(knobs),
        timeline=timeline,
        origin=origin,
        constraints=setting.constraints,
    )
